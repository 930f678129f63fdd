"""A sandbox as the service sees it: namespaces that the launcher made, and programs started in them.

One box is one life of the namespaces; `restore` of a sandbox gives it another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from tasks.sandbox import network
from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.cgroup import ControlGroups
from tasks.sandbox.image import Image
from tasks.sandbox.launcher.box import BoxSpec
from tasks.sandbox.runtime import Program, Runtime
from tasks.sandbox.shell import Process

HOSTNAME = "sandbox"
FILES = (1024, 65_536)
"""Open files of a program: its limit, and how far it may raise that."""


class Box:
    """Methods may raise SandboxError; `name` appears in them."""

    def __init__(self, runtime: Runtime, name: str, image: Image, limits: SandboxLimits):
        self.runtime, self.image, self.limits = runtime, image, limits
        self.first_pid: int | None = None
        """Host PID of the first process inside, while it runs."""
        self.layers: tuple[str, ...] = ()
        """What it runs over, above the base."""
        self.groups = ControlGroups.make(limits)
        self._name = name
        self._number = 0
        self._network: network.Network | None = None

    async def launch(self, layers: tuple[str, ...], upper: str | None, connected: bool) -> None:
        """Make the namespaces; the last ones must have been stopped. `upper`: see `SandboxSpec`."""
        image = self.image
        self._number, self.layers = self.runtime.next_number(), layers
        spec = BoxSpec(
            number=self._number,
            layers=layers,
            base="shifted:0" if image.base.shifted else image.base.folder,
            host_usr=image.base.host_usr,
            upper=upper,
            disk_mb=self.limits.disk_mb,
            uid=image.uid,
            gid=image.uid,
            hostname=HOSTNAME,
        )
        groups = self.groups.open()
        try:
            self.first_pid = await self.runtime.start(spec, groups, f"the sandbox of {self._name}")
        finally:
            for fd in groups:
                os.close(fd)
        if connected:
            self._network = await network.connect(self.first_pid, self.error)

    async def stop(self) -> None:
        """End all that runs in it, and wait for that."""
        number, self._number, self.first_pid = self._number, 0, None
        connection, self._network = self._network, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            if number:
                await self.runtime.stop(number, self._name)

    async def spawn(
        self,
        argv: Sequence[str],
        fds: Mapping[int, int],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        new_privileges: bool = False,
    ) -> Program:
        """Start a program; `fds`: its descriptors, ours; the rest as in `Sandbox.run`."""
        config = self.image.config
        return await self.runtime.run(
            self._running(),
            f"the sandbox of {self._name}",
            dict(fds),
            argv=list(argv),
            env={**config.environment, **(env or {})},
            cwd=cwd or config.workdir,
            user=config.user if user is None else user,
            limits=self._resource_limits(),
            new_privileges=new_privileges,
        )

    async def finishes(self, program: Program, since: int, timeout_s: float) -> bool:
        """Whether a program ends in time by itself; else it is killed, with all that was started since."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(program.ended)
        except TimeoutError:
            return False
        finally:
            if not program.ended.done():
                await asyncio.shield(self.kill(program, since))
        return True

    async def kill(self, process: Process, since: int) -> None:
        """Kill a process and what was started since a moment (clock ticks since boot)."""
        await self.duty("kill", since=since, parent=process.pid)

    async def ids(self, user: str) -> tuple[int, int]:
        """Numbers of a user and its group, inside."""
        if not self.runtime.has_users:
            return self.image.uid, self.image.uid
        uid, gid = await self.duty("account", user=user)
        return uid, gid

    async def duty(self, op: str, fds: Sequence[int] = (), **fields: object) -> list[int]:
        """A duty of the launcher's that concerns this box."""
        name = f"the sandbox of {self._name}"
        result = await self.runtime.duty(op, name, list(fds), number=self._running(), **fields)
        return result if isinstance(result, list) else []

    def is_gone(self) -> bool:
        return self.runtime.is_gone(self._number)

    def error(self, text: str) -> SandboxError:
        return SandboxError(f"the sandbox of {self._name} {text}")

    def _running(self) -> int:
        if not self._number:
            raise self.error("is not running")
        return self._number

    def _resource_limits(self) -> dict[str, tuple[int, int]]:
        limits = self.limits
        values = {"CORE": 0, "FSIZE": limits.file_mb << 20, "NPROC": limits.processes}
        if not self.groups.bound_memory:
            values["AS"] = limits.memory_mb << 20
        return {name: (value, value) for name, value in values.items()} | {"NOFILE": FILES}
