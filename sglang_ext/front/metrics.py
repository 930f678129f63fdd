"""Prometheus metrics of the front half: `sglext:branch_*`, on SGLang's own /metrics (--enable-metrics)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang_ext.states import BranchState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Metrics:
    """Made after SGLang has chosen where metrics are kept, which is why the import is late."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: None for the process's own."""
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        registry = registry or REGISTRY

        self._opened = Counter("sglext:branch_opened", "Branches opened.", registry=registry)
        self._refused = Counter(
            "sglext:branch_refused", "Openings refused for want of budget.", registry=registry
        )
        self._ended = Counter("sglext:branch_ended", "Branches ended, by how.", ["how"], registry=registry)
        self._reclaimed = Counter(
            "sglext:branch_reclaimed", "Held branches whose KV was taken back.", registry=registry
        )
        self._count = Gauge(
            "sglext:branch_open", "Branches open now.", multiprocess_mode="livesum", registry=registry
        )
        self._tokens = Gauge(
            "sglext:branch_claimed_tokens",
            "Tokens that open branches claim.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._commit_s = Histogram(
            "sglext:branch_commit_seconds",
            "From the commit to its first tokens on the wire.",
            registry=registry,
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
        )

    def watch(self, count: Callable[[], int], tokens: Callable[[], int]) -> None:
        """Where the gauges are read from, at every change."""
        self._read_count, self._read_tokens = count, tokens

    def opened(self, count: int) -> None:
        self._opened.inc(count)
        self._update()

    def refused(self) -> None:
        self._refused.inc()

    def ended(self, how: BranchState) -> None:
        self._ended.labels(how=how).inc()
        self._update()

    def reclaimed(self) -> None:
        self._reclaimed.inc()
        self._update()

    def handed_over(self, seconds: float) -> None:
        self._commit_s.observe(seconds)

    def _update(self) -> None:
        self._count.set(self._read_count())
        self._tokens.set(self._read_tokens())
