"""How far predictions hold: the probability that one is exact, learned from what came of earlier ones.

A prediction's own confidence falls into a bin; each bin of each source counts hits, and so does each bin
for each kind of command. A bin with few counts leans on the next coarser estimate, and the coarsest on the
confidence itself, as far as the source was to be trusted so far.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FORGET = 0.995
"""Weight of a count after each further one: policies and worlds change."""
_ENOUGH = 8.0
_KEYS = 10_000
_PRIOR = 2.0
"""Counts that the coarser estimate is worth."""
_EDGES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
_SOURCE_PRIOR = 4.0
"""The same where nothing coarser was measured: a source that is refused for a few early failures is hardly
ever asked again, and so never known better."""
_FIRST_RATE = 0.5
_FIRST_SAMPLED_RATE = 0.1


@dataclass
class _Rate:
    hits: float = 0.0
    count: float = 0.0

    def add(self, hit: bool) -> None:
        self.hits = self.hits * _FORGET + hit
        self.count = self.count * _FORGET + 1

    def estimate(self, prior: float, worth: float = _PRIOR) -> float:
        """`worth`: counts that the prior is worth."""
        return (self.hits + worth * prior) / (self.count + worth)


@dataclass
class _Trust:
    """How many times more often a source is right than it believes, over all its confidences."""

    hits: float = 0.0
    believed: float = 0.0

    def add(self, confidence: float, hit: bool) -> None:
        self.hits = self.hits * _FORGET + hit
        self.believed = self.believed * _FORGET + confidence

    def factor(self) -> float:
        return (self.hits + 1) / (self.believed + 1)


class _Rates(Generic[K]):
    """By key; those not learned for longest are forgotten first."""

    def __init__(self) -> None:
        self._rates: OrderedDict[K, _Rate] = OrderedDict()

    def __getitem__(self, key: K) -> _Rate:
        return self._rates.get(key) or _Rate()

    def __len__(self) -> int:
        return len(self._rates)

    def add(self, key: K, hit: bool) -> None:
        self._rates.setdefault(key, _Rate()).add(hit)
        self._rates.move_to_end(key)
        if len(self._rates) > _KEYS:
            self._rates.popitem(last=False)


@dataclass
class Reliability:
    """How well probabilities did, each scored before it was learned from."""

    squares: float = 0.0
    count: int = 0

    def add(self, p: float, hit: bool) -> None:
        self.squares += (p - hit) ** 2
        self.count += 1

    @property
    def brier(self) -> float | None:
        """Mean squared error, in [0, 1]; None where nothing was scored."""
        return self.squares / self.count if self.count else None


class Calibration:
    def __init__(self) -> None:
        self.reliability = Reliability()
        self._trust: defaultdict[str, _Trust] = defaultdict(_Trust)
        self._answers: _Rates[tuple[str, int]] = _Rates()
        self._answers_by_kind: _Rates[tuple[str, int, str]] = _Rates()
        self._sources: _Rates[str] = _Rates()
        self._sources_by_kind: _Rates[tuple[str, str]] = _Rates()

    def p_hit(self, source: str, confidence: float, kind: str) -> float:
        """Probability that a prediction with that confidence is exact, for that kind of command."""
        level = _bin(confidence)
        expected = min(1.0, confidence * self._trust[source].factor())
        overall = self._answers[source, level].estimate(expected)
        return self._answers_by_kind[source, level, kind].estimate(overall)

    def is_known(self, source: str, confidence: float) -> bool:
        """Whether predictions with that confidence were seen often enough to judge by them."""
        return self._answers[source, _bin(confidence)].count >= _ENOUGH

    def p_source(self, source: str, kind: str) -> float:
        """Probability that the source, asked about that kind, is exact where no guess before it is."""
        first = _FIRST_SAMPLED_RATE if source.endswith("/sampled") else _FIRST_RATE
        return self._sources_by_kind[source, kind].estimate(
            self._sources[source].estimate(first, _SOURCE_PRIOR)
        )

    def learn(self, source: str, confidence: float, kind: str, p_said: float, hit: bool) -> None:
        """What came of a prediction for which `p_said` was the probability at the time."""
        self.reliability.add(p_said, hit)
        level = _bin(confidence)
        self._trust[source].add(confidence, hit)
        self._answers.add((source, level), hit)
        self._answers_by_kind.add((source, level, kind), hit)

    def learn_source(self, source: str, kind: str, exact: bool) -> None:
        """Whether an answer of that source was exact, where no guess before it was."""
        self._sources.add(source, exact)
        self._sources_by_kind.add((source, kind), exact)


def _bin(confidence: float) -> int:
    assert not math.isnan(confidence)
    return sum(confidence >= edge for edge in _EDGES)
