"""Timed spans of one rollout, on the event loop's clock, in seconds since the rollout's start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.schema import Span, SpanKind

Attributes = dict[str, bool | int | float | str]


class Spans:
    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._origin = self._clock()
        self._spans: list[Span] = []

    def now(self) -> float:
        """Seconds since the rollout's start."""
        return self._clock() - self._origin

    def since_start(self, loop_time: float) -> float:
        """A time of the event loop, in seconds since the rollout's start."""
        return loop_time - self._origin

    def add(
        self,
        kind: SpanKind,
        start_s: float,
        end_s: float,
        turn: int | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Record a span whose times are known."""
        span = Span(kind=kind, start_s=start_s, end_s=end_s, turn=turn, attributes=attributes or {})
        self._spans.append(span)

    @contextmanager
    def measure(self, kind: SpanKind, turn: int | None = None) -> Iterator[Attributes]:
        """Record the time in the block, whatever ends it; yields attributes to fill in."""
        start = self.now()
        attributes: Attributes = {}
        try:
            yield attributes
        finally:
            self.add(kind, start, self.now(), turn, attributes)

    def in_order(self) -> list[Span]:
        return sorted(self._spans, key=lambda span: (span.start_s, span.end_s))
