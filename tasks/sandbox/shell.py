"""The host's side of the conversation with a persistent shell.

A command that exits, kills or replaces its shell, or outlives its limit, ends that shell, never the sandbox:
the next command finds a fresh one in the last known folder. A command is over when its shell says so,
whatever it left in the background. What a command that outlived its limit had started is killed; what ran
before it runs on.

Each method may be cancelled at any point: the shell stays usable, because a command that nobody waits for any
more is ended before the next one begins.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tasks.sandbox.base import ExecResult, OutputListener, SandboxError
from tasks.sandbox.channel import Control, Output
from tasks.sandbox.programs import CONTROL

TIMEOUT_EXIT_CODE = 124
_DONE = re.compile(r"done (\d{1,3}) (.*)", re.DOTALL)
_PATIENCE_S = 20.0
"""How long a shell may take to start on a busy host."""


class Process(Protocol):
    """The shell's process."""

    pid: int
    ended: asyncio.Future[int]


@dataclass(frozen=True)
class Host:
    """What a shell needs from the sandbox that it runs in."""

    spawn: Callable[[str, dict[int, int]], Awaitable[Process]]
    """Start the shell in a folder, with descriptors: its number, ours."""
    kill: Callable[[Process, int], Awaitable[None]]
    """Kill it and all that was started since a moment (clock ticks since boot)."""
    error: Callable[[str], SandboxError]


class Shell:
    """One shell at a time, and the output of its commands."""

    def __init__(self, host: Host, cwd: str, output_bytes: int):
        self.cwd = cwd
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.stdout, self.stderr = Output(output_bytes), Output(output_bytes)
        self._null = open("/dev/null", "rb")  # noqa: SIM115  (closed with the shell)
        self._control: Control | None = None
        self._process: Process | None = None
        self._reply: asyncio.Future[str] = self._loop.create_future()
        self._since = 0
        self._unwanted = False
        self._lost = False
        """Whether the shell's end of the control socket is closed."""
        self._closed = False

    async def start(self) -> None:
        """Make sure that a shell waits for a command. Raises SandboxError."""
        if self._closed:
            raise self._host.error("is not running")
        if self._process is not None and (self._unwanted or self._process.ended.done()):
            await self.end()
        if self._process is not None:
            return
        self._reply, self._lost = self._loop.create_future(), False
        control = Control(self._on_message, self._on_end)
        try:
            fds = {
                0: self._null.fileno(),
                1: self.stdout.inner,
                2: self.stderr.inner,
                CONTROL: control.inner.fileno(),
            }
            since = clock_ticks()
            self._process = await self._host.spawn(self.cwd, fds)
        except BaseException:
            control.close()
            raise
        self._control, self._unwanted, self._since = control, True, since
        self.stderr.begin()
        control.open(self._process.pid)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.shield(self._reply)
        except TimeoutError:
            raise self._host.error("did not start a shell in time: is the host overloaded?") from None
        except SandboxError:
            message = self.stderr.end()[0].decode(errors="replace").strip()
            raise self._host.error(
                f"could not start a shell: {message or 'its limits may be too low'}"
            ) from None
        self._unwanted = False

    async def end(self) -> None:
        """Kill the shell and what its last command started, if that is not over."""
        process, control = self._process, self._control
        if process is None:
            return
        if self._unwanted and not process.ended.done():
            await self._host.kill(process, self._since)
        if control is not None:
            control.close()  # an idle shell ends when its control socket does
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.shield(process.ended)
        self._process = self._control = None

    async def run(
        self, command: str, timeout_s: float, on_output: OutputListener | None = None
    ) -> ExecResult:
        """Run one command. Raises SandboxError."""
        await self.start()
        assert self._process is not None
        assert self._control is not None
        process, began = self._process, time.perf_counter()
        self._reply = self._loop.create_future()
        self.stdout.begin(on_output and (lambda data: on_output("stdout", data)))
        self.stderr.begin(on_output and (lambda data: on_output("stderr", data)))
        self._since, self._unwanted = clock_ticks(), True
        if self._lost:  # killed since it said that it waits
            self._on_end()
        timed_out, status = False, TIMEOUT_EXIT_CODE
        try:
            self._control.send("run", command)
            async with asyncio.timeout(timeout_s):
                with suppress(SandboxError):  # the shell ended
                    answer = _DONE.fullmatch(await asyncio.shield(self._reply))
                    assert answer is not None
                    status, self.cwd = int(answer[1]), answer[2] or self.cwd
                    self._unwanted = False
                if self._unwanted:
                    status = await asyncio.shield(process.ended)
        except TimeoutError:
            timed_out = True
            await self.end()
        finally:
            duration = time.perf_counter() - began
            (stdout, cut_out), (stderr, cut_err) = self.stdout.end(), self.stderr.end()
        ended = self._unwanted
        if ended:
            await self.start()
        return ExecResult(stdout, stderr, status, timed_out, cut_out or cut_err, ended, duration)

    def close(self) -> None:
        """Free the descriptors; whoever still waits gets a SandboxError."""
        self._closed = True
        self._on_end()
        if self._control is not None:
            self._control.close()
        self.stdout.close()
        self.stderr.close()
        self._null.close()
        self._process = self._control = None

    def _on_message(self, text: str) -> None:
        if _DONE.fullmatch(text) and not self._reply.done():
            self._reply.set_result(text)

    def _on_end(self) -> None:
        self._lost = True
        if not self._reply.done():
            self._reply.set_exception(self._host.error("lost its shell"))
            self._reply.exception()


def clock_ticks() -> int:
    """Now, as the kernel dates the beginning of processes: hundredths of a second since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 100)
