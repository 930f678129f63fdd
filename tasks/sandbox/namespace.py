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
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tasks.sandbox import clock, network, verification
from tasks.sandbox.archive import pack
from tasks.sandbox.base import (
    LARGEST_READ,
    UNREADABLE,
    ExecResult,
    OutputListener,
    SandboxError,
    SandboxLimits,
    Snapshot,
)
from tasks.sandbox.cgroup import ControlGroups
from tasks.sandbox.channel import Output
from tasks.sandbox.host import agent_image
from tasks.sandbox.image import Base, Image
from tasks.sandbox.launcher.box import BoxSpec
from tasks.sandbox.programs import ARGV, SHELL
from tasks.sandbox.runtime import SNAPSHOTS, Program, Runtime, memory_file, runtime
from tasks.sandbox.shell import TIMEOUT_EXIT_CODE, Host, Process, Shell, clock_ticks
from tasks.task import Healthcheck, Task

SETUP_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 10.0
HOSTNAME = "sandbox"
_HANDED_OVER = 9
KEEP_ALIVE = ("sh", "-c", f"(echo >&{_HANDED_OVER}) 2>/dev/null; exec sleep infinity")
"""What an entry point is given to run, as Harbor does it; its first words say that it was reached."""
ENTRYPOINT_S = 20.0
"""The longest that a start waits for that."""

_COPIED = """\
set -e
destination=$1 owner=$2 group=$3 mode=$4; shift 4
for pattern; do
  for source in $(cd / && printf '%s\\n' "/${pattern#/}" | sed 's/ /?/g'); do
    if [ -d "$source" ]; then
      mkdir -p "/.copied$destination"
      cp -a "$source/." "/.copied$destination"
    elif [ "${destination%/}" != "$destination" ]; then
      mkdir -p "/.copied$destination"
      cp -aL "$source" "/.copied$destination"
    else
      mkdir -p "$(dirname "/.copied$destination")"
      cp -aL "$source" "/.copied$destination"
    fi
  done
done
cd /.copied
set -- --numeric-owner ${owner:+"--owner=x:$owner" "--group=x:$group"} ${mode:+"--mode=$mode"}
if [ -d ".$destination" ]; then
  find ".${destination%/}" -mindepth 1 -print0 | tar -c "$@" --no-recursion --null -T -
else
  tar -c "$@" ".$destination"
fi
"""
"""Gathers files at their destination, wildcards and all, and prints an archive of them (no folder above)."""


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox starts with; `name` appears in errors."""

    name: str = "sandbox"
    files: Path | None = None
    """Folder whose content is copied to the image's working folder."""
    setup: Path | None = None
    """Script run once there; it must exit 0."""
    image: Image | Callable[[], Awaitable[Image]] | None = None
    """None: the built-in world (`tasks.sandbox.host.agent_image`). A function is called at the start."""
    runner: Callable[[], Awaitable[bytes | None]] | None = None
    """Gives what stands in for the test runner, as tar bytes (see `tasks.verifier.runner`)."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What `${NAME}` in the variables of the task's verifier may name."""
    healthcheck: Healthcheck | None = None
    network: bool = False
    """Whether it reaches the internet; the host's own services it never does."""
    clock: datetime | None = None
    """When every program starts (UTC); None: now."""
    shell: bool = True
    """Whether there is a shell to `exec` in; a build has none."""
    upper: str | None = None
    """Folder of the store that keeps what is written (a build); None: nothing is kept."""


class NamespaceSandbox:
    """One private world; see `tasks.sandbox.base.Sandbox` for the protocol."""

    def __init__(
        self, spec: SandboxSpec, limits: SandboxLimits | None = None, store: Path | None = None
    ) -> None:
        self.spec = spec
        self.limits = limits or SandboxLimits()
        self._store = store
        self._lock = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._image = Image(Base(""))
        self._number = 0
        self.first_pid: int | None = None
        """Host PID of the first process inside, while it runs."""
        self._shell: Shell | None = None
        self._groups: ControlGroups | None = None
        self._network: network.Network | None = None
        self._layers: tuple[str, ...] = ()
        """What it runs over, above the base."""
        self._snapshots: dict[Snapshot, tuple[str, ...]] = {}
        """With the layers that make up its files."""
        self._stopped = False

    @classmethod
    def for_task(
        cls, task: Task, limits: SandboxLimits | None = None, store: Path | None = None
    ) -> NamespaceSandbox:
        """A sandbox with the task's files; the task may ask for less memory than `limits`, not more."""
        limits = limits or SandboxLimits()
        memory_mb = min(limits.memory_mb, task.memory_mb or limits.memory_mb)
        files = task.files if task.files.is_dir() else None
        return cls(SandboxSpec(task.id, files, task.setup), replace(limits, memory_mb=memory_mb), store)

    async def __aenter__(self) -> NamespaceSandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make the namespaces, copy the files, run the setup script. Raises SandboxError."""
        if self._runtime is not None or self._stopped:
            raise self._error("was started before; make a new one")
        try:
            image = self.spec.image
            if image is None:
                image = await agent_image(runtime(self._store))
            elif not isinstance(image, Image):
                image = await image()
            self._image, shifted = image, image.base.shifted
            self._runtime = runtime(self._store, (shifted,) if shifted else ())
            self._groups = ControlGroups.make(self.limits)
            await self._launch(self._image.layers)
            if self.spec.clock is not None:
                await self._set_clock(self.spec.clock)
            self._shell = self._new_shell(self._image.config.workdir)
            if self.spec.files is not None:
                await self.upload(self.spec.files, self._image.config.workdir)
            if self.spec.healthcheck is not None:
                await self._become_healthy(self.spec.healthcheck)
            if self.spec.shell:
                await self._shell.start()
            if self.spec.setup is not None:
                await self._run_setup(self.spec.setup)
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def exec(
        self, command: str, timeout_s: float | None = None, on_output: OutputListener | None = None
    ) -> ExecResult:
        """Run a command; see the protocol. Raises SandboxError when the sandbox itself is gone."""
        limit = self.limits.command_timeout_s
        return await self._exec(command, limit if timeout_s is None else min(timeout_s, limit), on_output)

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
        config = self._image.config
        loop = asyncio.get_running_loop()
        stdout, stderr = Output(self.limits.output_bytes), Output(self.limits.output_bytes)
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        began, since = loop.time(), clock_ticks()
        stdout.begin(on_output and (lambda data: on_output("stdout", data)))
        stderr.begin(on_output and (lambda data: on_output("stderr", data)))
        try:
            program = await self._spawn(
                argv,
                {0: null, 1: stdout.inner, 2: stderr.inner},
                {**config.environment, **(env or {})},
                cwd or config.workdir,
                config.user if user is None else user,
                new_privileges,
            )
            timed_out = not await self._finishes(program, since, timeout_s)
            status = TIMEOUT_EXIT_CODE if timed_out else program.ended.result()
            (out, cut_out), (err, cut_err) = stdout.end(), stderr.end()
            duration = loop.time() - began
            return ExecResult(out, err, status, timed_out, cut_out or cut_err, duration_s=duration)
        finally:
            os.close(null)
            stdout.close()
            stderr.close()

    async def read(self, path: str) -> bytes:
        with memory_file() as fd:
            try:
                await self._duty("read", [fd], path=path, largest=LARGEST_READ)
            except SandboxError as error:
                if self._is_gone():
                    raise
                raise FileNotFoundError(str(error)) from None
            return _content(fd)

    async def write(self, path: str, data: bytes, mode: int = 0o644, user: str | None = None) -> None:
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1" && chmod "$2" -- "$1"'
        config, stderr, since = self._image.config, Output(4096), clock_ticks()
        stderr.begin()
        try:
            with memory_file(data) as fd:
                program = await self._spawn(
                    ["sh", "-c", script, "sh", path, f"{mode:o}"],
                    {0: fd, 1: stderr.inner, 2: stderr.inner},
                    config.environment,
                    config.workdir,
                    config.user if user is None else user,
                )
            if not await self._finishes(program, since, WRITE_TIMEOUT_S):
                raise self._error(f"could not write {path} within {WRITE_TIMEOUT_S:g} s: is it a named pipe?")
            if program.ended.result() != 0:
                message = stderr.end()[0].decode(errors="replace").strip().splitlines()
                raise self._error(f"could not write {path}: {message[-1] if message else 'no reason given'}")
        finally:
            stderr.close()

    async def upload(self, folder: Path, target: str, owner: str | None = None) -> None:
        ids = await self.ids(self._image.config.user if owner is None else owner)
        await self.extract(await asyncio.to_thread(pack, folder, *ids), target)

    async def extract(self, archive: bytes, target: str) -> None:
        """Unpack tar bytes, with the owners and modes that they name, into a folder."""
        with memory_file(archive) as fd:
            await self._duty("extract", [fd], target=target)

    async def archive(
        self,
        sources: Sequence[str],
        destination: str,
        owner: tuple[int, int] | None = None,
        chmod: int | None = None,
    ) -> bytes:
        """Tar bytes, for `/`, of files as COPY puts them at a destination, which ends in `/` if a folder.
        Each file keeps its owner and mode unless others are given."""
        stderr = Output(4096)
        stderr.begin()
        try:
            with memory_file() as fd:
                ids = ["", ""] if owner is None else [str(number) for number in owner]
                mode = "" if chmod is None else f"{chmod:o}"
                argv = ["sh", "-c", _COPIED, "sh", destination, *ids, mode, *sources]
                program = await self._spawn(
                    argv, {1: fd, 2: stderr.inner}, self._image.config.environment, "/", "root"
                )
                if await asyncio.shield(program.ended) != 0:
                    raise self._error(f"lacks a source: {stderr.end()[0].decode(errors='replace').strip()}")
                return _content(fd)
        finally:
            stderr.close()

    async def snapshot(self) -> Snapshot:
        async with self._lock:
            runtime_, shell = self._running()
            snapshot = Snapshot(f"{SNAPSHOTS}/{runtime_.token()}", shell.cwd)
            self._snapshots[snapshot] = (snapshot.name, *self._layers)
            await self._duty("snapshot", [], target=snapshot.name)
            return snapshot

    async def restore(self, snapshot: Snapshot) -> None:
        if snapshot not in self._snapshots:
            raise self._error("has no such snapshot: a snapshot is of one sandbox, until it is stopped")
        async with self._lock:
            runtime_, shell = self._running()
            old, self._number = self._number, 0
            shell.close()
            ended = asyncio.create_task(runtime_.stop(old, self.spec.name))
            try:
                await self._disconnect()
                await self._launch(self._snapshots[snapshot])
                self._shell = self._new_shell(snapshot.cwd)
                await self._shell.start()
            finally:
                await ended

    async def verify(self, task: Task) -> float:
        """See `tasks.sandbox.verification`."""
        return await verification.verify(self, task, self.spec.runner, self.spec.variables)

    async def end_processes(self) -> None:
        """Kill all that runs, the shell too; the next command finds a fresh one."""
        async with self._lock:
            _, shell = self._running()
            await self._duty("kill_all", [])
            await shell.end()

    async def stop(self) -> None:
        self._stopped, self.first_pid = True, None
        runtime_, self._runtime = self._runtime, None
        shell, self._shell = self._shell, None
        if runtime_ is None:
            return
        try:
            await self._disconnect()
            if self._number:
                await runtime_.stop(self._number, self.spec.name)
            if self._snapshots:
                with suppress(SandboxError):
                    names = [snapshot.name for snapshot in self._snapshots]
                    await runtime_.duty("remove", self.spec.name, targets=names)
        finally:
            if shell is not None:
                shell.close()
            if self._groups is not None:
                self._groups.remove()

    async def _launch(self, layers: tuple[str, ...]) -> None:
        """Start the namespaces and, if the image has an entry point, that."""
        assert self._runtime is not None
        assert self._groups is not None
        image = self._image
        number, self._layers = self._runtime.next_number(), layers
        self._number = number
        cgroups = self._groups.open()
        try:
            self.first_pid = pid = await self._runtime.start(
                BoxSpec(
                    number=number,
                    layers=layers,
                    base="shifted:0" if image.base.shifted else image.base.folder,
                    host_usr=image.base.host_usr,
                    upper=self.spec.upper,
                    disk_mb=self.limits.disk_mb,
                    uid=image.uid,
                    gid=image.uid,
                    hostname=HOSTNAME,
                ),
                cgroups,
                f"the sandbox of {self.spec.name}",
            )
        finally:
            for fd in cgroups:
                os.close(fd)
        if self.spec.network:
            self._network = await network.connect(pid, self._error)
        if image.config.entrypoint:
            await self._start_entrypoint()

    async def _disconnect(self) -> None:
        connection, self._network = self._network, None
        if connection is not None:
            await connection.close()

    async def _start_entrypoint(self) -> None:
        """In the background, until it hands over to what it was given to run, or for a bounded time. What it
        prints is nobody's. Raises SandboxError if it failed before."""
        config = self._image.config
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        said, say = os.pipe2(os.O_CLOEXEC)
        try:
            argv = [*config.entrypoint, *KEEP_ALIVE]
            fds = {0: null, 1: null, 2: null, _HANDED_OVER: say}
            program = await self._spawn(argv, fds, config.environment, config.workdir, config.user)
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
            raise self._error(
                f"has an entry point that ended with status {program.ended.result()}: "
                f"{shlex.join(config.entrypoint)}"
            )

    async def _set_clock(self, start: datetime) -> None:
        config = self._image.config
        given = await clock.variables(self, start)
        self._image = replace(self._image, config=replace(config, env={**config.env, **given}))

    async def _become_healthy(self, check: Healthcheck) -> None:
        """Wait until the task's own check succeeds. Raises SandboxError after the failures that it allows."""
        loop = asyncio.get_running_loop()
        began, failures = loop.time(), 0
        while (result := await self.run(["sh", "-c", check.command], check.timeout_s)).exit_code != 0:
            starting = loop.time() - began < check.start_period_s
            failures += not starting
            if failures >= check.retries:
                last = verification.last_line(result)
                raise self._error(f"is not healthy after {failures} checks with {check.command!r}: {last}")
            await asyncio.sleep(check.start_interval_s if starting else check.interval_s)

    def _new_shell(self, cwd: str) -> Shell:
        config = self._image.config

        async def spawn(folder: str, fds: dict[int, int]) -> Process:
            return await self._spawn(ARGV, fds, {**config.environment, "__shell": SHELL}, folder, config.user)

        return Shell(Host(spawn, self._kill, self._error), cwd, self.limits.output_bytes)

    async def _spawn(
        self,
        argv: Sequence[str],
        fds: dict[int, int],
        env: Mapping[str, str],
        cwd: str,
        user: str,
        new_privileges: bool = False,
    ) -> Program:
        runtime_ = self._runtime
        if runtime_ is None or not self._number:
            raise self._error("is not running")
        return await runtime_.run(
            self._number,
            f"the sandbox of {self.spec.name}",
            fds,
            argv=list(argv),
            env=dict(env),
            cwd=cwd,
            user=user,
            limits=self._resource_limits(),
            new_privileges=new_privileges,
        )

    def _resource_limits(self) -> dict[str, int]:
        limits = self.limits
        values = {"CORE": 0, "NOFILE": 1024, "FSIZE": limits.file_mb << 20, "NPROC": limits.processes}
        if self._groups is None or not self._groups.bound_memory:
            values["AS"] = limits.memory_mb << 20
        return values

    async def _finishes(self, program: Program, since: int, timeout_s: float) -> bool:
        """Whether a program ends in time by itself; else it is killed, with all that was started since."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(program.ended)
        except TimeoutError:
            return False
        finally:
            if not program.ended.done():
                await asyncio.shield(self._kill(program, since))
        return True

    async def _kill(self, process: Process, since: int) -> None:
        await self._duty("kill", [], since=since, parent=process.pid)

    async def _run_setup(self, script: Path) -> None:
        result = await self._exec(f"bash -c {shlex.quote(script.read_text())}", SETUP_TIMEOUT_S)
        if result.exit_code != 0:
            raise self._error(
                f"failed in {script} with exit code {result.exit_code}: {verification.last_line(result)}"
            )

    async def _exec(
        self, command: str, timeout_s: float, on_output: OutputListener | None = None
    ) -> ExecResult:
        if UNREADABLE.search(command):
            raise ValueError("a command cannot contain a NUL character or a lone surrogate; remove it")
        async with self._lock:
            return await self._running()[1].run(command, timeout_s, on_output)

    async def ids(self, user: str) -> tuple[int, int]:
        """Numbers of a user and group of the sandbox."""
        assert self._runtime is not None
        if not self._runtime.has_users:
            return self._image.uid, self._image.uid
        result = await self._duty("account", [], user=user)
        return int(result[0]), int(result[1])

    async def _duty(self, op: str, fds: list[int], **fields: object) -> list[int]:
        if self._runtime is None or not self._number:
            raise self._error("is not running")
        name = f"the sandbox of {self.spec.name}"
        result = await self._runtime.duty(op, name, fds, number=self._number, **fields)
        return result if isinstance(result, list) else []

    def _is_gone(self) -> bool:
        return self._runtime is None or self._runtime.is_gone(self._number)

    def _running(self) -> tuple[Runtime, Shell]:
        if self._runtime is None or self._shell is None:
            raise self._error("is not running")
        return self._runtime, self._shell

    def _error(self, text: str) -> SandboxError:
        return SandboxError(f"the sandbox of {self.spec.name} {text}")


def _content(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", closefd=False) as file:
        return file.read()
