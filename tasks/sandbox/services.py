"""What runs in a sandbox before its agent comes: the image's entry point, then the task's health check."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import Any

from tasks.sandbox.base import Sandbox, SandboxError
from tasks.sandbox.box import Box
from tasks.sandbox.verification import last_line
from tasks.task import Healthcheck

_HANDED_OVER = 9
KEEP_ALIVE = ("sh", "-c", f"(echo >&{_HANDED_OVER}) 2>/dev/null; exec sleep infinity")
"""What an entry point is given to run, as Harbor does it; its first words say that it was reached."""
ENTRYPOINT_S = 20.0
"""The longest that a start waits for that."""


async def start_entrypoint(box: Box) -> None:
    """In the background, until it hands over to what it was given to run, or for a bounded time. What it
    prints is nobody's. Raises SandboxError if it failed before."""
    config = box.image.config
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    said, say = os.pipe2(os.O_CLOEXEC)
    try:
        argv = [*config.entrypoint, *KEEP_ALIVE]
        fds = {0: null, 1: null, 2: null, _HANDED_OVER: say}
        program = await box.spawn(argv, fds)
    except BaseException:
        os.close(said)
        raise
    finally:
        os.close(null)
        os.close(say)
    loop = asyncio.get_running_loop()
    handed_over: asyncio.Future[None] = loop.create_future()

    def hand_over() -> None:
        loop.remove_reader(said)
        if os.read(said, 1):  # nothing: it has ended, or lets go of what it does not know
            handed_over.set_result(None)

    loop.add_reader(said, hand_over)
    try:
        either: set[asyncio.Future[Any]] = {handed_over, program.ended}
        await asyncio.wait(either, timeout=ENTRYPOINT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(said)
        os.close(said)
    if program.ended.done() and program.ended.result() != 0:
        raise box.error(
            f"has an entry point that ended with status {program.ended.result()}: "
            f"{shlex.join(config.entrypoint)}"
        )


async def become_healthy(sandbox: Sandbox, check: Healthcheck, name: str) -> None:
    """Wait until a task's own check succeeds. Raises SandboxError after the failures that it allows."""
    loop = asyncio.get_running_loop()
    began, failures = loop.time(), 0
    while (result := await sandbox.run(["sh", "-c", check.command], check.timeout_s)).exit_code != 0:
        starting = loop.time() - began < check.start_period_s
        failures += not starting
        if failures >= check.retries:
            last = last_line(result)
            raise SandboxError(
                f"{name} is not healthy after {failures} checks with {check.command!r}: {last}"
            )
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)
