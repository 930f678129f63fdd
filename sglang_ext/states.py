"""The life of a branch: one table of legal moves, the same in the front and in the scheduler."""

from __future__ import annotations

from enum import StrEnum


class BranchState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    """Generated; its tokens wait in the front and its KV in the cache for a commit."""
    COMMITTED = "committed"
    DROPPED = "dropped"
    EXPIRED = "expired"
    LOST = "lost"
    """Ended by the engine: pressure, new weights, a flush, an abort, or a failure."""


_OPEN = frozenset({BranchState.QUEUED, BranchState.RUNNING, BranchState.HELD})
_ENDS = frozenset({BranchState.COMMITTED, BranchState.DROPPED, BranchState.EXPIRED, BranchState.LOST})
_MOVES: dict[BranchState, frozenset[BranchState]] = {
    BranchState.QUEUED: _ENDS | {BranchState.RUNNING, BranchState.HELD},
    BranchState.RUNNING: _ENDS | {BranchState.HELD},
    BranchState.HELD: _ENDS,
}


class IllegalMove(AssertionError):
    """A move that the table does not allow: a defect of this package."""


def is_open(state: BranchState) -> bool:
    """Whether a branch in that state can still be committed or dropped."""
    return state in _OPEN


def move(state: BranchState, to: BranchState) -> BranchState:
    """`to`. Raises IllegalMove where the table has no such move: a branch ends exactly once."""
    if to not in _MOVES.get(state, ()):
        raise IllegalMove(f"a {state} branch cannot be {to}")
    return to
