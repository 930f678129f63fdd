"""The record of one rollout while it runs, and the `Rollout` that it is at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orchestrator.schema import (
    Limits,
    Prediction,
    Rollout,
    RolloutStatus,
    RolloutSummary,
    Sampling,
    SegmentKind,
    SpeculationSettings,
    ToolLatency,
    Totals,
    Trajectory,
    Turn,
)
from orchestrator.spans import Spans
from orchestrator.tools import Observation


@dataclass(frozen=True)
class RolloutSpec:
    """What to run, with every default filled in."""

    id: str
    task: str
    family: str
    speculation: SpeculationSettings
    seed: int
    sampling: Sampling
    limits: Limits
    tool_latency: ToolLatency | None


class RolloutRecord:
    """Turns are added when their action is complete, and completed when their tool has returned."""

    def __init__(self, spec: RolloutSpec):
        self.spec = spec
        self.environment = ""
        """Another one whenever the task's environment has changed."""
        self.status = RolloutStatus.QUEUED
        self.error: str | None = None
        self.reward: float | None = None
        self.agent_latency_s: float | None = None
        self.turns: list[Turn] = []
        self.spans: Spans | None = None
        self.trajectory: Trajectory | None = None
        self.ended = asyncio.Event()
        self._unreturned: list[Prediction] = []

    def start(self) -> Spans:
        """The rollout begins now; its clock starts."""
        self.status = RolloutStatus.RUNNING
        self.spans = Spans()
        return self.spans

    def end(self, status: RolloutStatus, error: str | None = None) -> None:
        """Set the final status; what failed or was cancelled has no reward."""
        self.status, self.error = status, error
        if status in (RolloutStatus.FAILED, RolloutStatus.CANCELLED):
            self.reward = None

    def add(self, turn: Turn) -> None:
        self.turns.append(turn)

    def complete(self, observation: Observation, prediction: Prediction) -> None:
        """The last turn's tool has returned."""
        self.turns[-1] = self.turns[-1].model_copy(
            update={
                "observation": observation.text,
                "observation_empty": observation.empty,
                "prediction": prediction,
                "tool_s": observation.tool_s,
                "simulated_s": observation.simulated_s,
            }
        )

    def settle(self, turn: int, prediction: Prediction) -> None:
        """The prediction of a turn has its last figures; of a tool that never returned, only tokens count."""
        if self.turns[turn].prediction is None:
            self._unreturned.append(prediction)
        else:
            self.turns[turn] = self.turns[turn].model_copy(update={"prediction": prediction})

    def summary(self) -> RolloutSummary:
        spec = self.spec
        return RolloutSummary(
            id=spec.id,
            task=spec.task,
            mode=spec.speculation.mode,
            seed=spec.seed,
            status=self.status,
            reward=self.reward,
            error=self.error,
        )

    def snapshot(self) -> Rollout:
        """The rollout as it stands; with its trajectory once it has ended."""
        spec = self.spec
        return Rollout(
            id=spec.id,
            task=spec.task,
            family=spec.family,
            speculation=spec.speculation,
            seed=spec.seed,
            status=self.status,
            error=self.error,
            reward=self.reward,
            agent_latency_s=self.agent_latency_s,
            totals=self._totals(),
            turns=list(self.turns),
            spans=self.spans.in_order() if self.spans else [],
            trajectory=self.trajectory,
        )

    def _totals(self) -> Totals:
        predictions = [turn.prediction for turn in self.turns if turn.prediction is not None]
        segments = self.trajectory.segments if self.trajectory else []
        thrown_away = [*predictions, *self._unreturned]
        return Totals(
            turns=len(self.turns),
            tool_calls=len(predictions),
            prompt_tokens=len(self.trajectory.prompt_ids) if self.trajectory else 0,
            action_tokens=sum(turn.action_tokens for turn in self.turns),
            observation_tokens=sum(len(s.token_ids) for s in segments if s.kind is SegmentKind.OBSERVATION),
            discarded_policy_tokens=sum(p.discarded_policy_tokens for p in thrown_away),
            discarded_world_model_tokens=sum(p.discarded_world_model_tokens for p in thrown_away),
            saved_s=sum(p.saved_s for p in predictions),
            generation_s=sum(turn.generation_s for turn in self.turns),
            tool_s=sum(turn.tool_s for turn in self.turns),
            simulated_s=sum(turn.simulated_s for turn in self.turns),
        )
