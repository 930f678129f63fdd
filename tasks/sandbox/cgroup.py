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
_busy: list[Path] = []
"""Groups whose last process was still on its way out when they were removed."""


class MemoryGroup:
    """A control group of one sandbox."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def around(cls, pid: int, megabytes: int) -> MemoryGroup | None:
        """A group with a process and all that it starts later; None where the host allows none."""
        parent = _parent()
        if parent is None:
            return None
        _busy[:] = [path for path in _busy if not _removed(path)]
        path = parent / f"obsspec-{os.getpid()}-{next(_counter)}"
        try:
            path.mkdir()
            limit = "memory.max" if (path / "memory.max").exists() else "memory.limit_in_bytes"
            (path / limit).write_text(str(megabytes * 1024 * 1024))
            (path / "cgroup.procs").write_text(str(pid))
        except OSError:
            _removed(path)
            return None
        return cls(path)

    def remove(self) -> None:
        if not _removed(self._path):
            _busy.append(self._path)


def _removed(path: Path) -> bool:
    with suppress(OSError):
        path.rmdir()
    return not path.exists()


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
            _removed(left)
    return parent
