"""Figures of speculation over a set of rollouts: the one place where each is defined.

Vocabulary of DESIGN.md: `exact_frac` = hits / predictions that were compared (the tool was not first,
nothing failed), the authors' definition; `hit_frac` = hits / tool calls. A figure over nothing is None.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from orchestrator.schema import Outcome, Rollout, RolloutStatus, Turn

T = TypeVar("T")

_LOST = (RolloutStatus.FAILED, RolloutStatus.CANCELLED)


@dataclass(frozen=True)
class Latency:
    """Seconds."""

    mean: float
    p50: float
    p95: float


@dataclass(frozen=True)
class SpeculationFigures:
    """Over tool calls."""

    tool_calls: int
    outcomes: dict[Outcome, int]
    exact_frac: float | None
    hit_frac: float | None
    exact_frac_nonempty: float | None
    """Without observations that are empty, as is the next."""
    hit_frac_nonempty: float | None
    world_model_s: float | None
    """Mean seconds of a prediction."""
    tool_s: float | None
    """Mean seconds of a tool call, simulated latency included."""
    world_model_over_tool: float | None
    """`world_model_s` / `tool_s` over the calls that have a prediction."""
    overlap_s: float
    """Seconds in all for which branches generated while tools ran."""
    discarded_policy_tokens: int
    discarded_world_model_tokens: int


@dataclass(frozen=True)
class Report:
    """Over rollouts; those that failed or were cancelled count in `failed` alone."""

    rollouts: int
    failed: int
    success_rate: float | None
    """Share of rollouts with reward 1; a rollout without reward is none."""
    reward: float | None
    """Mean reward."""
    turns: float | None
    """Mean turns of a rollout."""
    action_tokens: int
    agent_latency_s: Latency | None
    speculation: SpeculationFigures


def percentile(values: Sequence[float], q: float) -> float:
    """The `q`-quantile by linear interpolation between order statistics."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low, high = math.floor(position), math.ceil(position)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def latency(seconds: Sequence[float]) -> Latency | None:
    if not seconds:
        return None
    return Latency(fmean(seconds), percentile(seconds, 0.5), percentile(seconds, 0.95))


def counts(rollout: Rollout) -> bool:
    """Whether figures are over this rollout: it ended, and neither failed nor was cancelled."""
    return rollout.status.ended and rollout.status not in _LOST


def tool_turns(rollouts: Iterable[Rollout]) -> list[Turn]:
    """Turns whose tool returned."""
    return [turn for rollout in rollouts for turn in rollout.turns if turn.prediction is not None]


def speculation(turns: Sequence[Turn]) -> SpeculationFigures:
    """Figures over turns whose tool returned."""
    predictions = [turn.prediction for turn in turns if turn.prediction is not None]
    pairs = [(p.predictor_s, t.tool_s) for t in turns if (p := t.prediction) and p.predictor_s is not None]
    predicted, ran = mean(a for a, _ in pairs), mean(b for _, b in pairs)
    nonempty = [turn for turn in turns if not turn.observation_empty]
    return SpeculationFigures(
        tool_calls=len(turns),
        outcomes=dict(Counter(p.outcome for p in predictions)),
        exact_frac=exact_frac(turns),
        hit_frac=hit_frac(turns),
        exact_frac_nonempty=exact_frac(nonempty),
        hit_frac_nonempty=hit_frac(nonempty),
        world_model_s=predicted,
        tool_s=mean(turn.tool_s for turn in turns),
        world_model_over_tool=predicted / ran if predicted is not None and ran else None,
        overlap_s=sum(p.overlap_s for p in predictions),
        discarded_policy_tokens=sum(p.discarded_policy_tokens for p in predictions),
        discarded_world_model_tokens=sum(p.discarded_world_model_tokens for p in predictions),
    )


def exact_frac(turns: Iterable[Turn]) -> float | None:
    """Hits / predictions that were compared."""
    return mean(
        p.outcome is Outcome.HIT
        for turn in turns
        if (p := turn.prediction) and p.outcome in (Outcome.HIT, Outcome.MISS)
    )


def hit_frac(turns: Iterable[Turn]) -> float | None:
    """Hits / tool calls, where any was predicted at all."""
    outcomes = [turn.prediction.outcome for turn in turns if turn.prediction]
    if all(outcome is Outcome.NOT_ATTEMPTED for outcome in outcomes):
        return None
    return fmean(outcome is Outcome.HIT for outcome in outcomes)


def report(rollouts: Sequence[Rollout]) -> Report:
    ended = [r for r in rollouts if counts(r)]
    return Report(
        rollouts=len(ended),
        failed=sum(r.status in _LOST for r in rollouts),
        success_rate=mean(r.reward == 1.0 for r in ended),
        reward=mean(r.reward or 0.0 for r in ended),
        turns=mean(len(r.turns) for r in ended),
        action_tokens=sum(r.totals.action_tokens for r in ended),
        agent_latency_s=latency([r.agent_latency_s for r in ended if r.agent_latency_s is not None]),
        speculation=speculation(tool_turns(ended)),
    )


def by_family(rollouts: Iterable[Rollout]) -> dict[str, Report]:
    return {family: report(group) for family, group in _grouped(rollouts, lambda r: r.family).items()}


def by_command_kind(rollouts: Iterable[Rollout]) -> dict[str, SpeculationFigures]:
    """By the first word of the command, the most frequent first."""
    turns = tool_turns(filter(counts, rollouts))
    groups = _grouped(turns, lambda turn: turn.tool_call.kind if turn.tool_call else "")
    return {
        kind: speculation(turns) for kind, turns in sorted(groups.items(), key=lambda item: -len(item[1]))
    }


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(sorted(groups.items()))
