"""What the front (HTTP server) and the scheduler tell each other about branches, over SGLang's own sockets.

A branch's tokens travel as those of the ordinary request that carries its id. These are the rest.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hello:
    """Scheduler → front, once: the scheduler half lives."""

    reason: str | None
    """Why this engine cannot hold branches; None: it can."""
    capacity: int
    """Tokens of the KV cache."""


@dataclass(frozen=True, slots=True)
class Open:
    """Front → scheduler, before the requests of these branches: siblings on one parent."""

    branch_ids: tuple[str, ...]
    parent: array[int]
    candidates: tuple[array[int], ...]
    extra_key: str | None
    on_branch: bool = False
    """Whether the parent is a branch itself, and may be dropped."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Front → scheduler: from now on an ordinary request."""

    branch_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Front → scheduler: the grace hold of a committed branch is over."""

    branch_id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Front → scheduler; answered by Dropped once all of it is freed."""

    sequence: int
    branch_ids: tuple[str, ...] | None
    """None: every branch, and every grace hold."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Scheduler → front. Tokens of the KV cache."""

    sequence: int
    freed: int
    available: int
    evictable: int
    protected: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Scheduler → front: these branches ended on the engine's side."""

    branch_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Scheduler → front: the KV of these held branches was given up; their tokens are still good."""

    branch_ids: tuple[str, ...]
