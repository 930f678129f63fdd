"""A bound on the memory of a whole sandbox, where the host lets us make a control group.

Without one (an ordinary user, as a rule) only the limit of each process holds. Supports version 1
(a group below our own) and version 2 (a group below the root).
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_counter = itertools.count()


class MemoryGroup:
    """One control group; `None` from `create` means that the host allows none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def create(cls, megabytes: int) -> MemoryGroup | None:
        parent = _parent()
        if parent is None:
            return None
        path = parent / f"obsspec-{os.getpid()}-{next(_counter)}"
        try:
            path.mkdir()
            limit = "memory.max" if (path / "memory.max").exists() else "memory.limit_in_bytes"
            (path / limit).write_text(str(megabytes * 1024 * 1024))
        except OSError:
            with suppress(OSError):
                path.rmdir()
            return None
        return cls(path)

    def add(self, pid: int) -> None:
        """Move a process, and with it all it starts later, into the group."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        with suppress(OSError):
            self._path.rmdir()


@cache
def _parent() -> Path | None:
    """Folder in which groups are made; groups that dead processes of ours left there are removed."""
    parent = _ROOT
    if not (_ROOT / "cgroup.controllers").exists():
        parent = _ROOT / "memory"
        with suppress(OSError, StopIteration):
            lines = Path("/proc/self/cgroup").read_text().splitlines()
            own = next(line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory")
            if (parent / own.lstrip("/")).is_dir():
                parent = parent / own.lstrip("/")
    if not os.access(parent, os.W_OK):
        return None
    for left in parent.glob("obsspec-*-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            with suppress(OSError):
                left.rmdir()
    return parent
