"""Who yields to whom: ordinary requests come first, always.

Branches are queued behind them, reserve no KV for what they will generate, never share their prefill,
and are given up for them, the last opened first: grace holds, then held branches, then running ones,
then those in the queue or in prefill. All of it depends on the scheduler's state and the order of
opening alone, so that the ranks of one tensor-parallel group decide alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_ext.scheduler.table import Entry, Table
from sglang_ext.states import BranchState

KV = "the engine needed its KV cache for ordinary requests"
SLOT = "the engine needed its place for ordinary requests"


class Pressure:
    """What the scheduler does to branches when it runs short."""

    def __init__(self, table: Table, is_running: Callable[[Any], bool], is_queued: Callable[[Any], bool]):
        """`is_running`, `is_queued`: where a branch's request is, as the scheduler sees it."""
        self._table = table
        self._is_running = is_running
        self._is_queued = is_queued

    def free_idle_kv(self) -> bool:
        """Free KV that no running request uses; False: no branch holds any."""
        return self._table.unpin() or self._table.reclaim() or self._give_up(self._is_queued, KV)

    def free_kv(self) -> bool:
        """Free any KV of branches; False: there is none left."""
        return (
            self._table.unpin()
            or self._table.reclaim()
            or self._give_up(self._is_running, KV)
            or self._give_up(self._is_queued, KV)  # it locks what is cached of its parent
        )

    def free_slot(self) -> bool:
        """End the newest running branch; False: none runs."""
        return self._give_up(self._is_running, SLOT)

    def free_place(self) -> bool:
        """End the newest queued branch; False: none is queued."""
        return self._give_up(self._is_queued, SLOT)

    def yield_prefill(self, request: Any) -> None:
        """End the branch whose prompt is being prefilled in chunks, if `request` is one's."""
        entry = self._table[request.rid]
        if entry is not None and entry.state is BranchState.QUEUED:
            self._table.give_up(entry, SLOT)

    def _give_up(self, where: Callable[[Any], bool], reason: str) -> bool:
        entry = next((e for e in self._table.newest(BranchState.QUEUED) if _has(e, where)), None)
        if entry is not None:
            self._table.give_up(entry, reason)
        return entry is not None


def _has(entry: Entry, where: Callable[[Any], bool]) -> bool:
    return entry.request is not None and where(entry.request)
