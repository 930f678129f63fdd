"""One container: started, entered, killed in, removed.

Its main process is root's, because `docker exec --user=root` has no capabilities in a container of another
user that gains no new privileges; an entry point for another user is started in it as that one.

Once `docker run` has begun it is waited for, so that `remove` finds what there is to remove, whatever was
cancelled.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import secrets
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from tasks.sandbox.base import LARGEST_READ, SandboxError, SandboxLimits
from tasks.sandbox.docker import owner
from tasks.sandbox.docker.client import Answer, call
from tasks.sandbox.docker.images import DockerImage
from tasks.sandbox.docker.program import Program
from tasks.sandbox.docker.programs import KILL

HOSTNAME = "sandbox"
KEEP_ALIVE = ("sh", "-c", "sleep infinity")
"""What an entry point is given to run, as Harbor does it."""
_OWN_PROCESSES = 8
"""Docker's init, the main process, and what keeps a shell."""
_KILL_TIMEOUT_S = 10.0
_IDS = 'id -u -- "$1" && id -g -- "$1"'


class Container:
    """`error` makes a SandboxError that names the sandbox."""

    bounds_disk: ClassVar[bool] = True
    """Whether the daemon has a bound of what a container writes, as far as is known."""
    _numbers: ClassVar[itertools.count[int]] = itertools.count(1)

    def __init__(self, error: Callable[[str], SandboxError]) -> None:
        self.name = f"obsspec-{os.getpid()}-{next(self._numbers)}-{secrets.token_hex(4)}"
        self._error = error
        self._creating: asyncio.Task[Answer] | None = None

    async def launch(
        self, image: str, base: DockerImage, env: Mapping[str, str], limits: SandboxLimits, network: bool
    ) -> None:
        """Start an image, `base` or a snapshot of it, with the limits that this daemon can hold.

        Raises SandboxError.
        """
        others = base.entrypoint if base.user not in ("root", "0") else ()
        for bounds_disk in (True, False) if Container.bounds_disk else (False,):
            options = [
                *("--detach", "--init", "--pull=never", f"--name={self.name}", f"--hostname={HOSTNAME}"),
                *(f"--label={owner.LABEL}={owner.owner()}", "--user=0"),
                f"--network={'bridge' if network else 'none'}",
                *("--security-opt=no-new-privileges", "--log-driver=none"),
                *(f"--memory={limits.memory_mb}m", f"--memory-swap={limits.memory_mb}m"),
                *([f"--cpus={limits.cpus}"] if limits.cpus else []),
                f"--pids-limit={limits.processes + _OWN_PROCESSES}",
                *("--ulimit=core=0", "--ulimit=nofile=1024", f"--ulimit=fsize={limits.file_mb << 20}"),
                *([f"--storage-opt=size={limits.disk_mb}m"] if bounds_disk else []),
                *(f"--env={name}={value}" for name, value in env.items()),
                *(["--entrypoint="] if others else []),
            ]
            self._creating = asyncio.create_task(call("run", *options, image, *KEEP_ALIVE))
            answer = await asyncio.shield(self._creating)
            if answer.code == 0:
                if others:
                    as_other = ("--detach", f"--user={base.user}", f"--workdir={base.workdir}", self.name)
                    await self.duty("has no entry point", "exec", *as_other, *others, *KEEP_ALIVE)
                return
            if not (bounds_disk and "storage-opt" in answer.reason):
                raise self._error(f"could not be started: {answer.reason}")
            Container.bounds_disk = False

    async def remove(self) -> None:
        """End all that runs in it, and remove it with its volumes; safe to call twice."""
        creating = self._creating
        if creating is None:
            return
        await asyncio.wait([creating])
        if creating.exception() is None:  # there is a daemon
            await call("rm", "--force", "--volumes", self.name)
        self._creating = None

    async def start(
        self, argv: Sequence[str], mode: str, cwd: str, env: Mapping[str, str], user: str
    ) -> Program:
        """Start a program; see `Program.start`. Raises SandboxError."""
        try:
            return await Program.start(self.name, argv, mode, cwd, env, user)
        except SandboxError as error:
            raise self._error(f"is gone or cannot run programs: {error}") from None

    async def kill(self, root: int, since: int) -> None:
        """See `KILL`. Where that fails, because not one process more is allowed there, the container begins
        anew.

        Raises SandboxError when there is no container any more.
        """
        with suppress(SandboxError):  # late
            program = ("bash", "-c", KILL, "bash", str(root), str(since))
            if (await call("exec", "--user=0", self.name, *program, timeout_s=_KILL_TIMEOUT_S)).code == 0:
                return
        answer = await call("restart", "--time=0", self.name)
        if answer.code != 0:
            raise self._error(f"is gone: {answer.reason}")

    async def read(self, path: str) -> bytes:
        """Bytes of a regular file, by way of the daemon alone. Raises FileNotFoundError."""
        answer = await call("cp", "--follow-link", f"{self.name}:{path}", "-", most=LARGEST_READ + 64 * 1024)
        if answer.code != 0 and not answer.cut:
            if "No such container" in answer.reason:
                raise self._error(f"is gone: {answer.reason}")
            raise FileNotFoundError(f"{path}: {answer.reason}")
        with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
            member = archive.next()
            if member is not None and member.isreg() and member.size <= LARGEST_READ:
                file = archive.extractfile(member)
                assert file is not None
                return file.read()
        raise FileNotFoundError(f"{path}: not a regular file of at most {LARGEST_READ} bytes")

    async def ids(self, user: str) -> tuple[int, int]:
        """Numbers of a user, given as in Dockerfile's USER, and of its group. Raises SandboxError."""
        name, _, group = user.partition(":")
        if name in ("", "root", "0"):
            numbers = [0, 0]
        else:
            answer = await call("exec", "--user=0", self.name, "sh", "-c", _IDS, "sh", name)
            numbers = [int(word) for word in answer.stdout.split() if word.isdigit()]
            if len(numbers) != 2 and not name.isdigit():
                raise self._error(f"has no user {name}: {answer.reason}")
            numbers = numbers if len(numbers) == 2 else [int(name), 0]
        return numbers[0], int(group) if group.isdigit() else numbers[1]

    async def duty(self, failure: str, *arguments: str, stdin: bytes | None = None) -> None:
        """A call that must succeed. Raises SandboxError."""
        answer = await call(*arguments, stdin=stdin)
        if answer.code != 0:
            raise self._error(f"{failure}: {answer.reason}")
