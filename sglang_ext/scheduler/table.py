"""The branches of one scheduler, and what each holds in the radix cache.

Between its opening and its end a branch holds one lock: on its cached prefix while its request is
unfinished, on its whole path once it has finished. Every end gives the lock back and frees what the
branch alone put into the cache; what was cached when it was opened, and its parent's tokens, stay.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from sglang_ext.compat.tree import Path, Tree
from sglang_ext.messages import Commit, Drop, Dropped, Lost, Open, Reclaimed, Release
from sglang_ext.states import BranchState, is_open, move


class Engine(Protocol):
    """What the table asks of the scheduler it lives in."""

    def end(self, request: Any, reason: str) -> bool:
        """End an unfinished request wherever it is.

        True: it is gone, and had no KV of its own; False: its KV is released, now or within a step.
        """

    def made_room(self) -> None:
        """Something was given back: whoever waits may be admitted now."""

    def send(self, message: Dropped | Lost | Reclaimed) -> None:
        """Tell the front."""


@dataclass(slots=True)
class Entry:
    branch_id: str
    path: Path
    """What is locked."""
    keep: int
    """Tokens from the root that stay when the branch is dropped."""
    extra_key: str | None
    state: BranchState = BranchState.QUEUED
    """QUEUED as long as its request is unfinished: where that is, the scheduler's own queues say."""
    request: Any = None
    """The engine's request, from its arrival to its release."""


@dataclass(slots=True)
class _Reply:
    sequence: int
    waiting: set[str] = field(default_factory=set)
    freed: int = 0


class Table:
    """All of them, in the order of opening."""

    def __init__(self, tree: Tree, engine: Engine):
        self._tree = tree
        self._engine = engine
        self._entries: dict[str, Entry] = {}
        self._replies: list[_Reply] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, branch_id: str) -> Entry | None:
        return self._entries.get(branch_id)

    def newest(self, *states: BranchState) -> Iterator[Entry]:
        """Entries in one of these states, the last opened first."""
        return (entry for entry in reversed(self._entries.values()) if entry.state in states)

    def is_speculative(self, branch_id: str) -> bool:
        """Whether that request is a branch's, and the branch not committed."""
        entry = self._entries.get(branch_id)
        return entry is not None and entry.state is not BranchState.COMMITTED

    # What the front asks

    def open(self, message: Open) -> None:
        """Lock what is cached of each sibling before any of them runs."""
        for branch_id, candidate in zip(message.branch_ids, message.candidates, strict=True):
            path = self._tree.match(message.parent + candidate, message.extra_key)
            self._tree.lock(path.node)
            keep = path.length if message.on_branch else max(path.length, len(message.parent))
            self._entries[branch_id] = Entry(branch_id, path, keep, message.extra_key)

    def commit(self, message: Commit) -> None:
        """An ordinary request from now on; one that has finished stays locked until `release`."""
        if (entry := self._entries.get(message.branch_id)) and is_open(entry.state):
            entry.state = move(entry.state, BranchState.COMMITTED)

    def release(self, message: Release) -> None:
        """End the grace hold of a committed branch."""
        if (entry := self._entries.get(message.branch_id)) and self._is_pinned(entry):
            self._forget(entry)

    def drop(self, message: Drop) -> None:
        """End branches and free what they hold; Dropped is sent when the last of it is free."""
        reply = _Reply(message.sequence)
        self._replies.append(reply)
        everything = message.branch_ids is None
        chosen = tuple(self._entries) if message.branch_ids is None else message.branch_ids
        for branch_id in chosen:
            entry = self._entries.get(branch_id)
            if entry is None:
                continue
            if everything and self._is_pinned(entry):
                self._forget(entry)
            elif is_open(entry.state):
                reply.waiting.add(branch_id)
                self._end(entry, BranchState.DROPPED, "dropped")
        self.reply()

    def reply(self) -> None:
        """Answer the drops whose branches are all free by now."""
        for reply in [reply for reply in self._replies if not reply.waiting]:
            self._replies.remove(reply)
            self._engine.send(Dropped(reply.sequence, reply.freed, *self._tree.sizes()))

    # What happens in the engine

    def arrived(self, branch_id: str, request: Any) -> None:
        """The request of a branch was queued, for the first time or after a retraction."""
        entry = self._entries.get(branch_id)
        if entry is None:
            self._engine.end(request, "the branch has ended before its request arrived")
        else:
            entry.request = request

    def released(
        self, entry: Entry, ids: array[int] | None, cached: Path, release: Callable[[bool], None]
    ) -> None:
        """The engine gives back the KV of a branch's request, by `release(insert into the cache)`.

        `ids`: the tokens with KV where the request came to its end, None where it was ended;
        `cached`: the part of it that is in the cache already.
        """
        if ids is not None and entry.state in (BranchState.QUEUED, BranchState.COMMITTED):
            known = self._tree.match(ids, entry.extra_key).length
            if known > cached.length:  # others have generated the same, and keep it
                entry.keep = max(entry.keep, known)
            release(True)
            self._hold(entry, ids)
        else:
            release(False)
            if entry.state is BranchState.QUEUED:  # aborted by the engine or from outside
                entry.state = move(entry.state, BranchState.LOST)
                self._engine.send(Lost((entry.branch_id,), "its request was aborted"))
            committed = entry.state is BranchState.COMMITTED
            self._forget(entry, None if committed else cached)

    def _hold(self, entry: Entry, ids: array[int]) -> None:
        path = self._tree.match(ids, entry.extra_key)
        self._tree.lock(path.node)
        self._tree.unlock(entry.path.node)
        entry.path, entry.request = path, None
        if entry.state is not BranchState.COMMITTED:
            entry.state = move(entry.state, BranchState.HELD)

    def extended(self, node: Any) -> None:
        """An ordinary request runs on the prefix that ends at `node`: the next turn has arrived."""
        for entry in [entry for entry in self._entries.values() if self._is_pinned(entry)]:
            if self._tree.is_above(entry.path.node, node):
                self._forget(entry)

    def sweep(self, alive: Callable[[Any], bool]) -> None:
        """Forget branches whose request the engine has ended without a release: out of the queue, or full."""
        for entry in list(self._entries.values()):
            if entry.request is not None and not alive(entry.request):
                if is_open(entry.state):
                    entry.state = move(entry.state, BranchState.LOST)
                    self._engine.send(Lost((entry.branch_id,), "the engine ended its request"))
                self._forget(entry)

    # What pressure takes

    def unpin(self) -> bool:
        """End the newest grace hold; False: there is none."""
        entry = next(filter(self._is_pinned, reversed(self._entries.values())), None)
        if entry is not None:
            self._forget(entry)
        return entry is not None

    def reclaim(self) -> bool:
        """Free the KV of the newest held branch, whose tokens stay good; False: there is none."""
        entry = next(self.newest(BranchState.HELD), None)
        if entry is not None:
            entry.state = move(entry.state, BranchState.LOST)
            self._forget(entry, entry.path)
            self._engine.send(Reclaimed((entry.branch_id,)))
        return entry is not None

    def give_up(self, entry: Entry, reason: str) -> None:
        """End an unfinished branch for the sake of ordinary requests."""
        self._engine.send(Lost((entry.branch_id,), reason))
        self._end(entry, BranchState.LOST, reason)

    def lose_all(self, reason: str) -> None:
        """Nothing survives: new weights, a flush, an abort of everything."""
        open_ones = [entry for entry in self._entries.values() if is_open(entry.state)]
        if open_ones:
            self._engine.send(Lost(tuple(entry.branch_id for entry in open_ones), reason))
        for entry in open_ones:
            self._end(entry, BranchState.LOST, reason)
        while self.unpin():
            pass

    # Ends

    def _is_pinned(self, entry: Entry) -> bool:
        return entry.state is BranchState.COMMITTED and entry.request is None

    def _end(self, entry: Entry, state: BranchState, reason: str) -> None:
        held = entry.state is BranchState.HELD
        entry.state = move(entry.state, state)
        # Without a request it is held, or its request is still to come and will be ended then.
        if entry.request is None or self._engine.end(entry.request, reason):
            self._forget(entry, entry.path if held else None)

    def _forget(self, entry: Entry, own: Path | None = None) -> None:
        """Give the lock back and free what is of this branch alone in `own`."""
        del self._entries[entry.branch_id]
        self._tree.unlock(entry.path.node)
        freed = self._tree.prune(own, entry.keep) if own else 0
        self._engine.made_room()
        for reply in self._replies:
            if entry.branch_id in reply.waiting:
                reply.waiting.remove(entry.branch_id)
                reply.freed += freed
