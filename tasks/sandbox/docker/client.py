"""The `docker` program: one call, its answer, and its failures as sentences.

Arguments are lists, never text for a shell. A call that is cancelled or late leaves no client behind; what it
had asked of the daemon may go on.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tasks.sandbox.base import SandboxError

PATIENCE_S = 60.0
"""How long the daemon may take for one small duty on a busy host."""
PIPE_BYTES = 256 * 1024
_MESSAGE_BYTES = 64 * 1024
_NO_DAEMON = (
    "Cannot connect to the Docker daemon",
    "error during connect",
    "permission denied while trying to connect",
)


@dataclass(frozen=True)
class Answer:
    """What one call printed, and how it ended."""

    stdout: bytes
    stderr: bytes
    code: int
    cut: bool = False
    """Whether it had more to say than was wanted."""

    @property
    def reason(self) -> str:
        """The line that says what went wrong."""
        lines = (self.stderr.strip() or self.stdout.strip()).decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.startswith("Run 'docker")]
        errors = [line for line in said if "rror" in line]
        line = (errors or said or ["no reason given"])[-1]
        return line.removeprefix("docker: ").removeprefix("Error response from daemon: ").rstrip(".")


async def call(
    *arguments: str,
    stdin: bytes | None = None,
    timeout_s: float = PATIENCE_S,
    most: int = _MESSAGE_BYTES,
    tail: bool = False,
) -> Answer:
    """Run `docker` and read at most so much of each of its outputs (`tail`: the last of it, not the first).

    Raises SandboxError where there is no docker, no daemon, or no answer in time.
    """
    process = await spawn(*arguments, stdin=stdin is not None)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            if stdin is not None:
                group.create_task(_feed(process, stdin))
            out = group.create_task(_read(process.stdout, most, tail, process.kill))
            err = group.create_task(_read(process.stderr, most, tail, process.kill))
            code = await process.wait()
    except TimeoutError:
        raise SandboxError(f"docker {arguments[0]} gave no answer within {timeout_s:g} s") from None
    finally:
        await end(process)
    (stdout, cut), (stderr, _) = out.result(), err.result()
    answer = Answer(stdout, stderr, code, cut)
    if code != 0 and any(text in answer.reason for text in _NO_DAEMON):
        raise SandboxError(
            f"docker has no daemon to ask ({answer.reason}): start one or use the namespace sandbox"
        )
    return answer


async def spawn(*arguments: str, stdin: bool) -> asyncio.subprocess.Process:
    """Start `docker` with pipes. Raises SandboxError where there is none."""
    try:
        return await asyncio.create_subprocess_exec(
            "docker", *arguments, stdin=PIPE if stdin else DEVNULL, stdout=PIPE, stderr=PIPE, limit=PIPE_BYTES
        )
    except FileNotFoundError:
        message = "there is no program `docker` here: install Docker or use the namespace sandbox"
        raise SandboxError(message) from None
    except OSError as error:
        raise SandboxError(f"`docker` could not be started: {error.strerror}") from None


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill the client, if it still runs, and free its pipes, read or not."""
    process._transport.close()  # type: ignore[attr-defined]
    await asyncio.shield(process.wait())


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _read(
    reader: asyncio.StreamReader, most: int, tail: bool, enough: Callable[[], None]
) -> tuple[bytes, bool]:
    kept, cut = bytearray(), False
    while data := await reader.read(PIPE_BYTES):
        kept += data
        if len(kept) <= most:
            continue
        cut = True
        if tail:
            del kept[:-most]
        else:
            del kept[most:]
            with suppress(ProcessLookupError):
                enough()
    return bytes(kept), cut
