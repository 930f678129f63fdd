"""What a predictor is. A new predictor is one file beside this one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class TokenMeter:
    """Counts the tokens that a prediction cost, also when it is cancelled."""

    tokens: int = 0


@dataclass(frozen=True)
class PredictionContext:
    """What is known when a tool starts."""

    token_ids: Sequence[int]
    """The trajectory up to and including the action's end token."""
    task_id: str
    command: str
    meter: TokenMeter = field(default_factory=TokenMeter)


@dataclass(frozen=True)
class Candidate:
    """One predicted observation, in canonical form."""

    text: str
    confidence: float
    """Probability that the predictor gives to this text, in [0, 1]."""
    mean_logprob: float
    """Of its tokens, in nats."""
    tokens: int


class Predictor(Protocol):
    name: str

    def predict(self, context: PredictionContext) -> AsyncGenerator[Candidate]:
        """Candidates, best first, each as soon as it is complete.

        May raise anything: a failed prediction costs the rollout nothing. Closing the generator, or
        cancelling the task in it, ends all work for it.
        """
        ...
