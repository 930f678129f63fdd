"""Locks between processes, on files. The kernel opens them when the process that holds one ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_POLL_S = 0.05


@asynccontextmanager
async def file_lock(file: Path, exclusive: bool = False) -> AsyncIterator[None]:
    """Hold it, alone or with others; waits for whoever has it otherwise."""
    fd = _open(file)
    try:
        while not _take(fd, exclusive):  # noqa: ASYNC110 (no event tells of another process)
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


@contextmanager
def free_lock(file: Path) -> Iterator[bool]:
    """Hold it alone if nobody holds it; whether that is so."""
    fd = _open(file)
    try:
        yield _take(fd, exclusive=True)
    finally:
        os.close(fd)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _take(fd: int, exclusive: bool) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
