"""The sandbox protocol: one private world per rollout.

A sandbox is started once, runs commands in one persistent shell, and is stopped once. Nothing a
command does can reach the host, another sandbox or the services (but see `tasks.sandbox.local`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tasks.task import Task

UNREADABLE = re.compile("[\0\ud800-\udfff]")
"""What no command can contain: NUL, and lone surrogates, which have no bytes."""
LARGEST_READ = 64 * 1024 * 1024
"""Bytes of the largest file that `read` gives."""

OutputListener = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Is told what a command prints as it comes, as far as it is kept."""


class SandboxError(RuntimeError):
    """The sandbox itself failed (not the command that ran in it)."""


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds of one sandbox; a command that meets one fails, the sandbox goes on."""

    memory_mb: int = 512
    cpus: float | None = None
    """Processors' worth of time; None: no bound."""
    processes: int = 64
    output_bytes: int = 64 * 1024
    """Bytes kept of each of stdout and stderr of one command; the rest is read and discarded."""
    file_mb: int = 64
    """Largest file a command may write."""
    disk_mb: int = 256
    """Size of all that a sandbox may add to or change in its image."""
    command_timeout_s: float = 10.0
    """Wall-clock limit of a command that names none, and the most it may ask for."""


@dataclass(frozen=True)
class ExecResult:
    """What one command left behind, raw; `tasks.observation.canonical` makes it an observation."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    timed_out: bool = False
    truncated: bool = False
    shell_restarted: bool = False
    """True when the command ended the shell (`exit`, `kill $$`, a time-out): a fresh one took over."""
    duration_s: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """The files of a sandbox at one moment, and the folder its shell was in. Valid until it is stopped."""

    name: str
    cwd: str


class Sandbox(Protocol):
    """One private world. All methods may raise SandboxError."""

    async def start(self) -> None: ...

    async def exec(
        self, command: str, timeout_s: float | None = None, on_output: OutputListener | None = None
    ) -> ExecResult:
        """Run `command` in the persistent shell; cwd, variables and functions survive to the next."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        timeout_s: float,
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        """Run a program apart from the shell; `user`, `cwd`: the image's own if None; `env`: added to it."""
        ...

    async def read(self, path: str) -> bytes:
        """Bytes of a regular file, of LARGEST_READ at most. Raises FileNotFoundError."""
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    async def upload(self, folder: Path, target: str, owner: str | None = None) -> None:
        """Copy the content of a host folder into one of the sandbox's; `owner`: its own user if None."""
        ...

    async def snapshot(self) -> Snapshot:
        """Remember the files as they are."""
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Go back to the files of a snapshot. Whatever runs is ended; the shell is a fresh one."""
        ...

    async def verify(self, task: Task) -> float:
        """Reveal the task's tests, run them apart from the agent's shell, and return the reward in [0, 1]."""
        ...

    async def stop(self) -> None:
        """End every process and remove every file of this sandbox; safe to call twice."""
        ...
