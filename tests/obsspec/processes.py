"""Waiting for the end of processes that are not our children."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psutil


class Watched:
    """Processes held by descriptor, so that a reused pid is never mistaken for one of them."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open = {os.pidfd_open(pid): pid for pid in pids}

    def survivors(self, timeout_s: float) -> list[int]:
        """Those that have not ended after `timeout_s`; one that waits to be reaped has."""
        deadline = time.monotonic() + timeout_s
        running = dict(self._open)
        while running and (left := deadline - time.monotonic()) > 0:
            for descriptor in select.select(list(running), [], [], left)[0]:
                del running[descriptor]
        return list(running.values())

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


@contextmanager
def descendants(pid: int) -> Iterator[Watched]:
    """Every process that `pid` started, at any depth, and `pid` itself."""
    watched = Watched([pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))])
    try:
        yield watched
    finally:
        watched.close()
