"""Bounds on memory, processes and processor time of a whole sandbox, where the host lets us make control
groups.

Without them (an ordinary user, as a rule) only the limits of each process hold, and those of each user
inside. Supports version 1 (groups below our own) and version 2 (a group below the root).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tasks.sandbox.base import SandboxLimits

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_counter = itertools.count()
_busy: list[Path] = []
"""Groups whose last process was still on its way out when they were removed."""


class ControlGroups:
    """The groups of one sandbox; one folder a controller, or one for all."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    @classmethod
    def make(cls, limits: SandboxLimits) -> ControlGroups:
        """Groups for all that the host allows, perhaps none."""
        _busy[:] = [path for path in _busy if not _removed(path)]
        name = f"obsspec-{os.getpid()}-{next(_counter)}"
        folders = []
        for parent in _parents():
            folder = parent / name
            values = _values(folder, limits)
            try:
                folder.mkdir()
                for file, value in values.items():
                    if (folder / file).exists():
                        (folder / file).write_text(value)
            except OSError:
                _removed(folder)
            else:
                folders.append(folder)
        return cls(folders)

    @property
    def bound_memory(self) -> bool:
        return any((folder / name).exists() for folder in self._folders for name in _MEMORY)

    def open(self) -> list[int]:
        """Descriptors of the files that take a process in; the caller closes them."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in self._folders]

    def remove(self) -> None:
        _busy.extend(folder for folder in self._folders if not _removed(folder))
        self._folders = []


_SPARE_PROCESSES = 16
"""For another user's programs inside, the verifier's perhaps, while one user's fill their own limit."""
_MEMORY = ("memory.max", "memory.limit_in_bytes")


def _values(folder: Path, limits: SandboxLimits) -> Mapping[str, str]:
    """Content of the control files, of both versions."""
    # Files in the sandbox live in memory, and count.
    memory = str((limits.memory_mb + limits.disk_mb) << 20)
    values = dict.fromkeys(_MEMORY, memory) | {"pids.max": str(limits.processes + _SPARE_PROCESSES)}
    if limits.cpus is not None:
        quota = str(max(1000, int(limits.cpus * _PERIOD_US)))
        values |= {"cpu.max": f"{quota} {_PERIOD_US}", "cpu.cfs_quota_us": quota}
    return values


def _removed(path: Path) -> bool:
    with suppress(OSError):
        path.rmdir()
    return not path.exists()


@cache
def _parents() -> tuple[Path, ...]:
    """Folders in which groups are made; groups that dead processes of ours left there are removed."""
    if (_ROOT / "cgroup.controllers").exists():
        parents = [_ROOT]
    else:
        own: dict[str, str] = {}
        with suppress(OSError):
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, names, path = line.split(":", 2)
                own |= dict.fromkeys(names.split(","), path.lstrip("/"))
        parents = []
        for controller in ("memory", "pids", "cpu"):
            below = _ROOT / controller / own.get(controller, "")
            parents.append(below if below.is_dir() else _ROOT / controller)
    parents = [parent for parent in parents if os.access(parent, os.W_OK)]
    for left in [path for parent in parents for path in parent.glob("obsspec-*-*")]:
        if not Path("/proc", left.name.split("-")[1]).exists():
            _removed(left)
    return tuple(dict.fromkeys(parents))
