"""Worlds of tasks: for each task the sandbox that it asks for, by one configuration.

The built-in tasks share one image, and get their files when a sandbox starts; any other environment is built
from its Dockerfile when it is first needed, or by `prepare`. A caller sees no difference.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.config import SandboxConfig
from tasks.environments import Builder, Built, Progress, Recipe
from tasks.families import environment
from tasks.harbor import resolve_env
from tasks.sandbox.base import Sandbox, SandboxError, SandboxLimits
from tasks.sandbox.docker import DockerSandbox, task_image
from tasks.sandbox.image import Image, ImageConfig
from tasks.sandbox.local import LocalSandbox
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task, TaskError
from tasks.verifier import runner
from tasks.verifier.needs import needs

_MOST_TOOLS = 16
_PROCESSES = 512
"""Of a task with an environment of its own, at least: its services and tests have threads."""


@dataclass(frozen=True)
class Prepared:
    """What a task's sandboxes are made of."""

    image: Image | None
    """None: the world of the built-in tasks."""
    note: str = ""
    """What stands for the image that the task names."""
    tools: bytes | None = None
    """What stands in for its test runner."""


class Worlds:
    """Makes sandboxes; may be used by many at once."""

    def __init__(self, config: SandboxConfig | None = None):
        self.config = config or SandboxConfig()
        self._builder = Builder(self.config)
        self._tools: OrderedDict[tuple[str, tuple[str, ...]], bytes] = OrderedDict()
        """Last used last; of few sets of packages, for each may be large."""
        self._environments: dict[Path, tuple[object, Built]] = {}
        """By task folder, with the state of the folder that it was built from."""
        self._verifiable: dict[Path, bool] = {}
        self._locks: dict[tuple[str, tuple[str, ...]], asyncio.Lock] = {}

    def sandbox(self, task: Task) -> Sandbox:
        """A sandbox that is not started yet; what its environment lacks is a SandboxError of `start`."""
        config = self.config
        network = config.network and task.allow_internet
        if config.backend == "local":
            return LocalSandbox.for_task(task, config.limits(), trusted=True)
        if config.backend == "docker":
            try:
                env = self._env(task)
            except TaskError as error:
                raise SandboxError(str(error)) from None
            return DockerSandbox.for_task(task, self._limits(task), network=network, env=env)
        if is_built_in(task):
            return NamespaceSandbox.for_task(task, self._limits(task), config.store, config.clock)
        return NamespaceSandbox(self._spec(task, network), self._limits(task), config.store)

    def _spec(self, task: Task, network: bool) -> SandboxSpec:
        """Of a task with an environment of its own."""
        config = self.config

        async def image() -> Image:
            try:
                return (await self._built(task)).image
            except TaskError as error:
                raise SandboxError(str(error)) from None

        async def tools() -> bytes | None:
            return await self._runner(task, (await self._built(task)).base_image)

        spec = SandboxSpec(
            task.id,
            image=image,
            runner=tools if config.local_runner else None,
            variables=config.env,
            healthcheck=task.healthcheck,
            network=network,
            clock=config.clock,
        )

        async def is_verifiable() -> bool:
            return await self._is_verifiable(task, spec)

        return replace(spec, is_verifiable=is_verifiable)

    async def _is_verifiable(self, task: Task, spec: SandboxSpec) -> bool:
        """Whether the task has a verdict before any agent has worked; asked once."""
        if task.path not in self._verifiable:
            try:
                async with NamespaceSandbox(spec, self._limits(task), self.config.store) as untouched:
                    await untouched.verify(task)
                self._verifiable[task.path] = True
            except SandboxError:
                self._verifiable[task.path] = False
        return self._verifiable[task.path]

    async def prepare(self, task: Task, progress: Progress = lambda _: None) -> Prepared:
        """Build now what the task's sandboxes need. Raises TaskError, SandboxError."""
        if self.config.backend == "local":
            return Prepared(None, "local: nothing is isolated, and no environment is built")
        if self.config.backend == "docker":
            return Prepared(None, f"Docker image {await task_image(task)}")
        if is_built_in(task):
            return Prepared(None, "built in")
        built = await self._built(task, progress)
        tools = await self._runner(task, built.base_image, progress) if self.config.local_runner else None
        return Prepared(built.image, built.note, tools)

    async def _built(self, task: Task, progress: Progress = lambda _: None) -> Built:
        """The environment of a task, as it was built before if nothing has changed."""
        state = await asyncio.to_thread(_state, task.dockerfile.parent)
        known, built = self._environments.get(task.path, (None, None))
        if built is None or known != state or not self._builder.keeps(built.image):
            built = await self._build(task, progress)
            self._environments[task.path] = state, built
        return built

    def _env(self, task: Task) -> dict[str, str]:
        return resolve_env(task.environment_env, self.config.env)

    async def _build(self, task: Task, progress: Progress) -> Built:
        built = await self._builder.build(await asyncio.to_thread(Recipe.of, task), progress)
        given = self._env(task)
        config: ImageConfig = built.image.config
        config = replace(
            config,
            user=task.agent_user or config.user,
            workdir=task.workdir or config.workdir,
            env={**config.env, **given},
        )
        return replace(built, image=replace(built.image, config=config))

    async def _runner(self, task: Task, base_image: str, progress: Progress = lambda _: None) -> bytes | None:
        """What stands in for the test runner that the task would download. Raises SandboxError."""
        file = task.tests / "test.sh"
        try:
            wanted = await asyncio.to_thread(lambda: needs(file.read_text(errors="replace"), task.tests))
        except OSError as error:
            raise SandboxError(f"{file} cannot be read: {error.strerror}") from None
        if wanted is None:
            return None
        if not wanted.packages:
            return runner.programs()
        key = (base_image, wanted.packages)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._tools:
                self._tools[key] = await self._pack_runner(task, *key, progress)
            self._tools.move_to_end(key)
            tools = self._tools[key]
            while len(self._tools) > _MOST_TOOLS:
                self._tools.popitem(last=False)
            return tools

    async def _pack_runner(
        self, task: Task, base_image: str, packages: tuple[str, ...], progress: Progress
    ) -> bytes:
        text = runner.dockerfile(base_image, packages)
        name = f"the test runner of {task.id}"
        recipe = Recipe(name, text, "the Dockerfile of its test runner", task.tests, task.allow_internet)
        try:
            image = (await self._builder.build(recipe, progress)).image
        except TaskError as error:
            raise SandboxError(f"{name} cannot be installed: {error}") from None
        config = self.config
        limits = replace(config.limits(), disk_mb=config.max_disk_mb, file_mb=config.max_disk_mb)
        async with NamespaceSandbox(
            SandboxSpec(name, image=image, shell=False), limits, config.store
        ) as sandbox:
            await sandbox.extract(runner.programs(), "/")
            return await sandbox.archive([runner.FOLDER], f"{runner.FOLDER}/")

    def _limits(self, task: Task) -> SandboxLimits:
        """What the task asks for, as far as the configuration allows it."""
        config, limits = self.config, self.config.limits()
        disk_mb = min(config.max_disk_mb, task.storage_mb or limits.disk_mb)
        return replace(
            limits,
            memory_mb=min(config.max_memory_mb, task.memory_mb or limits.memory_mb),
            disk_mb=disk_mb,
            file_mb=max(limits.file_mb, disk_mb),
            processes=limits.processes if is_built_in(task) else max(limits.processes, _PROCESSES),
            cpus=min(filter(None, (config.cpus, task.cpus)), default=None),
        )


def _state(folder: Path) -> object:
    """What changes when a file of a build context does."""
    found = []
    for top, _, files in os.walk(folder):
        for name in files:
            status = os.lstat(os.path.join(top, name))
            found.append((top, name, status.st_size, status.st_mtime_ns, status.st_mode))
    return sorted(found)


def is_built_in(task: Task) -> bool:
    """Whether the environment is of the one form that the built-in families write."""
    try:
        text = task.dockerfile.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return environment.is_built_in(text, task.setup is not None) and task.files.is_dir()
