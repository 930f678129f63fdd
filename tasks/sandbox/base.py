"""The sandbox protocol: one private world per rollout.

A sandbox is started once, runs commands in one persistent shell, and is stopped once. Nothing a
command does can reach the host, another sandbox or the services.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

UNREADABLE = re.compile("[\0\ud800-\udfff]")
"""What no command can contain: NUL, and lone surrogates, which have no bytes."""


class SandboxError(RuntimeError):
    """The sandbox itself failed (not the command that ran in it)."""


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds of one sandbox; a command that meets one fails, the sandbox goes on."""

    memory_mb: int = 512
    processes: int = 64
    output_bytes: int = 64 * 1024
    """Bytes kept of each of stdout and stderr of one command; the rest is read and discarded."""
    file_mb: int = 64
    """Largest file a command may write, and size of each private tmpfs."""
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


class Sandbox(Protocol):
    """One private world. All methods may raise SandboxError."""

    async def start(self) -> None: ...

    async def exec(self, command: str, timeout_s: float | None = None) -> ExecResult:
        """Run `command` in the persistent shell; cwd, variables and functions survive to the next."""
        ...

    async def read(self, path: str) -> bytes:
        """Bytes of a file below the sandbox's writable folders. Raises FileNotFoundError."""
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    async def verify(self, tests: Path, timeout_s: float) -> float:
        """Reveal the tests, run them apart from the agent's shell, and return the reward in [0, 1]."""
        ...

    async def stop(self) -> None:
        """End every process and remove every file of this sandbox; safe to call twice."""
        ...
