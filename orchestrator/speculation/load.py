"""What the policy's engine has to do for this service, and how fast it is under that.

Seconds a token are modelled as a sum: a base, so much more for each ordinary request, each branch and each
prediction that runs beside it, and a stall for each ordinary request and each branch that begins meanwhile,
since an engine decodes nothing while it reads a prompt. The parts are fitted online to every action that was
generated, each with the mean load it met, by recursive least squares with forgetting.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

_FORGET = 0.99
_FIRST_SHARE = 0.05
"""Of the base, what one request more is taken to cost before anything was measured."""
_SMOOTH = 0.1
_RECENT_S = 2.0
_MOST_STALLED = 0.8
"""Part of the time, at most, that an engine is taken to be stalled."""
PARTS = ("base", "ordinary", "branch", "prediction", "begins", "branch_begins")


@dataclass
class Gauge:
    """A number of things in progress, its integral over time, its recent mean, and how many have begun."""

    value: int = 0
    begun: int = 0
    _area: float = 0.0
    _recent: float = 0.0
    _recently_begun: float = 0.0
    _since: float = 0.0

    def add(self, change: int, now: float, *, begins: bool = True) -> None:
        """`begins`: what comes is new to the engine."""
        self.area(now)
        self.value += change
        if begins and change > 0:
            self.begun += change
            self._recently_begun += change

    def area(self, now: float) -> float:
        passed, self._since = now - self._since, now
        self._area += self.value * passed
        left = math.exp(-passed / _RECENT_S)
        self._recent = self.value + (self._recent - self.value) * left
        self._recently_begun *= left
        return self._area

    def recent(self, now: float) -> float:
        """Mean value, in which what was so many seconds ago counts a factor e less."""
        self.area(now)
        return self._recent

    def rate(self, now: float) -> float:
        """So many have begun a second, lately."""
        self.area(now)
        return self._recently_begun / _RECENT_S


@dataclass
class _Average:
    value: float | None = None

    def add(self, x: float) -> None:
        self.value = x if self.value is None else self.value + _SMOOTH * (x - self.value)


@dataclass
class Measured:
    """Of one action, as it was read."""

    tokens: int = 0
    first_s: float = 0.0

    def read(self, tokens: int, first_s: float) -> None:
        """To the end; `first_s`: seconds to its first token."""
        self.tokens, self.first_s = tokens, first_s


class Load:
    """Of one engine, over all rollouts."""

    def __init__(self) -> None:
        self.rollouts = Gauge()
        """Whose agents run, with speculation or without."""
        self.ordinary = Gauge()
        self.branches = Gauge()
        self.predictions = Gauge()
        self._tokens = _Average()
        self._first = _Average()
        self._fit: _Fit | None = None
        self.opening_s = _Average()
        """To open a branch."""

    @contextmanager
    def counted(self, gauge: Gauge, *, begins: bool = True) -> Iterator[None]:
        """While something that `gauge` counts is in progress."""
        gauge.add(1, _now(), begins=begins)
        try:
            yield
        finally:
            gauge.add(-1, _now())

    def count_branch(self, change: int) -> None:
        """One branch more (1) or less (-1) generates."""
        self.branches.add(change, _now())

    @contextmanager
    def measured(self) -> Iterator[Measured]:
        """While an ordinary action is generated, which is learned from if it is read to its end."""
        self.ordinary.add(1, _now())
        before = self._areas()
        measured = Measured()
        try:
            yield measured
        finally:
            change = self._areas() - before
            self.ordinary.add(-1, _now())
        if measured.tokens:
            self._learn(measured, change)

    def _areas(self) -> np.ndarray:
        now = _now()
        begun = (self.ordinary.begun + self.branches.begun, self.branches.begun)
        return np.array([now, *(gauge.area(now) for gauge in self._gauges), *begun])

    @property
    def _gauges(self) -> tuple[Gauge, Gauge, Gauge]:
        """Of what runs beside an action, in the order of the parts."""
        return self.ordinary, self.branches, self.predictions

    def _added(self, beside: Iterable[float]) -> float:
        """Seconds a token that so many ordinary requests, branches and predictions add."""
        assert self._fit is not None
        return float(sum(part * number for part, number in zip(self._fit.parts[1:4], beside, strict=True)))

    def _learn(self, measured: Measured, change: np.ndarray) -> None:
        seconds = change[0]
        self._tokens.add(measured.tokens)
        self._first.add(measured.first_s)
        if measured.tokens < 2 or seconds <= measured.first_s:
            return
        beside = change[1:] / seconds
        beside[0] -= 1.0
        token_s = (seconds - measured.first_s) / (measured.tokens - 1)
        beside[3:] *= token_s
        self._fit = self._fit or _Fit(token_s, measured.first_s)
        self._fit.learn(np.array([1.0, *beside]), token_s)

    def parts(self) -> dict[str, float]:
        """Seconds a token: the base, and what each request beside it adds; seconds once: what each that
        begins adds. Nothing before it was measured."""
        if self._fit is None:
            return {}
        return dict(zip(PARTS, map(float, self._fit.parts), strict=True))

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self._fit is not None

    def token_s(self) -> float:
        """Expected seconds a token of one more request, beside what runs now."""
        assert self._fit is not None
        decoding_s = self._fit.parts[0] + self._added(gauge.value for gauge in self._gauges)
        return float(decoding_s / (1 - self._stalled()))

    def generation_s(self) -> float:
        """Expected seconds of one more action, beside what runs now."""
        return (self._first.value or 0.0) + (self._tokens.value or 0.0) * self.token_s()

    @property
    def action_tokens(self) -> float:
        """Mean tokens of an action."""
        return self._tokens.value or 0.0

    def taken_by_branch(self) -> float:
        """Seconds that others lose, together, for each second that one more branch runs."""
        assert self._fit is not None
        return float(self._others() * self._fit.parts[2] / self.token_s())

    def taken_by_opening(self, p_hit: float) -> float:
        """Seconds that others lose, together, while the engine reads a branch's prompt, beyond those that
        they would lose to the ordinary request that a hit saves. Requests that come within one token of each
        other are read at once, which a branch is not."""
        assert self._fit is not None
        *_, begins, branch_begins = self._fit.parts
        within = self.ordinary.rate(_now()) * self.token_s()
        alone = -math.expm1(-within) / within if within else 1.0
        return float(self._others() * ((1 - alone * p_hit) * begins + branch_begins))

    def taken_by_prediction(self) -> float:
        """The same for one more prediction."""
        assert self._fit is not None
        return float(self._others() * self._fit.parts[3] / self.token_s())

    def net(self) -> float:
        """What remains of a second saved, in [0, 1]. A rollout that is done sooner comes back sooner, and the
        others lose what it adds to their tokens: in an idle engine all of the second remains, in a full one
        next to nothing, since there only less work saves time."""
        assert self._fit is not None
        base, now, others = self._fit.parts[0], _now(), self._share_of_others()
        added = self._added(gauge.recent(now) for gauge in self._gauges)
        return float((1 - self._stalled(others)) * base / (base + others * added))

    def _stalled(self, share: float = 1.0) -> float:
        """Part of the time in which the engine reads prompts, at that share of the present rate."""
        assert self._fit is not None
        *_, begins, branch_begins = self._fit.parts
        ordinary, branches = self.ordinary.rate(_now()), self.branches.rate(_now())
        stalled = begins * (ordinary + branches) + branch_begins * branches
        return float(min(_MOST_STALLED, share * stalled))

    def _others(self) -> float:
        """Requests and branches of other rollouts that are expected in the time to come: halfway between how
        many there are and how many there were lately."""
        now, gauges = _now(), (self.ordinary, self.branches)
        recent = sum(gauge.recent(now) for gauge in gauges) * self._share_of_others()
        return (sum(gauge.value for gauge in gauges) + recent) / 2

    def _share_of_others(self) -> float:
        """Part of the load that is not a rollout's own."""
        return 1 - 1 / self.rollouts.value if self.rollouts.value else 1.0


class _Fit:
    """Recursive least squares of seconds a token over (1, ordinary, branches, predictions, requests and
    branches that begin a token, branches that do: what these stall beyond a request)."""

    def __init__(self, token_s: float, first_s: float):
        """Of the first action; a prompt is taken to stall others half as long as its own request."""
        scale, stall = max(token_s, 1e-6), max(first_s, 1e-6)
        self._mean = np.array([scale, *[scale * _FIRST_SHARE] * 3, stall / 2, 0.0])
        self.parts = self._mean
        """None is negative; the base is above 0."""
        self._noise = (0.2 * scale) ** 2
        deviations = np.array([0.5 * scale, *[0.1 * scale] * 3, stall / 2, stall / 4])
        self._prior = np.diag(1 / deviations**2)
        self._information = np.zeros((6, 6))
        self._moment = np.zeros(6)

    def learn(self, load: np.ndarray, token_s: float) -> None:
        self._information = _FORGET * self._information + np.outer(load, load) / self._noise
        self._moment = _FORGET * self._moment + load * (token_s / self._noise)
        information = self._information + self._prior
        self.parts = np.maximum(np.linalg.solve(information, self._moment + self._prior @ self._mean), 0.0)
        self.parts[0] = max(self.parts[0], 1e-6)


def _now() -> float:
    return asyncio.get_running_loop().time()
