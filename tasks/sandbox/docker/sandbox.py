"""A Docker container as a sandbox, where there is a daemon.

Guarantees: what Docker does. A command has Docker's namespaces, default capabilities and seccomp filter, no
new privileges, and no network unless the spec allows one. That is Docker's bridge then: services of this
machine that listen on more than loopback can be reached over it. When `stop` returns, the container, its
volumes and its snapshots are gone; those of a process that died go when the next one starts a sandbox.

Limits: memory of all together, processor time, processes, size of a file, output, time. `disk_mb` holds
only where Docker's storage driver has a bound (`--storage-opt size`: overlay2 on XFS with pquota, btrfs,
zfs); elsewhere `Container.bounds_disk` becomes False. An image needs bash and coreutils. What is in
`/dev/shm` is in no snapshot.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from tasks.sandbox import verification
from tasks.sandbox.archive import pack
from tasks.sandbox.base import (
    ExecResult,
    OutputListener,
    SandboxError,
    SandboxLimits,
    Snapshot,
)
from tasks.sandbox.commands import ShellSandbox
from tasks.sandbox.docker import images, owner
from tasks.sandbox.docker.client import call
from tasks.sandbox.docker.container import Container
from tasks.sandbox.docker.images import DockerImage
from tasks.sandbox.docker.program import Program
from tasks.sandbox.docker.programs import SHELL, SHELL_ARGV
from tasks.sandbox.docker.shell import DockerShell, Host
from tasks.sandbox.docker.stream import Kept
from tasks.sandbox.image import FIXED_ENVIRONMENT
from tasks.sandbox.shell import TIMEOUT_EXIT_CODE
from tasks.task import Task

_LAST_WORDS_S = 5.0
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1" && chmod "$2" -- "$1"'


@dataclass(frozen=True)
class DockerSpec:
    """What a container starts with; `name` appears in errors."""

    image: str | Callable[[], Awaitable[str]]
    """Name of an image of the daemon; a function is called at the start."""
    name: str = "sandbox"
    files: Path | None = None
    """Folder whose content is copied to the working folder."""
    setup: Path | None = None
    """Script run once there; it must exit 0."""
    user: str | None = None
    """Of commands; None: the image's."""
    workdir: str | None = None
    """None: the image's."""
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    runner: Callable[[], Awaitable[bytes | None]] | None = None
    """Gives what stands in for the test runner, as tar bytes (see `tasks.verifier.runner`)."""


class DockerSandbox(ShellSandbox):
    """One private world; see `tasks.sandbox.base.Sandbox` for the protocol."""

    _swept: ClassVar[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()

    def __init__(self, spec: DockerSpec, limits: SandboxLimits | None = None) -> None:
        super().__init__(spec.name, limits or SandboxLimits())
        self.spec = spec
        self._image = DockerImage()
        self._container = Container(self._error)
        self._shell: DockerShell | None = None
        self._began = 0
        """When the first shell did, in hundredths of a second since boot."""
        self._snapshots: list[Snapshot] = []
        self._stopped = False

    @classmethod
    def for_task(
        cls,
        task: Task,
        limits: SandboxLimits | None = None,
        *,
        network: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> DockerSandbox:
        """A sandbox of the task's own image, which is built or pulled when it starts, unless it is there.

        The task may ask for less memory than `limits`, not more; for a network only where `network` is.
        """
        limits = limits or SandboxLimits()
        memory_mb = min(limits.memory_mb, task.memory_mb or limits.memory_mb)
        spec = DockerSpec(
            partial(images.task_image, task),
            task.id,
            user=task.agent_user,
            workdir=task.workdir,
            env=env or {},
            network=network and task.allow_internet,
        )
        return cls(spec, replace(limits, memory_mb=memory_mb))

    async def start(self) -> None:
        """Make the container, copy the files, run the setup script. Raises SandboxError."""
        if self._image.name or self._stopped:
            raise self._error("was started before; make a new one")
        try:
            await self._sweep()
            image = self.spec.image
            self._image = await images.inspect(image if isinstance(image, str) else await image())
            await self._launch(self._image.name)
            self._shell = self._new_shell(self._workdir)
            if self.spec.files is not None:
                await self.upload(self.spec.files, self._workdir)
            await self._shell.start()
            if self.spec.setup is not None:
                await self._run_setup(self.spec.setup)
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def run(
        self,
        argv: Sequence[str],
        timeout_s: float,
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        self._running_shell()
        stdout = Kept(self.limits.output_bytes, on_output and (lambda data: on_output("stdout", data)))
        stderr = Kept(self.limits.output_bytes, on_output and (lambda data: on_output("stderr", data)))
        loop = asyncio.get_running_loop()
        clock, timed_out, status = loop.time(), False, TIMEOUT_EXIT_CODE
        folder = os.path.join(self._workdir, cwd or "")
        program = await self._container.start(argv, "run", folder, env or {}, user or self._user)
        over = loop.create_task(program.until((), stdout, stderr))
        try:
            async with asyncio.timeout(timeout_s):
                status = await program.status((await asyncio.shield(over))[0])
        except TimeoutError:
            timed_out = True
        finally:
            stdout.listener = stderr.listener = None
            await asyncio.shield(self._finish(program, over))
        duration = loop.time() - clock
        truncated = stdout.truncated or stderr.truncated
        return ExecResult(
            bytes(stdout.data), bytes(stderr.data), status, timed_out, truncated, duration_s=duration
        )

    async def read(self, path: str) -> bytes:
        """See the protocol. What lies on a mount, as in /dev/shm and /proc, is not found."""
        self._running_shell()
        return await self._container.read(os.path.join(self._workdir, path))

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._running_shell()
        options = (
            "--interactive",
            f"--user={self._user}",
            f"--workdir={self._workdir}",
            self._container.name,
        )
        script = ("sh", "-c", _WRITE, "sh", path, f"{mode:o}")
        await self._container.duty(f"could not write {path}", "exec", *options, *script, stdin=data)

    async def upload(self, folder: Path, target: str, owner: str | None = None) -> None:
        self._running_shell()
        ids = await self._container.ids(owner or self._user)
        await self.extract(await asyncio.to_thread(pack, folder, *ids), target)

    async def extract(self, archive: bytes, target: str) -> None:
        """Unpack tar bytes, with the owners and modes that they name, into a folder."""
        self._running_shell()
        duty, name = self._container.duty, self._container.name
        target = os.path.join(self._workdir, target)
        await duty(f"could not make {target}", "exec", "--user=0", name, "mkdir", "-p", "--", target)
        await duty(f"could not unpack files to {target}", "cp", "-", f"{name}:{target}", stdin=archive)

    async def snapshot(self) -> Snapshot:
        """See the protocol. Raises SandboxError where the image has volumes, which no snapshot holds."""
        async with self._lock:
            shell = self._running_shell()
            if self._image.volumes:
                raise self._error(f"has volumes ({', '.join(self._image.volumes)}), which no snapshot holds")
            name = f"obsspec-snapshot:{secrets.token_hex(16)}"
            self._snapshots.append(Snapshot(name, shell.cwd))
            await self._container.duty("could not be remembered", "commit", self._container.name, name)
            return self._snapshots[-1]

    async def restore(self, snapshot: Snapshot) -> None:
        if snapshot not in self._snapshots:
            raise self._error("has no such snapshot: a snapshot is of one sandbox, until it is stopped")
        async with self._lock:
            await self._running_shell().close()
            await self._container.remove()
            self._container = Container(self._error)
            await self._launch(snapshot.name)
            self._shell = self._new_shell(snapshot.cwd)
            await self._shell.start()

    async def verify(self, task: Task) -> float:
        """See `tasks.sandbox.verification`."""
        return await verification.verify(self, task, self.spec.runner)

    async def end_processes(self) -> None:
        """Kill all that runs but the entry point and its own; the next command finds a fresh shell."""
        async with self._lock:
            shell = self._running_shell()
            await self._container.kill(0, self._began)
            await shell.end()

    async def stop(self) -> None:
        self._stopped = True
        shell, self._shell = self._shell, None
        try:
            await self._container.remove()
            if self._snapshots:
                # Newest first: one that was made of another goes before it.
                names = [snapshot.name for snapshot in reversed(self._snapshots)]
                await call("rmi", "--force", *names)
                self._snapshots = []
        finally:
            if shell is not None:
                await shell.close()

    async def _sweep(self) -> None:
        """Once for this process and loop, remove what dead ones left."""
        loop = asyncio.get_running_loop()
        if loop not in DockerSandbox._swept:
            DockerSandbox._swept.add(loop)
            await owner.remove_leftovers()

    async def _launch(self, image: str) -> None:
        fixed = {name: value for name, value in FIXED_ENVIRONMENT.items() if name not in self._image.env}
        env = {**fixed, **self.spec.env}
        await self._container.launch(image, self._image, env, self.limits, self.spec.network)

    def _new_shell(self, cwd: str) -> DockerShell:
        async def spawn(folder: str) -> Program:
            program = await self._container.start(SHELL_ARGV, "shell", folder, {"__shell": SHELL}, self._user)
            self._began = self._began or program.since
            return program

        async def kill(program: Program, since: int) -> None:
            await self._container.kill(program.pid, since)

        return DockerShell(Host(spawn, kill, self._error), cwd, self.limits.output_bytes)

    async def _finish(self, program: Program, over: asyncio.Task[object]) -> None:
        """End a program, if it still runs, and take what it had printed."""
        if not over.done():
            with suppress(SandboxError):
                await self._container.kill(program.pid, program.since)
            await asyncio.wait([over], timeout=_LAST_WORDS_S)
        await program.close()
        await asyncio.wait([over])

    @property
    def _user(self) -> str:
        return self.spec.user or self._image.user

    @property
    def _workdir(self) -> str:
        return self.spec.workdir or self._image.workdir

    def _running_shell(self) -> DockerShell:
        if self._shell is None:
            raise self._error("is not running")
        return self._shell
