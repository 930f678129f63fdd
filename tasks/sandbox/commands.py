"""What every sandbox with a persistent shell does alike: one command at a time, and the setup script."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self

from tasks.sandbox.base import UNREADABLE, ExecResult, OutputListener, SandboxError, SandboxLimits
from tasks.sandbox.verification import last_line

SETUP_TIMEOUT_S = 60.0


class CommandShell(Protocol):
    async def run(
        self, command: str, timeout_s: float, on_output: OutputListener | None = None
    ) -> ExecResult: ...


class ShellSandbox(ABC):
    """As a context it is started, and stopped at the end."""

    def __init__(self, name: str, limits: SandboxLimits) -> None:
        """`name` appears in errors."""
        self.limits = limits
        self._name = name
        self._lock = asyncio.Lock()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def _running_shell(self) -> CommandShell:
        """Raises SandboxError where there is none."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def exec(
        self, command: str, timeout_s: float | None = None, on_output: OutputListener | None = None
    ) -> ExecResult:
        """Run a command; see the protocol. Raises SandboxError when the sandbox itself is gone."""
        limit = self.limits.command_timeout_s
        return await self._exec(command, limit if timeout_s is None else min(timeout_s, limit), on_output)

    async def _exec(
        self, command: str, timeout_s: float, on_output: OutputListener | None = None
    ) -> ExecResult:
        if UNREADABLE.search(command):
            raise ValueError("a command cannot contain a NUL character or a lone surrogate; remove it")
        async with self._lock:
            return await self._running_shell().run(command, timeout_s, on_output)

    async def _run_setup(self, script: Path) -> None:
        """Run it once; it must exit 0. Raises SandboxError."""
        result = await self._exec(f"bash -c {shlex.quote(script.read_text())}", SETUP_TIMEOUT_S)
        if result.exit_code != 0:
            raise self._error(f"failed in {script} with exit code {result.exit_code}: {last_line(result)}")

    def _error(self, text: str) -> SandboxError:
        return SandboxError(f"the sandbox of {self._name} {text}")
