"""One program in a container, whose beginning and end are known exactly."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tasks.sandbox.base import SandboxError
from tasks.sandbox.docker import client
from tasks.sandbox.docker.programs import SUPERVISOR
from tasks.sandbox.docker.stream import Kept, Mark, MarkedStream

LOST = 137
"""Exit status of what ended with its supervisor."""


def new_token() -> str:
    return secrets.token_hex(16)


class Program:
    """Made by `Program.start`; `close` frees the client, whatever still runs in the container."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self.token = new_token()
        self.stdout, self.stderr = MarkedStream(process.stdout), MarkedStream(process.stderr)
        self.pid = 0
        """In the container."""
        self.since = 0
        """When it began, in hundredths of a second since the container's host booted."""

    @classmethod
    async def start(
        cls,
        container: str,
        argv: Sequence[str],
        mode: str,
        cwd: str,
        env: Mapping[str, str],
        user: str | None,
    ) -> Program:
        """`mode`: as in `SUPERVISOR`. Raises SandboxError with the daemon's reason."""
        options = [f"--env={name}={value}" for name, value in env.items()]
        process = await client.spawn(
            *("exec", "--interactive", f"--user={user}", *options, container),
            *("bash", "-c", SUPERVISOR, "bash", mode, cwd, *argv),
            stdin=True,
        )
        program = cls(process)
        try:
            async with asyncio.timeout(client.PATIENCE_S):
                await program._begin()
        except TimeoutError:
            await program.close()
            raise SandboxError("docker exec gave no answer in time: is the host overloaded?") from None
        except BaseException:
            await asyncio.shield(program.close())
            raise
        return program

    async def _begin(self) -> None:
        self.send(self.token)
        said, complaint = Kept(client.PIPE_BYTES), Kept(client.PIPE_BYTES)
        marks = await self.until((), said, complaint)
        words = marks[0].text.split() if marks[0] is not None else []
        if words[:1] != ["begin"] or marks[1] is None:
            reason = client.Answer(bytes(said.data), bytes(complaint.data), 1).reason
            raise SandboxError(f"docker exec failed: {reason}")
        self.pid, self.since = int(words[1]), int(words[2])

    def send(self, *fields: str) -> None:
        """Queue NUL-ended fields for its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(field.encode() + b"\0" for field in fields))

    async def until(
        self, tokens: tuple[str, ...], stdout: Kept, stderr: Kept
    ) -> tuple[Mark | None, Mark | None]:
        """Read both outputs up to their next mark with one of the tokens or with its own."""
        tokens = (*tokens, self.token)
        async with asyncio.TaskGroup() as group:
            out = group.create_task(self.stdout.until(tokens, stdout))
            err = group.create_task(self.stderr.until(tokens, stderr))
        return out.result(), err.result()

    async def status(self, mark: Mark | None) -> int:
        """How it ended, after the last mark of its standard output."""
        if mark is not None and (words := mark.text.split())[:1] == ["ended"] and words[1].isdigit():
            return int(words[1])
        with suppress(TimeoutError):
            async with asyncio.timeout(client.PATIENCE_S):
                return await self._process.wait() or LOST
        return LOST

    async def close(self) -> None:
        await client.end(self._process)
