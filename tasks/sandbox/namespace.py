"""The default sandbox: Linux namespaces made by bubblewrap; needs no daemon and no root.

Guarantees: a command that exits, kills or replaces its shell, or outlives its limit, ends that shell
and every process in the sandbox, never the sandbox; the next command finds a fresh shell in the last
known folder. A command is over when its shell says so, whatever it left in the background. When
`stop` returns no process and no file of the sandbox is left; when the host process dies, the kernel
does the same.

Limits: address space of a process (RLIMIT_AS), memory of all together (a control group, where the
host lets us make one), processes (RLIMIT_NPROC, counted inside the sandbox's own user namespace),
file size (RLIMIT_FSIZE), size of each tmpfs, output kept, wall-clock time.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.sandbox import bubblewrap, rootfs, seccomp
from tasks.sandbox.archive import pack
from tasks.sandbox.base import UNREADABLE, ExecResult, SandboxError, SandboxLimits
from tasks.sandbox.cgroup import MemoryGroup
from tasks.sandbox.driver import Driver
from tasks.task import Task

SETUP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox starts with; `name` appears in errors."""

    name: str = "sandbox"
    files: Path | None = None
    """Folder whose content is copied to /work."""
    setup: Path | None = None
    """Script run once in /work; it must exit 0."""


class NamespaceSandbox:
    """One private world; see `tasks.sandbox.base.Sandbox` for the protocol."""

    def __init__(self, spec: SandboxSpec, limits: SandboxLimits | None = None) -> None:
        self.spec = spec
        self.limits = limits or SandboxLimits()
        self._lock = asyncio.Lock()
        self._driver: Driver | None = None
        self._bwrap: asyncio.subprocess.Process | None = None
        self._memory: MemoryGroup | None = None
        self._stopped = False

    @classmethod
    def for_task(cls, task: Task, limits: SandboxLimits | None = None) -> NamespaceSandbox:
        """A sandbox with the task's files; the task may ask for less memory than `limits`, not more."""
        limits = limits or SandboxLimits()
        limits = replace(limits, memory_mb=min(limits.memory_mb, task.memory_mb))
        files = task.files if task.files.is_dir() else None
        return cls(SandboxSpec(task.id, files, task.setup), limits)

    async def __aenter__(self) -> NamespaceSandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make the namespaces, copy the files, run the setup script. Raises SandboxError."""
        if self._driver is not None or self._stopped:
            raise self._error("was started before; make a new one")
        self._driver = Driver(self.limits.output_bytes, self._error)
        try:
            await self._launch(self._driver)
            if self.spec.files is not None:
                await self._driver.unpack(
                    "files", await asyncio.to_thread(pack, self.spec.files, bubblewrap.UID)
                )
            await self._driver.start_shell()
            if self.spec.setup is not None:
                await self._run_setup(self.spec.setup)
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def exec(self, command: str, timeout_s: float | None = None) -> ExecResult:
        """Run a command; see the protocol. Raises SandboxError when the sandbox itself is gone."""
        limit = self.limits.command_timeout_s
        return await self._run(command, limit if timeout_s is None else min(timeout_s, limit))

    async def read(self, path: str) -> bytes:
        init = self._running().init
        assert init is not None
        data = rootfs.read(init.pid, path)
        if not init.is_alive():  # the PID may have been another process's
            raise self._error("is gone: its first process ended")
        return data

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        result = await self._run(rootfs.write_command(path, data, mode), SETUP_TIMEOUT_S)
        if result.exit_code != 0:
            raise self._error(f"could not write {path}: {_last_line(result)}")

    async def verify(self, tests: Path, timeout_s: float) -> float:
        """End all that runs, reveal the tests, run them as a child of PID 1 and read the reward."""
        driver = self._running()
        archive = await asyncio.to_thread(pack, tests, bubblewrap.UID)
        async with self._lock:
            await driver.unpack("tests", archive)
            driver.cwd = bubblewrap.WORK
            result = await driver.run("exec bash /tests/test.sh", timeout_s)
            await driver.end_shell()
        if result.timed_out:
            raise self._error(
                f"was not verified within {timeout_s:g} s; raise [verifier] timeout_sec in its task.toml"
            )
        killed = result.exit_code > 128  # perhaps by the agent's work, which may have written a verdict
        reward = None if killed else await self._reward()
        if reward is None:
            raise self._error(
                "has no verdict: tests/test.sh must write a number from 0 to 1 to /logs/verifier/reward.txt "
                f"(exit code {result.exit_code}, last line: {_last_line(result)})"
            )
        return reward

    async def stop(self) -> None:
        self._stopped = True
        driver, self._driver = self._driver, None
        if driver is None:
            return
        try:
            if driver.init is not None:
                driver.init.kill()  # bubblewrap ends after it, when every process inside is gone
            elif self._bwrap is not None and self._bwrap.returncode is None:
                self._bwrap.kill()
            if self._bwrap is not None:
                await self._bwrap.wait()
        finally:
            driver.close()
            if self._memory is not None:
                self._memory.remove()

    async def _launch(self, driver: Driver) -> None:
        inner = (driver.control.inner.fileno(), driver.stdout.inner, driver.stderr.inner)
        filter_fd = _readable(seccomp.program())
        etc = {name: _readable(text.encode()) for name, text in bubblewrap.ETC.items()}
        driver.stderr.begin()
        try:
            self._bwrap = await asyncio.create_subprocess_exec(
                *bubblewrap.arguments(self.limits, etc, filter_fd),
                env=bubblewrap.environment(self.limits),
                stdin=inner[0],
                stdout=inner[1],
                stderr=inner[2],
                pass_fds=(filter_fd, *etc.values()),
                cwd="/",
            )
        finally:
            for fd in (filter_fd, *etc.values()):
                os.close(fd)
            driver.close_inner()
        try:
            await driver.ready()
        except SandboxError:
            if not driver.gone:
                raise
            message = driver.stderr.end()[0].decode(errors="replace").strip().replace("\n", "; ")
            raise SandboxError(
                f"bubblewrap could not make a sandbox ({message}): it takes version 0.8 or newer, "
                "and unprivileged user namespaces (sysctl user.max_user_namespaces, "
                "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
            ) from None
        driver.stderr.end()
        assert driver.init is not None
        self._memory = MemoryGroup.around(driver.init.pid, self.limits.memory_mb)

    async def _run_setup(self, script: Path) -> None:
        result = await self._run(f"bash -c {shlex.quote(script.read_text())}", SETUP_TIMEOUT_S)
        if result.exit_code != 0:
            raise self._error(f"failed in {script} with exit code {result.exit_code}: {_last_line(result)}")

    async def _run(self, command: str, timeout_s: float) -> ExecResult:
        if UNREADABLE.search(command):
            raise ValueError("a command cannot contain a NUL character or a lone surrogate; remove it")
        async with self._lock:
            return await self._running().run(command, timeout_s)

    async def _reward(self) -> float | None:
        """The verdict in /logs/verifier; None when it is missing or no number from 0 to 1."""
        for name in ("reward.txt", "reward.json"):
            with suppress(FileNotFoundError):
                text = await self.read(f"/logs/verifier/{name}")
                with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
                    reward = float(json.loads(text)["reward"] if name.endswith("json") else text)
                    return reward if math.isfinite(reward) and 0 <= reward <= 1 else None
                return None
        return None

    def _running(self) -> Driver:
        if self._driver is None or self._driver.init is None:
            raise self._error("is not running")
        return self._driver

    def _error(self, text: str) -> SandboxError:
        return SandboxError(f"the sandbox of {self.spec.name} {text}")


def _readable(data: bytes) -> int:
    """A descriptor from which `data` (a few kilobytes at most) can be read once."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.write(writer, data)
    os.close(writer)
    return reader


def _last_line(result: ExecResult) -> str:
    text = (result.stdout + b"\n" + result.stderr).decode(errors="replace").strip()
    return text.splitlines()[-1] if text else "(no output)"
