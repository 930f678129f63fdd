"""One branch in the front: its state, and the buffer of what was generated on it."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from sglang_ext.states import BranchState, is_open, move


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens as the engine streams them, with log-probabilities (nats) where they were asked for."""

    token_ids: list[int]
    logprobs: list[float] | None
    finish_reason: dict[str, Any] | None
    weight_version: str | None


class GivenUp(Exception):
    """The engine ended the branch before it was complete; says why."""


class Branch:
    """Buffers its tokens whether anyone listens or not; every listener reads at its own pace."""

    def __init__(self, branch_id: str, ids: array[int], parent_length: int, budget: int):
        """`ids`: parent and candidate; `budget`: tokens it may grow to beyond the parent."""
        self.id = branch_id
        self.ids = ids
        self.parent_length = parent_length
        self.state = BranchState.QUEUED
        self.children: list[Branch] = []
        self.token_ids: list[int] = []
        self.logprobs: list[float] | None = None
        self.finish_reason: dict[str, Any] | None = None
        self.weight_version: str | None = None
        self.reason: str | None = None
        """Why it was lost."""
        self.has_kv = True
        """False: a held branch whose KV the engine took back; its tokens are still good."""
        self.reader: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._budget = budget
        self._opened_s = time.monotonic()
        self._finished_s: float | None = None
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Nothing more will be generated."""
        return self.finish_reason is not None or self.state in (
            BranchState.LOST,
            BranchState.DROPPED,
            BranchState.EXPIRED,
        )

    @property
    def run_s(self) -> float | None:
        """Seconds from its opening to the end of its generation; None while it runs."""
        return None if self._finished_s is None else self._finished_s - self._opened_s

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._opened_s

    @property
    def claim(self) -> int:
        """Tokens of KV that it may hold beyond its parent, as the budget counts them."""
        if not (is_open(self.state) and self.has_kv):
            return 0
        if self.finish_reason is None:
            return self._budget
        return len(self.ids) - self.parent_length + len(self.token_ids)

    def move(self, to: BranchState) -> None:
        self.state = move(self.state, to)
        if not is_open(to) and self.timer is not None:
            self.timer.cancel()
        self._notify()

    def add(self, chunk: Chunk) -> None:
        self.token_ids += chunk.token_ids
        if chunk.logprobs is not None:
            self.logprobs = self.logprobs or []
            self.logprobs += chunk.logprobs
        self.weight_version = chunk.weight_version
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
            self._finished_s = time.monotonic()
        if is_open(self.state):
            state = BranchState.RUNNING if chunk.finish_reason is None else BranchState.HELD
            if state is not self.state:
                self.state = move(self.state, state)
        self._notify()

    def fail(self, reason: str) -> None:
        """The engine ended it. What was committed stays committed, and incomplete."""
        self.reason = reason
        if is_open(self.state):
            self.move(BranchState.LOST)
        self._notify()

    async def follow(self, since: int = 0) -> AsyncGenerator[Chunk]:
        """Chunks from token `since` on: buffered ones in one, then live ones. Raises GivenUp."""
        sent = since
        while True:
            changed = self._changed
            if sent < len(self.token_ids) or self.finish_reason is not None:
                yield self.since(sent)
                sent = len(self.token_ids)
            if self.finish_reason is not None:
                return
            if self.reason is not None or self.is_done:
                raise GivenUp(self.reason or f"the branch was {self.state}")
            await changed.wait()

    def since(self, start: int) -> Chunk:
        """What there is from token `start` on."""
        logprobs = None if self.logprobs is None else self.logprobs[start:]
        return Chunk(self.token_ids[start:], logprobs, self.finish_reason, self.weight_version)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
