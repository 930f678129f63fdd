"""What the policy's engine has to do for this service, and how fast it is under that.

Seconds a token are modelled as a sum: a base, so much more for each ordinary request, each branch and each
prediction that runs beside it, and a stall for each ordinary request and each branch that begins meanwhile,
since an engine decodes nothing while it reads a prompt. The parts are fitted online to every action that was
generated, each with the mean load it met, by recursive least squares with forgetting.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

_FORGET = 0.99
_FIRST_SHARE = 0.07
"""Of the base, what one request more is taken to cost before anything was measured."""
_SMOOTH = 0.1
_RECENT_S = 2.0
_MOST_STALLED = 0.8
"""Part of the time, at most, that an engine is taken to be stalled."""
_STALE_S = 0.005
"""A view of the load is good for so long, as long as nothing begins or ends."""
PARTS = ("base", "ordinary", "branch", "prediction", "begins")


@dataclass
class Gauge:
    """A number of things in progress, its integral over time, its recent mean, and how many have begun."""

    value: int = 0
    begun: int = 0
    changes: int = 0
    _area: float = 0.0
    _recent: float = 0.0
    _recently_begun: float = 0.0
    _since: float = 0.0

    def add(self, change: int, now: float, *, begins: bool = True) -> None:
        """`begins`: what comes is new to the engine."""
        self.area(now)
        self.value += change
        self.changes += 1
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
    first_tokens: int = 1

    def read(self, tokens: int, first_s: float, first_tokens: int = 1) -> None:
        """To the end; `first_s`: seconds to its first chunk, of so many tokens."""
        self.tokens, self.first_s, self.first_tokens = tokens, first_s, first_tokens

    def split(self, seconds: float) -> tuple[float, float]:
        """Seconds to the first token and seconds a token after it, of an action that took so long. One that
        came in one chunk says nothing of the first."""
        if self.tokens == self.first_tokens:
            return 0.0, seconds / self.tokens
        token_s = (seconds - self.first_s) / (self.tokens - self.first_tokens)
        return max(0.0, self.first_s - (self.first_tokens - 1) * token_s), token_s


@dataclass(frozen=True)
class _View:
    """Of the load at one moment."""

    taken_s: float
    """When."""
    changes: int
    token_s: float
    others: float
    within_token: float
    """Ordinary requests that begin within a token's time."""
    net: float


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
        self._learned = 0
        self._last: _View | None = None
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
        begun = self.ordinary.begun + self.branches.begun
        return np.array([now, *(gauge.area(now) for gauge in self._gauges), begun])

    @property
    def _gauges(self) -> tuple[Gauge, Gauge, Gauge]:
        """Of what runs beside an action, in the order of the parts."""
        return self.ordinary, self.branches, self.predictions

    def _added(self, ordinary: float, branches: float, predictions: float) -> float:
        """Seconds a token that so many of them add."""
        _, each, each_branch, each_prediction, *_ = self._parts
        return each * ordinary + each_branch * branches + each_prediction * predictions

    def _learn(self, measured: Measured, change: np.ndarray) -> None:
        seconds = change[0]
        self._tokens.add(measured.tokens)
        if measured.tokens < 2 or seconds <= 0.0:
            return
        first_s, token_s = measured.split(seconds)
        self._first.add(first_s)
        beside = change[1:] / seconds
        beside[0] -= 1.0
        beside[3] *= token_s
        self._fit = self._fit or _Fit(token_s, first_s, beside)
        self._fit.learn(np.array([1.0, *beside]), token_s)
        self._learned += 1

    def parts(self) -> dict[str, float]:
        """Seconds a token: the base, and what each request beside it adds; seconds once: what each that
        begins adds. Nothing before it was measured."""
        if self._fit is None:
            return {}
        return dict(zip(PARTS, self._fit.parts, strict=True))

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self._fit is not None

    def token_s(self) -> float:
        """Expected seconds a token of one more request, beside what runs now."""
        return self._view().token_s

    def generation_s(self) -> float:
        """Expected seconds of one more action, beside what runs now."""
        return (self._first.value or 0.0) + (self._tokens.value or 0.0) * self.token_s()

    @property
    def action_tokens(self) -> float:
        """Mean tokens of an action."""
        return self._tokens.value or 0.0

    def others(self) -> float:
        """Requests and branches of other rollouts that are expected in the time to come."""
        return self._view().others

    def taken_by_branch(self) -> float:
        """Seconds that others lose, together, for each second that one more branch runs."""
        view = self._view()
        return view.others * self._parts[2] / view.token_s

    def taken_by_opening(self, p_hit: float) -> float:
        """Seconds that others lose, together, while the engine reads a branch's prompt, beyond those that
        they would lose to the ordinary request that a hit saves. Requests that come within one token of each
        other are read at once, which a branch is not."""
        view = self._view()
        begins = self._parts[4]
        within = view.within_token
        alone = -math.expm1(-within) / within if within else 1.0
        return view.others * (1 - alone * p_hit) * begins

    def taken_by_prediction(self) -> float:
        """The same for one more prediction."""
        view = self._view()
        return view.others * self._parts[3] / view.token_s

    def net(self) -> float:
        """What remains of a second saved, in [0, 1]. A rollout that is done sooner comes back sooner, and the
        others lose what it adds to their tokens: in an idle engine all of the second remains, in a full one
        next to nothing, since there only less work saves time."""
        return self._view().net

    @property
    def _parts(self) -> list[float]:
        assert self._fit is not None
        return self._fit.parts

    def _view(self) -> _View:
        now = _now()
        changes = self._learned + self.rollouts.changes + sum(gauge.changes for gauge in self._gauges)
        last = self._last
        if last is None or last.changes != changes or now - last.taken_s > _STALE_S:
            self._last = last = self._look(now, changes)
        return last

    def _look(self, now: float, changes: int) -> _View:
        base, *_, begins = self._parts
        share = 1 - 1 / self.rollouts.value if self.rollouts.value else 1.0  # of the load: other rollouts'
        values = [gauge.value for gauge in self._gauges]
        recent = [gauge.recent(now) for gauge in self._gauges]
        ordinary = self.ordinary.rate(now)
        stalled = begins * (ordinary + self.branches.rate(now))  # part of the time, lately
        token_s = (base + self._added(*values)) / (1 - min(_MOST_STALLED, stalled))
        # expected in the time to come: halfway between how many there are and how many there were lately
        others = (sum(values[:2]) + share * sum(recent[:2])) / 2
        kept = 1 - min(_MOST_STALLED, share * stalled)
        net = kept * base / (base + share * self._added(*recent))
        return _View(now, changes, token_s, others, ordinary * token_s, net)


class _Fit:
    """Recursive least squares of seconds a token over (1, ordinary, branches, predictions, requests and
    branches that begin a token)."""

    def __init__(self, token_s: float, first_s: float, beside: np.ndarray):
        """Of the first action; every request beside it is taken to have had its share in that, and a prompt
        to stall others half as long as its own request."""
        scale = max(token_s / (1 + _FIRST_SHARE * beside[:3].sum()), 1e-6)
        stall = max(first_s, 1e-6)
        self._mean = np.array([scale, *[scale * _FIRST_SHARE] * 3, stall / 2])
        self.parts: list[float] = self._mean.tolist()
        """None is negative; the base is above 0."""
        self._noise = (0.2 * scale) ** 2
        deviations = np.array([0.5 * scale, *[0.1 * scale] * 3, stall / 2])
        self._prior = np.diag(1 / deviations**2)
        self._information = np.zeros((5, 5))
        self._moment = np.zeros(5)

    def learn(self, load: np.ndarray, token_s: float) -> None:
        self._information = _FORGET * self._information + np.outer(load, load) / self._noise
        self._moment = _FORGET * self._moment + load * (token_s / self._noise)
        information = self._information + self._prior
        parts = np.linalg.solve(information, self._moment + self._prior @ self._mean)
        self.parts = np.maximum(parts, 0.0).tolist()
        self.parts[0] = max(self.parts[0], 1e-6)


def _now() -> float:
    return asyncio.get_running_loop().time()
