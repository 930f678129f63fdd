"""What a predictor is. A new predictor is one file beside this one, with a `create(tools)`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.backends.base import Backend
from orchestrator.chat import ChatFormat
from orchestrator.history import History
from orchestrator.schema import Rollout


def _never(confidence: float) -> bool:
    return False


@dataclass
class TokenMeter:
    """Counts the tokens that a prediction cost, also when it is cancelled."""

    tokens: int = 0
    stopped: bool = False
    """The prediction was not finished because it was of no use."""
    hopeless: Callable[[float], bool] = _never
    """Whether a prediction of that confidence, or less, is of no use: it need not be finished."""

    def close(self) -> None:
        """Nobody waits for the prediction any more."""
        self.hopeless = _never


@dataclass(frozen=True)
class PredictionContext:
    """What is known when a tool starts, or would start."""

    token_ids: Sequence[int]
    """The trajectory up to and including the action's end token."""
    task_id: str
    environment: str
    """Another one whenever the task's environment has changed."""
    history: History
    """The commands before this one."""
    command: str
    turn: int
    """Of the action that calls the tool."""
    seed: int
    """Of the rollout."""


@dataclass(frozen=True)
class Candidate:
    """One predicted observation, in canonical form."""

    text: str
    source: str
    """The predictor, and how it came to it, as `world_model/greedy`."""
    confidence: float
    """Probability that the predictor gives to this text, in [0, 1]."""
    logprobs: tuple[float, ...] = ()
    """Of the tokens that a model predicted, in nats."""


class Predictor(Protocol):
    """May raise anything: a failed prediction costs the rollout nothing."""

    name: str
    ranks: int | None
    """Different questions that it can be asked of one tool call; None: as many as one likes."""

    def recall(self, context: PredictionContext) -> Sequence[Candidate]:
        """What it knows at once and for nothing, best first."""
        ...

    def source(self, rank: int) -> str | None:
        """What the candidates of `predict` are from; None: it costs nothing to ask."""
        ...

    def predict(self, context: PredictionContext, rank: int, meter: TokenMeter) -> AsyncGenerator[Candidate]:
        """What takes time: candidates as they come, for question number `rank`.

        Closing the generator, or cancelling the task in it, ends all work for it.
        """
        ...

    def learn(self, context: PredictionContext, observation: str) -> None:
        """A tool has returned."""
        ...


@dataclass(frozen=True)
class PredictorTools:
    """What predictors are made from."""

    chat: ChatFormat
    world_model: Backend | None
    max_prediction_tokens: int
    context_tokens: int | None
    memo_entries: int
    recorded: Callable[[str, int], Rollout | None] = field(default=lambda task, seed: None)
    """A sequential rollout that has ended, of that task and seed."""


class Create(Protocol):
    def __call__(self, tools: PredictorTools) -> Predictor:
        """Raises Unavailable where something is missing."""
        ...


class Unavailable(ValueError):
    """A predictor that cannot be had here: one sentence."""
