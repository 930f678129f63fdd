"""Both engines and, if wanted, the rollout service, as one thing that is up or down.

    async with Stack(config, Path("runs/now")) as stack:
        ...  # stack.service_url answers

Inside, every process is watched: when one ends, the body is cancelled and a ProcessError names it and
the last lines of its log. On the way out all are stopped, whatever happened.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn

import yaml

from obsspec import engine
from obsspec.config import ROLES, Config, EngineConfig, Role
from obsspec.errors import ProcessError
from obsspec.processes import ports
from obsspec.processes.child import Child, Command
from obsspec.processes.groups import task_group
from orchestrator.client import OrchestratorClient, OrchestratorError

_GRACE_S = 8.0


@dataclass(frozen=True)
class Event:
    """Something a person who waits wants to know."""

    name: str
    state: Literal["starting", "ready"]
    url: str
    seconds: float
    """Since the process was started."""


class Stack:
    """The processes of one configuration on this machine, with logs in `folder`/logs."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        service: bool = True,
        report: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.config = ports.assign(config)
        """The configuration with every port decided."""
        self.folder = folder
        self._service = service
        self._report = report
        self._children: list[Child] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._context: AbstractAsyncContextManager[None] | None = None

    @property
    def service_url(self) -> str:
        return f"http://{self.config.orchestrator.host}:{self.config.orchestrator.port}"

    async def __aenter__(self) -> Stack:
        self._context = self._supervised()
        await self._context.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None
        return await self._context.__aexit__(kind, error, trace)

    async def start(self) -> None:
        """Start everything and return when all of it is ready; on failure nothing is left running.

        Without the context manager nobody watches the processes: for callers who do that themselves.
        """
        try:
            self._check()
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            resolved = self.folder / "config.yaml"
            resolved.write_text(yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False))
            self._scratch = tempfile.TemporaryDirectory(prefix="obsspec-")
            key, scratch = self.config.api_key, self._scratch.name
            await self._start(
                [engine.command(role, each, scratch, key(role)) for role, each in self._engines()]
            )
            async with self._watched():
                for role, each in self._engines():
                    await engine.require_plugin(engine.name(role), each.url, key(role))
                if self._service:
                    await self._start_service(resolved)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything, the service before its engines; safe to call twice."""
        while self._children:
            await self._children[-1].stop()
            self._children.pop()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    @asynccontextmanager
    async def _supervised(self) -> AsyncIterator[None]:
        try:
            await self.start()
            async with self._watched() as watchers:
                try:
                    yield
                except (OrchestratorError, ProcessError):
                    # Clients notice an engine's end first: its process cleans up for 5 s.
                    await asyncio.wait(watchers, timeout=_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
                    raise
        finally:
            await self.stop()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[list[asyncio.Task[NoReturn]]]:
        """Inside, the end of any process that is up cancels the body and becomes its ProcessError."""
        async with task_group() as group:
            watchers = [group.create_task(child.ended()) for child in self._children]
            yield watchers
            for watcher in watchers:
                watcher.cancel()

    def _engines(self) -> list[tuple[Role, EngineConfig]]:
        engines = ((role, getattr(self.config.engines, role)) for role in ROLES)
        return [(role, each) for role, each in engines if each is not None]

    def _check(self) -> None:
        for role, each in self._engines():
            engine.check(role, each)
        if self._service:
            service = self.config.orchestrator
            ports.require_free("the orchestrator", service.host, service.port)

    def _orchestrator(self, config: Path) -> Command:
        return Command(
            name="orchestrator",
            argv=[sys.executable, "-m", "obsspec", "orchestrator", "--config", str(config)],
            ready_url=f"{self.service_url}/readyz",
        )

    async def _start_service(self, config: Path) -> None:
        """Raises ProcessError; it names the engine where one elsewhere, not started here, does not answer."""
        try:
            await self._start([self._orchestrator(config)])
        except ProcessError as error:
            with suppress(OrchestratorError):
                async with OrchestratorClient(self.service_url) as client:
                    unready = [state.error for state in (await client.ready()).engines if state.error]
                if unready:
                    raise ProcessError(f"the orchestrator waits in vain: {'; '.join(unready)}") from error
            raise

    async def _start(self, commands: list[Command]) -> None:
        children = [Child(command, self.folder / "logs" / f"{command.name}.log") for command in commands]
        self._children += children
        async with task_group() as group:
            for child in children:
                group.create_task(self._bring_up(child))

    async def _bring_up(self, child: Child) -> None:
        name, url = child.command.name, child.command.ready_url.rpartition("/")[0]
        begun = time.monotonic()
        self._report(Event(name, "starting", url, 0.0))
        await child.start()
        await child.ready()
        self._report(Event(name, "ready", url, time.monotonic() - begun))
