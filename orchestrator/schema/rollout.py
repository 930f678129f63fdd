"""What a rollout is and was: turns, predictions, timed spans, totals."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from orchestrator.schema.base import Frozen
from orchestrator.schema.request import SpeculationMode
from orchestrator.schema.trajectory import Trajectory


class RolloutStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    """The agent said that it was done."""
    TRUNCATED = "truncated"
    """A limit was met; `error` says which."""
    FAILED = "failed"
    """Engine or sandbox failed; `error` says how. There is no reward."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (RolloutStatus.QUEUED, RolloutStatus.RUNNING)


class SpanKind(StrEnum):
    SANDBOX = "sandbox"
    POLICY = "policy"
    """The policy generates and the agent waits for it."""
    TOOL = "tool"
    WORLD_MODEL = "world_model"
    SPECULATIVE_POLICY = "speculative_policy"
    """A branch generates while the tool runs."""
    VERIFY = "verify"


class Span(Frozen):
    """One phase; seconds since the rollout's start."""

    kind: SpanKind
    start_s: float
    end_s: float
    turn: int | None = None
    attributes: dict[str, bool | int | float | str] = Field(default_factory=dict)


class Outcome(StrEnum):
    """How the prediction of one tool call ended."""

    HIT = "hit"
    """Equal to the observation; the branch became the next action."""
    MISS = "miss"
    TOOL_FIRST = "tool_first"
    """The tool returned before there was a prediction and a branch on it."""
    PREDICTOR_FAILED = "predictor_failed"
    BRANCH_FAILED = "branch_failed"
    """There was a prediction, but the engine could not open the branch or lost it."""
    NOT_ATTEMPTED = "not_attempted"


class Prediction(Frozen):
    """What was predicted for one tool call, and what came of it."""

    outcome: Outcome
    predictor: str | None = None
    text: str | None = None
    """The predicted observation, when the predictor answered in time."""
    confidence: float | None = None
    """Joint probability of the predicted tokens, in [0, 1]."""
    mean_logprob: float | None = None
    predictor_s: float | None = None
    """Seconds from the question to the answer."""
    overlap_s: float = 0.0
    """Seconds for which the branch generated while the tool ran."""
    discarded_policy_tokens: int = 0
    discarded_world_model_tokens: int = 0
    error: str | None = None


class ToolCallRecord(Frozen):
    name: str
    command: str | None = None
    """Of `bash`."""
    timeout_s: float | None = None
    """What the policy asked for; the sandbox's own limit still holds."""

    @property
    def kind(self) -> str:
        """First word of a bash command, else the tool's name."""
        return self.command.split()[0] if self.command else self.name


class Turn(Frozen):
    """One action and what followed it; times in seconds."""

    index: int
    text: str
    """The action as text."""
    thought: str
    tool_call: ToolCallRecord | None
    """null: malformed; `observation` then is the sentence that told the policy so."""
    observation: str | None
    """null after `done` and where the rollout ended before the tool did."""
    observation_empty: bool = False
    """The command printed nothing."""
    prediction: Prediction | None = None
    """null where no tool ran."""
    weight_version: str | None = None
    action_tokens: int
    speculated: bool = False
    """This action came from a committed branch."""
    start_s: float
    generation_s: float
    """Seconds the agent waited for this action; near 0 where the branch had finished."""
    tool_s: float = 0.0
    simulated_s: float = 0.0
    """Part of `tool_s` that is simulated latency."""


class Totals(Frozen):
    turns: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    action_tokens: int = 0
    observation_tokens: int = 0
    discarded_policy_tokens: int = 0
    discarded_world_model_tokens: int = 0
    generation_s: float = 0.0
    tool_s: float = 0.0
    simulated_s: float = 0.0


class Rollout(Frozen):
    """One rollout as it stands: complete once `status.ended`."""

    id: str
    task: str
    family: str
    mode: SpeculationMode
    seed: int
    status: RolloutStatus
    error: str | None = None
    reward: float | None = None
    agent_latency_s: float | None = None
    """From the first policy call to the end of the last action or tool: no sandbox start, no verification."""
    totals: Totals = Totals()
    turns: list[Turn] = Field(default_factory=list)
    spans: list[Span] = Field(default_factory=list)
    trajectory: Trajectory | None = None
    """Present where it was asked for."""
