"""What the service says about itself: lists, readiness, problems."""

from __future__ import annotations

from pydantic import Field

from orchestrator.schema.base import Frozen
from orchestrator.schema.rollout import Rollout, RolloutStatus
from orchestrator.schema.speculation import SpeculationMode


class RolloutSummary(Frozen):
    """A line of the list of rollouts."""

    id: str
    task: str
    mode: SpeculationMode
    seed: int
    status: RolloutStatus
    reward: float | None
    error: str | None

    @classmethod
    def of(cls, rollout: Rollout) -> RolloutSummary:
        return cls(**{name: getattr(rollout, name) for name in cls.model_fields})


class FamilyInfo(Frozen):
    """A built-in family: every `name/seed` is a task; evaluation seeds start at `eval_seed`."""

    name: str
    eval_seed: int
    slow: bool = False
    """Its tools take seconds by nature; the shipped models have not seen it."""


class TaskList(Frozen):
    families: list[FamilyInfo]
    tasks: list[str]
    """Ids of the Harbor task directories in the configured folders."""


class EngineState(Frozen):
    name: str
    ready: bool
    branches: str | None = None
    seeds: bool | None = None
    notes: list[str] = Field(default_factory=list)
    error: str | None = None


class Readiness(Frozen):
    ready: bool
    engines: list[EngineState]


class Problem(Frozen):
    """RFC 9457 problem details: the one shape of every error answer."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
