"""How tool calls are speculated on, and the record of what came of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from orchestrator.schema.base import Frozen


class SpeculationMode(StrEnum):
    NEVER = "never"
    """Sequential: the policy waits for every tool."""
    ALWAYS = "always"
    """Every prediction gets a branch, as far as depth and breadth allow."""
    GOVERNED = "governed"
    """What is expected to pay under the engine's present load, and nothing else."""


class SpeculationSettings(Frozen):
    """Everything about the speculation of one rollout."""

    mode: SpeculationMode = SpeculationMode.GOVERNED
    """`never`, `always` or `governed`."""
    predictors: tuple[str, ...] = ("memo", "usual", "world_model")
    """Modules of orchestrator/predictors, the cheapest first."""
    depth: int = Field(default=2, ge=1, le=8)
    """Turns that the policy may be ahead of the tool that runs."""
    breadth: int = Field(default=2, ge=1, le=16)
    """Branches, each on another prediction, of one tool call."""
    early_drop: bool = True
    """A branch ends as soon as the output that the tool has printed so far contradicts its prediction."""
    waste: float = Field(default=0.25, ge=0, allow_inf_nan=False)
    """Governed: seconds that a branch, or a prediction, must be expected to save for each second that it is
    expected to work in vain."""
    max_open_tokens: int | None = Field(default=None, ge=1)
    """Governed: tokens that the running branches of the service are expected to generate, at most; null: no
    bound but the engine's own."""
    scope: str = Field(default="", max_length=200)
    """Rollouts of one scope learn from one another: observations, times, and how far predictions hold."""


Preset = Literal["default", "paper", "sequential"]
PRESETS: dict[Preset, SpeculationSettings] = {
    "default": SpeculationSettings(),
    "paper": SpeculationSettings(
        mode=SpeculationMode.ALWAYS, predictors=("world_model",), depth=1, breadth=1, early_drop=False
    ),
    "sequential": SpeculationSettings(mode=SpeculationMode.NEVER),
}


class Speculation(Frozen):
    """Settings of a request: those of `preset`, or the service's own, with what else is given changed."""

    preset: Preset | None = None
    """`default`, `paper` (the published method: world model alone, always, one turn, one branch) or
    `sequential`."""
    mode: SpeculationMode | None = None
    predictors: tuple[str, ...] | None = None
    depth: int | None = Field(default=None, ge=1, le=8)
    breadth: int | None = Field(default=None, ge=1, le=16)
    early_drop: bool | None = None
    waste: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_open_tokens: int | None = Field(default=None, ge=1)
    scope: str | None = Field(default=None, max_length=200)

    def resolve(self, default: SpeculationSettings) -> SpeculationSettings:
        """The complete settings; `default`: the service's own, whose predictors are those that it has."""
        base = PRESETS[self.preset] if self.preset else default
        if self.preset == "default":
            base = base.model_copy(update={"predictors": default.predictors})
        return SpeculationSettings(
            **base.model_dump() | self.model_dump(exclude_none=True, exclude={"preset"})
        )


class Outcome(StrEnum):
    """What came of the speculation on one tool call."""

    HIT = "hit"
    """A branch on exactly the observation became the next action."""
    MISS = "miss"
    """There were branches, and none of them on the observation."""
    TOOL_FIRST = "tool_first"
    """The tool returned before there was a prediction and a branch on it."""
    NO_PREDICTION = "no_prediction"
    """No predictor knew anything."""
    PREDICTOR_FAILED = "predictor_failed"
    BRANCH_FAILED = "branch_failed"
    """There was a prediction, but the engine could not open the branch or lost it."""
    DECLINED = "declined"
    """The governor had nothing asked, or no prediction was worth a branch."""
    NOT_ATTEMPTED = "not_attempted"
    """Sequential, or the last turn."""


class Reason(StrEnum):
    """Why there was a branch on a prediction, or none; why a predictor was asked, or not."""

    ALWAYS = "always"
    """The mode asks no questions."""
    PAYS = "pays"
    UNKNOWN_TIMES = "unknown_times"
    """Nothing of the kind was measured yet: tried, to learn."""
    EXPLORE = "explore"
    """It would not pay, and is tried now and then, to learn whether that still holds."""
    TOO_SHORT = "too_short"
    """Tool or generation leave nothing to save."""
    UNLIKELY = "unlikely"
    """What a hit would save does not outweigh what a miss would waste."""
    LOAD = "load"
    """It would, but for what it takes from the other requests of the engine."""
    BUDGET = "budget"
    """Open branches are already expected to generate `max_open_tokens`."""
    BREADTH = "breadth"
    """There are as many branches as `breadth` allows, and more likely ones."""
    CONTRADICTED = "contradicted"
    """The tool had already printed something else."""


class Fate(StrEnum):
    """What became of one guess."""

    COMMITTED = "committed"
    DROPPED = "dropped"
    """The observation was another."""
    CONTRADICTED = "contradicted"
    """Dropped before the tool returned: it had printed something else."""
    OUTBID = "outbid"
    """Dropped before the tool returned, for a more likely guess."""
    FAILED = "failed"
    """The engine could not open the branch, or lost it."""
    UNUSED = "unused"
    """There was no branch on it."""


class Guess(Frozen):
    """One predicted observation of a tool call; times in seconds."""

    text: str
    predictor: str
    source: str
    """The predictor, and how it came to it, as `memo/exact` or `world_model/greedy`."""
    confidence: float
    """The predictor's own probability of this text, in [0, 1]."""
    mean_logprob: float | None
    """Of its tokens (nats), where a model predicted it."""
    tokens: int
    """That it took to predict."""
    p_hit: float
    """Probability that it is exact, calibrated by what came of earlier ones."""
    depth: int
    """1: predicted while its own tool ran; 2: while the tool before that ran; ..."""
    predictor_s: float
    """From the question to the answer."""
    reason: Reason
    """Of the last decision on it."""
    gain_s: float | None = None
    """What that decision expected a branch to gain."""
    exact: bool
    """Equal to the observation."""
    fate: Fate
    overlap_s: float = 0.0
    """How long its branch generated before the tool returned."""
    policy_tokens: int = 0
    """Thrown away with its branch."""
    error: str | None = None


class Prediction(Frozen):
    """The speculation on one tool call; times in seconds."""

    outcome: Outcome
    guesses: tuple[Guess, ...] = ()
    """In the order in which they came."""
    reason: Reason | None = None
    """Of the last decision not to ask a predictor, or not to let it finish."""
    block_s: float = 0.0
    """Hits: from the tool's return to the end of the action."""
    saved_s: float = 0.0
    """Hits: how long the action was generated before the tool returned."""
    frontier: int = 0
    """Turns that the policy was ahead when the tool returned: the depth of the deepest branch."""
    cancelled: int = 0
    """Questions and branches that the tool's return, or a better guess, ended early."""
    cancelled_s: float = 0.0
    """Seconds that these had run, in all."""
    discarded_policy_tokens: int = 0
    """Of all branches that ended with this tool call, deeper ones too."""
    discarded_world_model_tokens: int = 0
    error: str | None = None

    @property
    def compared(self) -> bool:
        """Whether it counts in `exact_frac`."""
        return self.outcome in (Outcome.HIT, Outcome.MISS)

    @property
    def guess(self) -> Guess | None:
        """The one that was committed, or else the first that had a branch, or else the first."""
        ranked = sorted(self.guesses, key=lambda g: (g.fate is not Fate.COMMITTED, g.fate is Fate.UNUSED))
        return ranked[0] if ranked else None
