"""Engine figures from rollouts that were recorded on real engines.

What one rollout at a time tells is read off by least squares: seconds of a prefill, of each token that it
reads, and of each token that is generated. What shows only under load is found by simulating the same
rollouts: how much of a token's time is each sequence's own, and how far the two engines slow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.schema import Rollout, SpeculationMode
from orchestrator.simulation.batching import EngineSpeed
from orchestrator.simulation.play import Engines, play
from orchestrator.simulation.replay import WORLD_MODEL, Predictions, mean_latency_s, plan, playable

_CALL_S = 0.002
"""Of a branch's opening or commit over HTTP on one machine (docs/branches.md)."""
_NOTHING_SAID = Predictions(())
_MOST_SLOWDOWN = 2.0
_HALVINGS = 12


class FitError(ValueError):
    """Rollouts that say too little: one sentence."""


@dataclass(frozen=True)
class Calibration:
    """Rollouts with their trajectories, recorded on the engines that are to be fitted."""

    alone: Sequence[Rollout]
    """One at a time: sequential ones, and ones with the preset `paper`."""
    sequential: Sequence[Rollout]
    """Under load."""
    paper: Sequence[Rollout]
    """Under load, with the preset `paper`."""
    concurrency: int
    """Of the last two, all of which were submitted at once."""


@dataclass(frozen=True)
class _Work:
    """One request that had the engine for itself."""

    read: int
    """Tokens of the prompt that were not cached."""
    generated: int
    seconds: float


@dataclass(frozen=True)
class _Alone:
    """What work takes by itself, in seconds."""

    prefill_s: float
    read_s: float
    """A token."""
    token_s: float

    def speed(self, own: float) -> EngineSpeed:
        """`own`: part of a token's time that is its sequence's own."""
        return EngineSpeed(
            step_s=self.token_s * (1 - own),
            sequence_s=self.token_s * own,
            prefill_s=max(0.0, self.prefill_s - _CALL_S),
            prefill_token_s=self.read_s,
            call_s=min(_CALL_S, self.prefill_s),
        )


def fit(calibration: Calibration) -> Engines:
    """Raises FitError."""
    alone = [rollout for rollout in calibration.alone if playable(rollout)]
    sequential = [r for r in alone if r.mode is SpeculationMode.NEVER]
    policy = _alone([work for r in sequential for work in _actions(r)], "actions")
    world_model = _alone([work for r in alone for work in _predictions(r)], "predictions")
    said = Predictions([*calibration.alone, *calibration.paper])
    excess_sequential = _excess(calibration.sequential, said, calibration.concurrency)
    excess_paper = _excess(calibration.paper, said, calibration.concurrency)

    def engines(own: float, slowdown: float = 0.0) -> Engines:
        return Engines(policy.speed(own), world_model.speed(own), slowdown)

    own = _solve(lambda x: excess_sequential(engines(x)), 0.0, 1.0)
    slowdown = _solve(lambda x: excess_paper(engines(own, x)), 0.0, _MOST_SLOWDOWN)
    return engines(own, slowdown)


def _actions(rollout: Rollout) -> Iterator[_Work]:
    read = _prompt_tokens(rollout)
    for turn, planned in zip(rollout.turns, plan(rollout, _NOTHING_SAID).turns, strict=True):
        yield _Work(read, turn.action_tokens, turn.generation_s)
        read = planned.observation_tokens


def _predictions(rollout: Rollout) -> Iterator[_Work]:
    """The world model's greedy ones, of tools that ran."""
    read = _prompt_tokens(rollout)
    for turn, planned in zip(rollout.turns, plan(rollout, _NOTHING_SAID).turns, strict=True):
        for guess in turn.prediction.guesses if turn.prediction else ():
            if guess.source == f"{WORLD_MODEL}/greedy" and guess.tokens and guess.depth == 1:
                yield _Work(read + turn.action_tokens, guess.tokens, guess.predictor_s)
        read = planned.observation_tokens


def _prompt_tokens(rollout: Rollout) -> int:
    assert rollout.trajectory is not None
    return len(rollout.trajectory.prompt_ids)


def _alone(works: Sequence[_Work], what: str) -> _Alone:
    """By least squares, with no part below 0."""
    if len({work.generated for work in works}) < 2:
        raise FitError(
            f"{len(works)} {what} of rollouts by themselves are too few to fit an engine to: run more"
        )
    known = np.array([[1.0, work.read, work.generated - 1] for work in works])
    seconds = np.array([work.seconds for work in works])
    parts, used = np.zeros(3), [0, 1, 2]
    while used:
        solution = np.linalg.lstsq(known[:, used], seconds, rcond=None)[0]
        if solution.min() >= 0:
            parts[used] = solution
            break
        del used[int(solution.argmin())]
    return _Alone(*(float(part) for part in parts))


def _excess(real: Sequence[Rollout], said: Predictions, concurrency: int) -> Callable[[Engines], float]:
    """How much longer agents take when the same rollouts are simulated, as a fraction."""
    kept = [rollout for rollout in real if playable(rollout)]
    if not kept:
        raise FitError("no rollout of the calibration under load has ended well: look at the engines' logs")
    plans = [plan(rollout, said) for rollout in kept]
    settings = [rollout.speculation for rollout in kept]
    seconds = mean_latency_s(kept)
    return lambda engines: mean_latency_s(play(plans, settings, engines, concurrency).rollouts) / seconds - 1


def _solve(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function is 0, or the end that is nearest to it."""
    if excess(low) >= 0:
        return low
    if excess(high) <= 0:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return (low + high) / 2
