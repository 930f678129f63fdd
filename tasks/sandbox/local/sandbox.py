"""A world that is none: plain processes of the host in a temporary folder, for trusted code only.

IT ISOLATES NOTHING. A command reads and changes whatever the user that runs it may: files, processes,
services and network. Bounded are time, the size of a file (RLIMIT_FSIZE) and the output that is kept;
memory, processes, processor time and disk are not. `LocalSandbox(spec, trusted=True)` is the only way to
get one.

The temporary folder is the work folder and HOME; there is no `/work`, no `/tests` and no `/logs`. When `stop`
returns, the folder and the processes that belong to it (see `tasks.sandbox.local.process`) are gone.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from tasks.sandbox import verification
from tasks.sandbox.archive import pack
from tasks.sandbox.base import (
    LARGEST_READ,
    ExecResult,
    OutputListener,
    SandboxLimits,
    Snapshot,
)
from tasks.sandbox.channel import Output
from tasks.sandbox.commands import ShellSandbox
from tasks.sandbox.host import AGENT
from tasks.sandbox.local import process
from tasks.sandbox.programs import ARGV, SHELL
from tasks.sandbox.shell import TIMEOUT_EXIT_CODE, Host, Process, Shell, clock_ticks
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task

_ABSOLUTE = re.compile(r"(?<![\w.}-])/(tests|logs|work)(?![\w-])")
"""Paths that every other sandbox has and this one lacks; `${TESTS:-/tests}`, which works in both, is none."""


class LocalSandbox(ShellSandbox):
    """Commands in a temporary folder of the host; see `tasks.sandbox.base.Sandbox` for the protocol."""

    def __init__(
        self, spec: SandboxSpec, limits: SandboxLimits | None = None, *, trusted: bool = False
    ) -> None:
        """Raises SandboxError unless the caller says that the code is trusted."""
        super().__init__(spec.name, limits or SandboxLimits())
        self.spec = spec
        if not trusted:
            raise self._error(
                "would be local, which isolates nothing: say trusted=True for code that may do what you may "
                "on this machine, or use the namespace sandbox"
            )
        if spec.image is not None:
            raise self._error("is local and has no image: use the namespace or docker sandbox")
        self.folder = ""
        """On the host; the work folder and HOME of every command."""
        self._shell: Shell | None = None
        self._programs: set[int] = set()
        self._leaders: list[process.Process] = []
        self._snapshots: list[Snapshot] = []
        self._stopped = False

    @classmethod
    def for_task(
        cls, task: Task, limits: SandboxLimits | None = None, *, trusted: bool = False
    ) -> LocalSandbox:
        """A sandbox with the task's files; its Dockerfile is not run."""
        files = task.files if task.files.is_dir() else None
        return cls(SandboxSpec(task.id, files, task.setup), limits, trusted=trusted)

    async def start(self) -> None:
        """Make the folder, copy the files, run the setup script. Raises SandboxError."""
        if self.folder or self._stopped:
            raise self._error("was started before; make a new one")
        self.folder = tempfile.mkdtemp(prefix="obsspec-local-")
        try:
            self._shell = self._new_shell(self.folder)
            if self.spec.files is not None:
                await self.upload(self.spec.files, ".")
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
        if user is not None:
            raise self._error(f"is local and cannot run as {user}: use the namespace or docker sandbox")
        loop = asyncio.get_running_loop()
        began, since = loop.time(), clock_ticks()
        stdout, stderr = Output(self.limits.output_bytes), Output(self.limits.output_bytes)
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        timed_out, status = False, TIMEOUT_EXIT_CODE
        try:
            stdout.begin(on_output and (lambda data: on_output("stdout", data)))
            stderr.begin(on_output and (lambda data: on_output("stderr", data)))
            fds = {0: null, 1: stdout.inner, 2: stderr.inner}
            program = self._start(argv, fds, {**self._environment, **(env or {})}, self._path(cwd or "."))
            self._programs.add(program.pid)
            try:
                async with asyncio.timeout(timeout_s):
                    status = await asyncio.shield(program.ended)
            except TimeoutError:
                timed_out = True
            finally:
                self._programs.discard(program.pid)
                if not program.ended.done():
                    await asyncio.shield(self._kill(program, since))
            (out, cut_out), (err, cut_err) = stdout.end(), stderr.end()
            return ExecResult(out, err, status, timed_out, cut_out or cut_err, duration_s=loop.time() - began)
        finally:
            os.close(null)
            stdout.close()
            stderr.close()

    async def read(self, path: str) -> bytes:
        """A relative path is one below the work folder."""
        self._running_shell()
        return await asyncio.to_thread(_read, self._path(path))

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._running_shell()
        file = Path(self._path(path))
        try:
            await asyncio.to_thread(_write, file, data, mode)
        except OSError as error:
            raise self._error(f"could not write {path}: {error.strerror}") from None

    async def upload(self, folder: Path, target: str, owner: str | None = None) -> None:
        if owner is not None:
            raise self._error(
                f"is local and cannot give files to {owner}: use the namespace or docker sandbox"
            )
        data = await asyncio.to_thread(pack, folder, os.getuid(), os.getgid())
        try:
            await asyncio.to_thread(_unpack, data, self._path(target))
        except (OSError, tarfile.TarError) as error:
            raise self._error(f"could not unpack its files: {error}") from None

    async def snapshot(self) -> Snapshot:
        async with self._lock:
            shell = self._running_shell()
            folder = tempfile.mkdtemp(prefix="obsspec-snapshot-")
            self._snapshots.append(Snapshot(folder, shell.cwd))
            await self._copy(self.folder, folder)
            return self._snapshots[-1]

    async def restore(self, snapshot: Snapshot) -> None:
        if snapshot not in self._snapshots:
            raise self._error("has no such snapshot: a snapshot is of one sandbox, until it is stopped")
        async with self._lock:
            self._running_shell().close()
            await self._kill(None, -1)
            await asyncio.to_thread(_clear, self.folder)
            await self._copy(snapshot.name, self.folder)
            self._shell = self._new_shell(snapshot.cwd)
            await self._shell.start()

    async def verify(self, task: Task) -> float:
        """Run the tests from a folder that they find in $TESTS; the verdict goes to $LOGS/verifier.

        Raises SandboxError for tests that name the fixed folders of the other sandboxes, whose verdict would
        mean nothing here, and as `tasks.sandbox.verification` does.
        """
        self._running_shell()
        if (found := await asyncio.to_thread(_fixed_folder, task.tests)) is not None:
            raise self._error(
                f"is local and cannot be verified: {found}, which is not there; write ${{TESTS:-/tests}}, "
                f"${{LOGS:-/logs}} and relative paths, or use the namespace or docker sandbox"
            )
        with tempfile.TemporaryDirectory(prefix="obsspec-verifier-") as place:
            tests, logs = f"{place}/tests", f"{place}/logs"
            os.makedirs(f"{logs}/verifier")
            await self.upload(task.tests, tests)
            env = {**task.verifier_env, "TESTS": tests, "LOGS": logs}
            result = await self.run(["bash", f"{tests}/test.sh"], task.verifier_timeout_s, env=env)
            return await verification.verdict(self, task, result, f"{logs}/verifier")

    async def end_processes(self) -> None:
        """Kill all that runs; the next command finds a fresh shell."""
        async with self._lock:
            shell = self._running_shell()
            await self._kill(None, -1)
            await shell.end()

    async def stop(self) -> None:
        self._stopped = True
        shell, self._shell = self._shell, None
        if not self.folder:
            return
        await self._kill(None, -1)
        if shell is not None:
            async with self._lock:  # the command that ran finds that it cannot have another shell
                shell.close()
        folders = [self.folder, *(snapshot.name for snapshot in self._snapshots)]
        for folder in folders:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    @property
    def _environment(self) -> dict[str, str]:
        return {**AGENT.environment, "HOME": self.folder}

    def _new_shell(self, cwd: str) -> Shell:
        async def spawn(folder: str, fds: dict[int, int]) -> Process:
            if self._stopped:
                raise self._error("is gone")
            there = folder if os.path.isdir(folder) else self.folder
            return self._start(ARGV, fds, {**self._environment, "__shell": SHELL}, there)

        async def kill(shell: Process, since: int) -> None:
            await self._kill(shell, since)

        return Shell(Host(spawn, kill, self._error), cwd, self.limits.output_bytes)

    def _start(
        self, argv: Sequence[str], fds: Mapping[int, int], env: Mapping[str, str], cwd: str
    ) -> process.Process:
        started = process.start(argv, fds, env, cwd, self.limits.file_mb)
        self._leaders = [leader for leader in self._leaders if not leader.ended.done()] + [started]
        return started

    async def _kill(self, leader: Process | None, since: int) -> None:
        spared = frozenset(self._programs) if since >= 0 else frozenset()
        pid = leader.pid if leader is not None else None
        # Those alive alone: the host may have given the PID of another away.
        leaders = frozenset(leader.pid for leader in self._leaders if not leader.ended.done())
        await asyncio.to_thread(process.kill_since, since, pid, self.folder, leaders, spared)

    async def _copy(self, source: str, target: str) -> None:
        copying = await asyncio.create_subprocess_exec("cp", "-a", "--", f"{source}/.", target)
        if await copying.wait() != 0:
            raise self._error(f"could not copy its folder {source} to {target}: is the disk full?")

    def _path(self, path: str) -> str:
        return os.path.join(self.folder, path)

    def _running_shell(self) -> Shell:
        if self._shell is None:
            raise self._error("is not running")
        return self._shell


def _read(path: str) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_READ:
                return file.read(LARGEST_READ)
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error.strerror}") from None
    raise FileNotFoundError(f"{path}: not a regular file of at most {LARGEST_READ} bytes")


def _write(file: Path, data: bytes, mode: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(mode)


def _unpack(data: bytes, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        archive.extractall(target, filter="fully_trusted")


def _clear(folder: str) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _fixed_folder(tests: Path) -> str | None:
    """Where a file of the tests names a folder that is not there."""
    for file in sorted(path for path in tests.rglob("*") if path.is_file()):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if (found := _ABSOLUTE.search(line)) is not None:
                return f"line {number} of {file.relative_to(tests.parent)} names {found[0]}"
    return None
