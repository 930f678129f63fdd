"""The default sandbox: Linux namespaces made by bubblewrap over a copy-on-write root; no daemon, no root.

Guarantees: no command reaches the host's files, processes, environment or network, nor another sandbox.
When `stop` returns no process and no file of the sandbox is left; when the host process dies, the kernel
does the same. Whatever a command does to its shell, the next one finds a shell (see `tasks.sandbox.shell`).

Limits: processes (RLIMIT_NPROC, and a control group where the host lets us make one), memory (of all
together by a control group, else RLIMIT_AS of each process), processor time (control group), file size
(RLIMIT_FSIZE), what is written (size of a tmpfs), output kept, wall-clock time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tasks.sandbox import clock, files, services, verification
from tasks.sandbox.archive import pack
from tasks.sandbox.base import (
    ExecResult,
    OutputListener,
    SandboxError,
    SandboxLimits,
    Snapshot,
)
from tasks.sandbox.box import Box
from tasks.sandbox.channel import Output
from tasks.sandbox.commands import ShellSandbox
from tasks.sandbox.host import agent_image
from tasks.sandbox.image import Image
from tasks.sandbox.programs import ARGV, SHELL
from tasks.sandbox.runtime import SNAPSHOTS, runtime
from tasks.sandbox.shell import TIMEOUT_EXIT_CODE, Host, Process, Shell, clock_ticks
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task


class NamespaceSandbox(ShellSandbox):
    """One private world; see `tasks.sandbox.base.Sandbox` for the protocol."""

    def __init__(
        self, spec: SandboxSpec, limits: SandboxLimits | None = None, store: Path | None = None
    ) -> None:
        super().__init__(spec.name, limits or SandboxLimits())
        self.spec = spec
        self._store = store
        self._box: Box | None = None
        self._shell: Shell | None = None
        self._snapshots: dict[Snapshot, tuple[str, ...]] = {}
        """With the layers that make up its files."""
        self._begun = self._stopped = False

    @classmethod
    def for_task(
        cls,
        task: Task,
        limits: SandboxLimits | None = None,
        store: Path | None = None,
        clock_start: datetime | None = None,
    ) -> NamespaceSandbox:
        """A sandbox with a built-in task's files; it may ask for less memory than `limits`, not more."""
        limits = limits or SandboxLimits()
        memory_mb = min(limits.memory_mb, task.memory_mb or limits.memory_mb)
        files = task.files if task.files.is_dir() else None
        spec = SandboxSpec(task.id, files, task.setup, clock=clock_start)
        return cls(spec, replace(limits, memory_mb=memory_mb), store)

    @property
    def first_pid(self) -> int | None:
        """Host PID of the first process inside, while it runs."""
        return None if self._box is None else self._box.first_pid

    async def start(self) -> None:
        """Make the namespaces, copy the files, run the setup script. Raises SandboxError."""
        if self._begun or self._stopped:
            raise self._error("was started before; make a new one")
        self._begun = True
        spec = self.spec
        try:
            image = await self._image()
            shifted = image.base.shifted
            owner = runtime(self._store, (shifted,) if shifted else ())
            box = self._box = Box(owner, spec.name, image, self.limits)
            await self._launch(box, image.layers)
            if spec.clock is not None:
                env = {**image.config.env, **await clock.variables(self, spec.clock)}
                box.image = replace(image, config=replace(image.config, env=env))
            self._shell = self._new_shell(box, image.config.workdir)
            if spec.files is not None:
                await self.upload(spec.files, image.config.workdir)
            if spec.healthcheck is not None:
                await services.become_healthy(self, spec.healthcheck, f"the sandbox of {spec.name}")
            if spec.shell:
                await self._shell.start()
            if spec.setup is not None:
                await self._run_setup(spec.setup)
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
        new_privileges: bool = False,
    ) -> ExecResult:
        """See the protocol; `new_privileges`: whether programs like sudo work."""
        box, loop = self._running_box(), asyncio.get_running_loop()
        stdout, stderr = Output(self.limits.output_bytes), Output(self.limits.output_bytes)
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        began, since = loop.time(), clock_ticks()
        stdout.begin(on_output and (lambda data: on_output("stdout", data)))
        stderr.begin(on_output and (lambda data: on_output("stderr", data)))
        try:
            fds = {0: null, 1: stdout.inner, 2: stderr.inner}
            program = await box.spawn(argv, fds, user=user, env=env, cwd=cwd, new_privileges=new_privileges)
            timed_out = not await box.finishes(program, since, timeout_s)
            status = TIMEOUT_EXIT_CODE if timed_out else program.ended.result()
            (out, cut_out), (err, cut_err) = stdout.end(), stderr.end()
            duration = loop.time() - began
            return ExecResult(out, err, status, timed_out, cut_out or cut_err, duration_s=duration)
        finally:
            os.close(null)
            stdout.close()
            stderr.close()

    async def read(self, path: str) -> bytes:
        return await files.read(self._running_box(), path)

    async def write(self, path: str, data: bytes, mode: int = 0o644, user: str | None = None) -> None:
        await files.write(self._running_box(), path, data, mode, user)

    async def upload(self, folder: Path, target: str, owner: str | None = None) -> None:
        box = self._running_box()
        ids = await box.ids(box.image.config.user if owner is None else owner)
        await files.extract(box, await asyncio.to_thread(pack, folder, *ids), target)

    async def extract(self, archive: bytes, target: str) -> None:
        """Unpack tar bytes, with the owners and modes that they name, into a folder."""
        await files.extract(self._running_box(), archive, target)

    async def archive(
        self,
        sources: Sequence[str],
        destination: str,
        owner: tuple[int, int] | None = None,
        chmod: int | None = None,
    ) -> bytes:
        """See `tasks.sandbox.files.archive`."""
        return await files.archive(self._running_box(), sources, destination, owner, chmod)

    async def ids(self, user: str) -> tuple[int, int]:
        """Numbers of a user and its group, inside."""
        return await self._running_box().ids(user)

    async def snapshot(self) -> Snapshot:
        async with self._lock:
            box, shell = self._running()
            snapshot = Snapshot(f"{SNAPSHOTS}/{box.runtime.token()}", shell.cwd)
            self._snapshots[snapshot] = (snapshot.name, *box.layers)
            await box.duty("snapshot", target=snapshot.name)
            return snapshot

    async def restore(self, snapshot: Snapshot) -> None:
        if snapshot not in self._snapshots:
            raise self._error("has no such snapshot: a snapshot is of one sandbox, until it is stopped")
        async with self._lock:
            box, shell = self._running()
            shell.close()
            await box.stop()
            await self._launch(box, self._snapshots[snapshot])
            self._shell = self._new_shell(box, snapshot.cwd)
            await self._shell.start()

    async def verify(self, task: Task) -> float:
        """See `tasks.sandbox.verification`."""
        spec = self.spec
        return await verification.verify(self, task, spec.runner, spec.variables, spec.is_verifiable)

    async def end_processes(self) -> None:
        """Kill all that runs, the shell too; the next command finds a fresh one."""
        async with self._lock:
            box, shell = self._running()
            await box.duty("kill_all")
            await shell.end()

    async def stop(self) -> None:
        self._stopped = True
        box, self._box = self._box, None
        shell, self._shell = self._shell, None
        if box is None:
            return
        try:
            await box.stop()
            if self._snapshots:
                with suppress(SandboxError):
                    names = [snapshot.name for snapshot in self._snapshots]
                    await box.runtime.duty("remove", self.spec.name, targets=names)
        finally:
            if shell is not None:
                shell.close()
            box.groups.remove()

    async def _image(self) -> Image:
        image = self.spec.image
        if image is None:
            return await agent_image(runtime(self._store))
        return image if isinstance(image, Image) else await image()

    async def _launch(self, box: Box, layers: tuple[str, ...]) -> None:
        """Start the namespaces and, if the image has an entry point, that."""
        await box.launch(layers, self.spec.upper, self.spec.network)
        if box.image.config.entrypoint:
            await services.start_entrypoint(box)

    def _new_shell(self, box: Box, cwd: str) -> Shell:
        async def spawn(folder: str, fds: dict[int, int]) -> Process:
            return await box.spawn(ARGV, fds, env={"__shell": SHELL}, cwd=folder)

        return Shell(Host(spawn, box.kill, box.error), cwd, self.limits.output_bytes)

    def _running_box(self) -> Box:
        if self._box is None:
            raise self._error("is not running")
        return self._box

    def _running(self) -> tuple[Box, Shell]:
        box = self._running_box()
        if self._shell is None:
            raise self._error("is not running")
        return box, self._shell

    def _running_shell(self) -> Shell:
        return self._running()[1]
