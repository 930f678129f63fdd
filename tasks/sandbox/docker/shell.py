"""The host's side of a persistent shell in a container; the same promises as `tasks.sandbox.shell`.

A command that exits, kills or replaces its shell, or outlives its limit, ends that shell, never the
sandbox. A command is over when its shell says so on both outputs, whatever it left in the background. Each
method may be cancelled at any point: a command that nobody waits for any more is ended before the next one
begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tasks.sandbox.base import ExecResult, OutputListener, SandboxError
from tasks.sandbox.docker.program import Program, new_token
from tasks.sandbox.docker.stream import Kept
from tasks.sandbox.shell import TIMEOUT_EXIT_CODE

_PATIENCE_S = 20.0
_LAST_WORDS_S = 5.0
"""How long what a killed command had printed may take to arrive."""
_DISCARDED = Kept()


@dataclass(frozen=True)
class Host:
    """What a shell needs from the sandbox that it runs in."""

    spawn: Callable[[str], Awaitable[Program]]
    """Start the shell in a folder."""
    kill: Callable[[Program, int], Awaitable[None]]
    """Kill it and all that was started since a moment (hundredths of a second since boot)."""
    error: Callable[[str], SandboxError]


@dataclass
class _Command:
    stdout: Kept
    stderr: Kept
    began: asyncio.Future[int]
    """When: hundredths of a second since boot."""
    over: asyncio.Task[int] = field(init=False)
    """Its status. It ends by itself when the shell's client does, so it is never cancelled."""
    shell_lives: bool = False


class DockerShell:
    """One shell at a time, and the output of its commands."""

    def __init__(self, host: Host, cwd: str, output_bytes: int) -> None:
        self.cwd = cwd
        self._host = host
        self._output_bytes = output_bytes
        self._program: Program | None = None
        self._command: _Command | None = None
        """The one that runs, or that nobody waits for any more."""

    async def start(self) -> None:
        """Make sure that a shell waits for a command. Raises SandboxError."""
        if self._command is not None:
            await self.end()
        if self._program is not None:
            return
        program = await self._host.spawn(self.cwd)
        try:
            program.send(token := new_token())
            complaint = Kept(4096)
            async with asyncio.timeout(_PATIENCE_S):
                mark, _ = await program.until((token,), _DISCARDED, complaint)
            if mark is None or mark.token != token:
                reason = complaint.data.decode(errors="replace").strip()
                raise self._host.error(f"could not start a shell: {reason or 'its limits may be too low'}")
        except TimeoutError:
            await program.close()
            raise self._host.error("did not start a shell in time: is the host overloaded?") from None
        except BaseException:
            await asyncio.shield(program.close())
            raise
        self._program = program

    async def end(self) -> None:
        """Kill the shell and what its last command started, if that is not over."""
        program, command = self._program, self._command
        if program is None:
            return
        if command is not None and not command.over.done():
            since = program.since
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    since = await asyncio.shield(command.began)
            await self._host.kill(program, since)
            await asyncio.wait([command.over], timeout=_LAST_WORDS_S)
        await program.close()  # an idle shell ends when its standard input does
        if command is not None:
            await asyncio.wait([command.over])
        self._program = self._command = None

    async def run(
        self, command: str, timeout_s: float, on_output: OutputListener | None = None
    ) -> ExecResult:
        """Run one command. Raises SandboxError."""
        for _ in range(2):
            await self.start()
            result = await self._run(command, timeout_s, on_output)
            if result is not None:
                return result
            await self.end()  # it had ended before: in the background something killed it
        raise self._host.error("lost its shell")

    async def _run(self, text: str, timeout_s: float, on_output: OutputListener | None) -> ExecResult | None:
        assert self._program is not None
        clock = time.perf_counter()
        loop = asyncio.get_running_loop()
        stdout = Kept(self._output_bytes, on_output and (lambda data: on_output("stdout", data)))
        stderr = Kept(self._output_bytes, on_output and (lambda data: on_output("stderr", data)))
        self._command = command = _Command(stdout, stderr, loop.create_future())
        command.over = loop.create_task(self._converse(self._program, command, text))
        timed_out, status = False, TIMEOUT_EXIT_CODE
        try:
            async with asyncio.timeout(timeout_s):
                status = await asyncio.shield(command.over)
        except TimeoutError:
            timed_out = True
            await self.end()
        finally:
            stdout.listener = stderr.listener = None
        duration = time.perf_counter() - clock
        if not timed_out and not command.began.done():
            return None
        if command.shell_lives and not timed_out:
            self._command = None
        else:
            await self.end()
            await self.start()
        return ExecResult(
            bytes(stdout.data),
            bytes(stderr.data),
            status,
            timed_out,
            stdout.truncated or stderr.truncated,
            shell_restarted=timed_out or not command.shell_lives,
            duration_s=duration,
        )

    async def close(self) -> None:
        """Free the client; whoever still waits finds that the shell has ended."""
        program, self._program = self._program, None
        if program is not None:
            await program.close()

    async def _converse(self, program: Program, command: _Command, text: str) -> int:
        begin, end = new_token(), new_token()
        program.send(begin, text, end)
        mark, _ = await program.until((begin,), _DISCARDED, _DISCARDED)
        if mark is None or mark.token != begin:
            return await program.status(mark)
        command.began.set_result(int(mark.text.split()[1]))
        mark, _ = await program.until((end,), command.stdout, command.stderr)
        if mark is None or mark.token != end:
            return await program.status(mark)
        _, status, cwd = mark.text.split(" ", 2)
        self.cwd = cwd or self.cwd
        command.shell_lives = True
        return int(status)
