"""The branches of one engine: opened within a budget, ended exactly once, whatever fails.

A branch that nobody commits or drops expires. A branch whose parent branch ends other than by a commit
is dropped with it. New weights, a flush, a pause or an abort of everything end all of them, and none is
opened meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from sglang_ext.compat.engines import RESERVED
from sglang_ext.front.branch import Branch, Chunk
from sglang_ext.front.errors import Refusal
from sglang_ext.front.metrics import Metrics
from sglang_ext.front.settings import Settings
from sglang_ext.messages import Commit, Drop, Dropped, Hello, Lost, Open, Reclaimed, Release
from sglang_ext.states import BranchState, is_open

_REMEMBERED = 10_000
_HELLO_S = 10.0


class Server(Protocol):
    """What the front asks of the server it lives in."""

    def generate(
        self,
        branch_id: str,
        ids: Sequence[int],
        sampling_params: dict[str, Any],
        extra_key: str | None,
        return_logprob: bool,
    ) -> AsyncGenerator[Chunk]: ...

    def check(self, longest: int, ids: Iterable[int], sampling_params: dict[str, Any]) -> None:
        """Raises ValueError, in one sentence, for what the engine would refuse."""

    def listen(self) -> None:
        """Read what the scheduler says, from now on."""

    def send(self, message: Open | Commit | Release | Drop) -> None:
        """Tell the scheduler."""

    def abort(self, branch_id: str) -> None:
        """End the request of a committed branch."""

    def forget(self, branch_id: str) -> None:
        """Clean up after a request that may never have reached the scheduler."""

    def unavailable(self) -> str | None:
        """Why nothing can be generated now; None: it can."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    parent: array[int]
    parent_branch: Branch | None
    candidates: tuple[array[int], ...]
    sampling_params: dict[str, Any]
    ttl_s: float
    extra_key: str | None
    return_logprob: bool


class Branches:
    def __init__(self, server: Server, settings: Settings, metrics: Metrics, reason: str | None = None):
        """`reason`: why this engine cannot hold branches, where that is known before it is asked."""
        self.epoch = secrets.token_hex(4)
        self.reason = reason
        self.capacity = 0
        self._server = server
        self._settings = settings
        self._metrics = metrics
        self._open: dict[str, Branch] = {}
        self._committed: dict[str, Branch] = {}
        self._ended: dict[str, BranchState] = {}
        self._closed: list[str] = []
        self._sequence = itertools.count()
        self._dropping: dict[int, asyncio.Future[Dropped]] = {}
        self._hello = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        metrics.watch(lambda: len(self._open), lambda: self.claimed)

    # What there is

    async def ready(self) -> None:
        """Wait for the scheduler half. Raises Refusal where the engine cannot hold branches."""
        if self.reason is None:
            self._server.listen()
            try:
                async with asyncio.timeout(_HELLO_S):
                    await self._hello.wait()
            except TimeoutError:
                raise Refusal(
                    501, "unsupported", "the scheduler did not load the plugin, or still starts"
                ) from None
        if self.reason is not None:
            raise Refusal(501, "unsupported", f"this engine cannot hold branches: {self.reason}")

    @property
    def claimed(self) -> int:
        """Tokens of the budget that open branches claim."""
        return sum(branch.claim for branch in self._open.values())

    @property
    def budget(self) -> int:
        return self._settings.budget_tokens(self.capacity)

    def all(self) -> list[Branch]:
        return list(self._open.values())

    def get(self, branch_id: str) -> Branch:
        """An open branch, or a committed one that is still generating. Raises Refusal (404, 409, 410)."""
        branch = self._open.get(branch_id) or self._committed.get(branch_id)
        if branch is not None:
            return branch
        if branch_id in self._ended:
            raise _ended(self._ended[branch_id])
        if branch_id.startswith(RESERVED) and not branch_id.startswith(f"{RESERVED}{self.epoch}-"):
            raise Refusal(410, "restarted", "the engine has restarted since the branch was opened")
        raise Refusal(404, "unknown", f"there is no branch {branch_id!r}")

    def get_open(self, branch_id: str) -> Branch:
        branch = self.get(branch_id)
        if not is_open(branch.state):
            raise _ended(branch.state)
        return branch

    # A life

    async def open(self, request: OpenRequest) -> list[Branch]:
        """One branch for each candidate. Raises Refusal (400, 429, 501, 503)."""
        await self.ready()
        if why := (self._closed[-1] if self._closed else self._server.unavailable()):
            raise Refusal(503, "unavailable", f"no branch can be opened now: {why}")
        new_tokens = request.sampling_params.get("max_new_tokens")
        if not isinstance(new_tokens, int) or new_tokens < 1:
            raise Refusal(400, "invalid", "sampling_params needs max_new_tokens, a whole number above 0")
        longest = len(request.parent) + max(map(len, request.candidates))
        try:
            ids = itertools.chain(request.parent, *request.candidates)
            self._server.check(longest, ids, request.sampling_params)
        except (TypeError, ValueError) as error:
            raise Refusal(400, "invalid", str(error)) from None
        claim = sum(map(len, request.candidates)) + new_tokens * len(request.candidates)
        if (claimed := self.claimed) + claim > self.budget:
            self._metrics.refused()
            raise Refusal(
                429,
                "over_budget",
                f"open branches claim {claimed} of {self.budget} tokens and these ask for {claim} more",
            )
        branches = [self._new(request, candidate, new_tokens) for candidate in request.candidates]
        ids_of = tuple(branch.id for branch in branches)
        on_branch = request.parent_branch is not None
        self._server.send(Open(ids_of, request.parent, request.candidates, request.extra_key, on_branch))
        loop = asyncio.get_running_loop()
        for branch in branches:
            self._open[branch.id] = branch
            if request.parent_branch is not None:
                request.parent_branch.children.append(branch)
            branch.timer = loop.call_later(min(request.ttl_s, self._settings.max_ttl_s), self._expire, branch)
            branch.reader = self._own(self._read(branch, request))
        self._metrics.opened(len(branches))
        return branches

    def commit(self, branch: Branch) -> None:
        """From now on an ordinary request; what it has and will generate is in its buffer."""
        self._end(branch, BranchState.COMMITTED)
        self._server.send(Commit(branch.id))
        if branch.finish_reason is None:
            self._committed[branch.id] = branch
        else:
            self._release_later(branch)

    def abandon(self, branch: Branch) -> None:
        """Whoever read a committed branch has left: what it still generates is of no use."""
        if branch.state is BranchState.COMMITTED and not branch.is_done:
            self._server.abort(branch.id)

    def drop(self, *branches: Branch, to: BranchState = BranchState.DROPPED) -> Coroutine[Any, Any, Dropped]:
        """End open branches, and those opened on them, children first: at the call itself.

        Awaited, it returns when what they held is free.
        """
        family = list(_descendants(branches))
        for branch in family:
            self._end(branch, to)
        return self._free(family, tuple(branch.id for branch in family))

    async def end_all(self, to: BranchState, reason: str) -> tuple[int, Dropped | None]:
        """End every open branch, and every grace hold; how many, and what was freed."""
        if not self._hello.is_set() or self.reason is not None:
            return 0, None
        branches = self.all()
        for branch in branches:
            branch.reason = reason if to is BranchState.LOST else None
            self._end(branch, to)
        return len(branches), await self._free(branches, None)

    @asynccontextmanager
    async def closed(self, reason: str) -> AsyncIterator[None]:
        """While this lasts there is no branch, and none is opened."""
        self._closed.append(reason)
        try:
            await self.end_all(BranchState.LOST, reason)
            yield
        finally:
            self._closed.remove(reason)

    # What the scheduler says

    def on_hello(self, message: Hello) -> None:
        self.reason, self.capacity = message.reason, message.capacity
        self._hello.set()

    def on_dropped(self, message: Dropped) -> None:
        future = self._dropping.pop(message.sequence, None)
        if future is not None and not future.done():
            future.set_result(message)

    def on_lost(self, message: Lost) -> None:
        for branch_id in message.branch_ids:
            if (branch := self._open.get(branch_id)) is not None:
                branch.reason = message.reason
                self._end(branch, BranchState.LOST)
            elif (branch := self._committed.get(branch_id)) is not None:
                branch.fail(message.reason)
                self._leave(branch)

    def on_reclaimed(self, message: Reclaimed) -> None:
        for branch_id in message.branch_ids:
            if (branch := self._open.get(branch_id)) is not None:
                branch.has_kv = False
                self._metrics.reclaimed()

    # Inside

    def _new(self, request: OpenRequest, candidate: array[int], new_tokens: int) -> Branch:
        branch_id = f"{RESERVED}{self.epoch}-{secrets.token_hex(8)}"
        budget = len(candidate) + new_tokens
        return Branch(branch_id, request.parent + candidate, len(request.parent), budget)

    async def _read(self, branch: Branch, request: OpenRequest) -> None:
        """Fill its buffer until the engine has finished or ended it."""
        try:
            chunks = self._server.generate(
                branch.id, branch.ids, request.sampling_params, request.extra_key, request.return_logprob
            )
            async for chunk in chunks:
                branch.add(chunk)
        except asyncio.CancelledError:
            self._server.forget(branch.id)
            raise
        except Exception as error:
            was_open = is_open(branch.state)
            branch.fail(str(error) or type(error).__name__)
            if was_open:
                self._leave(branch)
                self._metrics.ended(BranchState.LOST)
                self._server.send(Drop(next(self._sequence), (branch.id,)))
        if self._committed.pop(branch.id, None) is not None:
            self._release_later(branch)

    def _release_later(self, branch: Branch) -> None:
        release = Release(branch.id)
        asyncio.get_running_loop().call_later(self._settings.grace_s, self._server.send, release)

    def _expire(self, branch: Branch) -> None:
        self._own(self.drop(branch, to=BranchState.EXPIRED))

    def _end(self, branch: Branch, to: BranchState) -> None:
        branch.move(to)
        self._leave(branch)
        self._metrics.ended(to)

    def _leave(self, branch: Branch) -> None:
        self._open.pop(branch.id, None)
        self._committed.pop(branch.id, None)
        self._ended[branch.id] = branch.state
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def _free(self, branches: Iterable[Branch], branch_ids: tuple[str, ...] | None) -> Dropped:
        sequence = next(self._sequence)
        self._dropping[sequence] = future = asyncio.get_running_loop().create_future()
        self._server.send(Drop(sequence, branch_ids))
        dropped = await future
        for branch in branches:  # those whose request never got as far as the scheduler
            if branch.reader is not None:
                branch.reader.cancel()
        return dropped

    def _own(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _descendants(branches: Iterable[Branch]) -> Iterator[Branch]:
    """Open ones among the branches and all that was opened on them, children first."""
    for branch in branches:
        yield from _descendants(branch.children)
        if is_open(branch.state):
            yield branch


def _ended(state: BranchState) -> Refusal:
    return Refusal(409, state, f"the branch has ended: it was {state}")
