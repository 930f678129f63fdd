"""The host's side of the conversation with the programs inside a sandbox.

Each method may be cancelled at any point: the sandbox stays usable, because whole messages are
queued at once, and a shell whose command nobody waits for any more is killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tasks.sandbox.base import ExecResult, SandboxError
from tasks.sandbox.channel import Control, Output

T = TypeVar("T")

TIMEOUT_EXIT_CODE = 124
_FROM_INIT = re.compile(r"ready|(?:unpacked|ended) \d{1,3}")
_FROM_SHELL = re.compile(r"done \d{1,3} .*", re.DOTALL)
_PATIENCE_S = 20.0
"""How long PID 1 may take for its own small duties on a busy host."""


@dataclass(frozen=True)
class Process:
    """A process inside, by its host PID and by a descriptor that no later process can take over."""

    pid: int
    fd: int

    @classmethod
    def open(cls, pid: int) -> Process:
        return cls(pid, os.pidfd_open(pid))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.fd, signal.SIGKILL)

    def is_alive(self) -> bool:
        """False once the PID may belong to another process."""
        try:
            signal.pidfd_send_signal(self.fd, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        os.close(self.fd)


class _Shell:
    """One life of the shell, from the request for it to the report that all its processes are dead."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.process: Process | None = None
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.unwanted = False

    def kill(self) -> None:
        self.unwanted = True
        if self.process is not None and not self.ended.done():
            self.process.kill()


class Driver:
    """Talks to one sandbox. `error(text)` makes the exceptions, so that they name the sandbox."""

    def __init__(self, output_bytes: int, error: Callable[[str], SandboxError]) -> None:
        self._error = error
        self.control = Control(self._is_heard, self._on_message, self._on_end)
        self.stdout, self.stderr = Output(output_bytes), Output(output_bytes)
        self.init: Process | None = None
        self.cwd = "/work"
        self._loop = asyncio.get_running_loop()
        self._shell: _Shell | None = None
        self._reply: asyncio.Future[str] = self._loop.create_future()
        self.gone = False

    async def ready(self) -> None:
        """Wait for PID 1, which may have spoken already."""
        await self._wait(self._reply)

    async def unpack(self, verb: str, archive: bytes) -> None:
        """Hand tar bytes to PID 1: `files` go to /work; `tests` go to a cleared /tests, and clear /logs."""
        await self.end_shell()
        reply = self._expect()
        self.stderr.begin()
        try:
            self.control.send(verb, str(len(archive)), payload=archive)
            answer = await self._wait(reply)
        finally:
            message = self.stderr.end()[0].decode(errors="replace").strip().replace("\n", "; ")
        if answer != "unpacked 0":
            raise self._error(f"could not unpack its {verb}: {message or answer}")

    async def start_shell(self) -> None:
        """Make sure that a shell waits for a command."""
        if self._shell is not None and self._shell.unwanted:
            await self.end_shell()
        if self._shell is None:
            self._check()
            self._shell = _Shell()
            self.control.send("shell", self.cwd)
        await self._wait(self._shell.ready)

    async def end_shell(self) -> None:
        """Kill the shell, if there is one, and wait until all that was started in it is dead."""
        if (shell := self._shell) is not None:
            shell.unwanted = True
            await self._wait(shell.ready)
            shell.kill()
            await self._wait(shell.ended)

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        await self.start_shell()
        assert self._shell is not None
        shell, reply, began = self._shell, self._expect(), time.perf_counter()
        timed_out = truncated = False
        self.stdout.begin()
        self.stderr.begin()
        try:
            self.control.send("run", command)
            async with asyncio.timeout(timeout_s):
                word, _, rest = (await reply).partition(" ")
        except TimeoutError:
            timed_out = True
            await self.end_shell()
            word, rest = "ended", str(TIMEOUT_EXIT_CODE)
        finally:
            duration = time.perf_counter() - began
            (stdout, cut_out), (stderr, cut_err) = self.stdout.end(), self.stderr.end()
            truncated = cut_out or cut_err
            if not reply.done() or reply.cancelled():
                shell.kill()
        status, _, cwd = rest.partition(" ")
        self.cwd = cwd or self.cwd
        ended = word == "ended"
        if ended:
            await self.start_shell()
        return ExecResult(stdout, stderr, int(status), timed_out, truncated, ended, duration)

    def close_inner(self) -> None:
        """Close the sandbox's ends, once it has its own."""
        self.control.inner.close()
        self.stdout.close_inner()
        self.stderr.close_inner()

    def close(self) -> None:
        """Free the descriptors; whoever still waits gets a SandboxError."""
        self._on_end()
        self.control.close()
        self.stdout.close()
        self.stderr.close()
        for process in (self.init, self._shell.process if self._shell else None):
            if process is not None:
                process.close()
        self.init = self._shell = None

    def _expect(self) -> asyncio.Future[str]:
        self._check()
        self._reply = self._loop.create_future()
        return self._reply

    def _check(self) -> None:
        if self.gone:
            raise self._error("is gone: its first process ended")

    async def _wait(self, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await asyncio.shield(future)
        except TimeoutError:
            raise self._error(f"did not answer within {_PATIENCE_S:.0f} s: is the host overloaded?") from None

    def _is_heard(self, pid: int) -> bool:
        """Whether a process is PID 1 or the shell: whoever speaks first, and whoever speaks first after a
        shell was asked for, since nothing else runs then."""
        if self.init is None or self.init.pid == pid:
            return True
        return self._shell is not None and (self._shell.process is None or self._shell.process.pid == pid)

    def _on_message(self, pid: int, text: str) -> None:
        """Take a message from PID 1 or the shell; one of another form is ignored."""
        if self.init is None:
            self.init = Process.open(pid)
        if pid == self.init.pid:
            valid = _FROM_INIT.fullmatch(text) is not None
            if text.startswith("ended"):
                self._on_shell_end()
        else:
            valid = self._is_ready(pid) and _FROM_SHELL.fullmatch(text) is not None
        if valid and not self._reply.done():
            self._reply.set_result(text)

    def _is_ready(self, pid: int) -> bool:
        """Whether the shell has spoken before; its first word makes it ready."""
        shell = self._shell
        if shell is None:
            return False
        if shell.process is None:
            with suppress(ProcessLookupError):  # dead already: PID 1 will say so
                shell.process = Process.open(pid)
                shell.ready.set_result(None)
            return False
        return shell.process.pid == pid

    def _on_shell_end(self) -> None:
        self.control.send("resume")
        if (shell := self._shell) is not None:
            self._shell = None
            if shell.process is not None:
                shell.process.close()
            if not shell.ready.done():
                shell.ready.set_exception(self._error("could not start a shell; its limits may be too low"))
                shell.ready.exception()
            shell.ended.set_result(None)

    def _on_end(self) -> None:
        self.gone = True
        waiting = [self._reply, *((self._shell.ready, self._shell.ended) if self._shell else ())]
        for future in waiting:
            if not future.done():
                future.set_exception(self._error("is gone: its first process ended"))
                future.exception()
