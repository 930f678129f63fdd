"""One supervised child process, with its log.

It is ready when its URL answers 200, and gone, with every process it started, after `stop` or when
this process ends, however that happens.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import httpx

from obsspec.errors import ProcessError
from obsspec.processes import lifetime
from obsspec.processes.groups import task_group

_LOG_LINES = 15


@dataclass(frozen=True)
class Command:
    """What to run, and how to tell that it is ready."""

    name: str
    """What messages and the log file call it."""
    argv: list[str]
    ready_url: str
    """Answers 200 once the process can do its work."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables added to this process's own."""
    startup_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0
    """Seconds between SIGTERM and SIGKILL; 0 sends SIGKILL at once."""


class Child:
    """A process started from a `Command`. The task that starts it must be in the main thread."""

    def __init__(self, command: Command, log: Path) -> None:
        self.command = command
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    async def start(self) -> None:
        """Start it in a process group of its own, so that a Ctrl-C in the terminal reaches only us."""
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *lifetime.launcher(),
                *self.command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.command.env},
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until it answers. Raises ProcessError when it ends first, or takes too long."""
        limit = self.command.startup_timeout_s
        try:
            async with asyncio.timeout(limit), task_group() as group:
                watch = group.create_task(self.ended())
                await self._answers()
                watch.cancel()
        except TimeoutError:
            raise ProcessError(f"{self.command.name} was not ready after {limit:g} s{self._tail()}") from None

    async def ended(self) -> NoReturn:
        """Wait for an end nobody asked for, and raise ProcessError about it."""
        assert self._process is not None, "not started"
        code = await self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        raise ProcessError(f"{self.command.name} stopped by itself ({how}){self._tail()}")

    async def stop(self) -> None:
        """End it and every process of its group; safe to call twice, and before `start`."""
        if self._process is None:
            return
        if self._process.returncode is None and self.command.stop_timeout_s > 0:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.command.stop_timeout_s):
                    await self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _answers(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                with suppress(httpx.HTTPError):
                    if (await client.get(self.command.ready_url, timeout=30)).status_code == 200:
                        return
                await asyncio.sleep(0.1)

    def _tail(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        if not lines:
            return f"; its log {self.log} is empty"
        return "\n  ".join([f"; its log {self.log} ends with:", *lines[-_LOG_LINES:]])
