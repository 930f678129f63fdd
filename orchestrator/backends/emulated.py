"""Branches for engines that have none: an ordinary request that this process buffers, and an abort.

A branch ends exactly once, committed or dropped; `BranchPool` knows every branch that has not ended. A
committed branch is from then on an ordinary request of whoever reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from enum import StrEnum

from orchestrator.backends.base import BranchEnded, Chunk


class BranchState(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    DROPPED = "dropped"
    LOST = "lost"


_MOVES: dict[BranchState, frozenset[BranchState]] = {
    BranchState.OPEN: frozenset({BranchState.COMMITTED, BranchState.DROPPED, BranchState.LOST}),
    BranchState.COMMITTED: frozenset(),
    BranchState.DROPPED: frozenset(),
    # Its owner still ends it, to be told how many tokens were lost.
    BranchState.LOST: frozenset({BranchState.DROPPED}),
}


class EmulatedBranch:
    """Reads `chunks` to the end in a task of its own, whether anyone listens or not."""

    def __init__(self, pool: BranchPool, chunks: AsyncGenerator[Chunk]):
        self.state = BranchState.OPEN
        self.finished_at: float | None = None
        self._pool = pool
        self._tokens = 0
        self._arrived: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read(chunks), name="branch")

    def commit(self) -> AsyncGenerator[Chunk]:
        self._move(BranchState.COMMITTED)
        self._pool.discard(self)
        return self._stream()

    def drop(self) -> Awaitable[int]:
        self._move(BranchState.DROPPED)
        self._pool.discard(self)
        self._reader.cancel()
        return self._discarded()

    async def lose(self) -> None:
        """End it on the engine's behalf; its owner learns at commit or drop."""
        self._move(BranchState.LOST)
        self._pool.discard(self)
        await self._end()

    async def _discarded(self) -> int:
        await asyncio.wait({self._reader})
        return self._tokens

    def _move(self, to: BranchState) -> None:
        if to not in _MOVES[self.state]:
            raise BranchEnded(f"a {self.state} branch cannot be {to}: a branch ends once")
        self.state = to

    async def _read(self, chunks: AsyncGenerator[Chunk]) -> None:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._tokens += len(chunk.token_ids)
                    self._arrived.put_nowait(chunk)
        except Exception as error:  # whatever it is, it belongs to whoever commits
            self._arrived.put_nowait(error)
        finally:
            self.finished_at = asyncio.get_running_loop().time()
            self._arrived.put_nowait(None)

    async def _stream(self) -> AsyncGenerator[Chunk]:
        try:
            while (item := await self._arrived.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            await self._end()

    async def _end(self) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})


class BranchPool:
    """The branches of one engine that have not ended."""

    def __init__(self) -> None:
        self._branches: set[EmulatedBranch] = set()

    def __len__(self) -> int:
        return len(self._branches)

    def open(self, chunks: AsyncGenerator[Chunk]) -> EmulatedBranch:
        branch = EmulatedBranch(self, chunks)
        self._branches.add(branch)
        return branch

    def discard(self, branch: EmulatedBranch) -> None:
        self._branches.discard(branch)

    async def lose_all(self) -> None:
        """No branch survives a weight update or the end of the engine; none is open when this returns."""
        while self._branches:
            await next(iter(self._branches)).lose()
