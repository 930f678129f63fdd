"""Recorded rollouts as plans: the same actions, tools and predictions, to be played on simulated engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.report import counts, tool_turns
from orchestrator.schema import Guess, Rollout, Segment, SegmentKind, Span, SpanKind, Turn
from orchestrator.simulation.plan import Foretold, Plan, PlannedTurn
from orchestrator.simulation.play import Engines, play

WORLD_MODEL = "world_model"
_UNKNOWN = "an observation that was not predicted in time\n(exit_code=0)"
_LEAST_CONFIDENCE = 1e-6
_TOKENS = 30
"""Of a prediction, where none was recorded at all."""

_Key = tuple[str, int, int, str]
"""Task, seed, turn, command."""


class Predictions:
    """What the world model said in recorded rollouts, by the tool call that it was said of."""

    def __init__(self, rollouts: Iterable[Rollout]):
        self._said: dict[_Key, list[Guess]] = {}
        for rollout in rollouts:
            for each in tool_turns([rollout]):
                guesses = [g for g in each.prediction.guesses if g.predictor == WORLD_MODEL]
                known = self._said.setdefault(_key(rollout, each.turn), [])
                known += [g for g in guesses if g.text not in {k.text for k in known}]
        tokens = [guess.tokens for guesses in self._said.values() for guess in guesses if guess.tokens]
        self._tokens = round(fmean(tokens)) if tokens else _TOKENS

    def of(self, rollout: Rollout, turn: Turn) -> tuple[Foretold, ...]:
        """The greedy answer first; what was never recorded is taken to be wrong, and of usual length."""
        said = sorted(
            self._said.get(_key(rollout, turn), []), key=lambda guess: not guess.source.endswith("/greedy")
        )
        if not said:
            return (Foretold(_UNKNOWN, self._tokens, _LEAST_CONFIDENCE),)
        return tuple(
            Foretold(g.text, max(1, g.tokens), max(_LEAST_CONFIDENCE, min(1.0, g.confidence))) for g in said
        )


@dataclass(frozen=True)
class Compared:
    """Mean agent latency of the same rollouts, in seconds."""

    rollouts: int
    real_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Relative; positive where the simulated ones take longer."""
        return self.simulated_s / self.real_s - 1


def compare(
    real: Mapping[str, Sequence[Rollout]], engines: Engines, concurrency: int, wave: int
) -> dict[str, Compared]:
    """The rollouts of each name, with their trajectories, again on simulated engines.

    Those of a name learned from one another alone, began `wave` at a time, and ran `concurrency` at once.
    """
    said = Predictions(rollout for rollouts in real.values() for rollout in rollouts)
    found = {}
    for name, rollouts in real.items():
        kept = [rollout for rollout in rollouts if playable(rollout)]
        settings = [rollout.speculation for rollout in kept]
        played = play([plan(r, said) for r in kept], settings, engines, concurrency, wave=wave)
        found[name] = Compared(len(kept), mean_latency_s(kept), mean_latency_s(played.rollouts))
    return found


def playable(rollout: Rollout) -> bool:
    """Whether figures are over it, and no limit cut it off in a tool, whose time would be unknown."""
    last = rollout.turns[-1] if rollout.turns else None
    return counts(rollout) and (last is None or not _runs(last) or last.observation is not None)


def mean_latency_s(rollouts: Iterable[Rollout]) -> float:
    """Of agents, in seconds."""
    return fmean(rollout.agent_latency_s or 0.0 for rollout in rollouts)


def plan(rollout: Rollout, predictions: Predictions) -> Plan:
    """One rollout that has ended, of any mode, with its trajectory."""
    assert rollout.trajectory is not None, "the rollout was recorded without its trajectory"
    segments = iter(rollout.trajectory.segments)
    return Plan(
        task=rollout.task,
        seed=rollout.seed,
        prompt_tokens=len(rollout.trajectory.prompt_ids),
        turns=tuple(_turn(rollout, turn, segments, predictions) for turn in rollout.turns),
        start_s=_seconds(rollout.spans, SpanKind.SANDBOX),
        verify_s=_seconds(rollout.spans, SpanKind.VERIFY),
    )


def _turn(rollout: Rollout, turn: Turn, segments: Iterable[Segment], predictions: Predictions) -> PlannedTurn:
    call = turn.tool_call
    if call is None or not _runs(turn):
        return PlannedTurn(turn.text, turn.action_tokens)
    assert turn.observation is not None, "the rollout was cut off in a tool"
    observed = next(segment for segment in segments if segment.kind is SegmentKind.OBSERVATION)
    return PlannedTurn(
        action=turn.text,
        action_tokens=turn.action_tokens,
        command=call.command,
        observation=turn.observation,
        observation_tokens=sum(observed.world_model_mask),
        tool_s=turn.tool_s,
        foretold=predictions.of(rollout, turn),
    )


def _runs(turn: Turn) -> bool:
    """Whether it runs a command."""
    return turn.tool_call is not None and turn.tool_call.command is not None


def _key(rollout: Rollout, turn: Turn) -> _Key:
    assert turn.tool_call is not None
    return rollout.task, rollout.seed, turn.index, turn.tool_call.command or ""


def _seconds(spans: Sequence[Span], kind: SpanKind) -> float:
    return sum(span.end_s - span.start_s for span in spans if span.kind is kind)
