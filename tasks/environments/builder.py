"""The builder: a Dockerfile's instructions, one after the other, in sandboxes whose changes become layers.

Guarantees: a layer that was made from the same things is not made again; a build that fails leaves nothing;
no command reaches the host, and the network only if the configuration and the task both allow it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from dataclasses import replace
from pathlib import PurePosixPath

from tasks import dockerfile
from tasks.config import SandboxConfig
from tasks.dockerfile import Instruction, Scope, Stage
from tasks.environments.bases import Served, UnknownBase, config_of, serve
from tasks.environments.context import Archive, Context, ContextError, Owner, add_sources, needs_folder
from tasks.environments.errors import lacks_package, refuse, shortened
from tasks.environments.recipe import Built, Progress, Recipe
from tasks.environments.state import Build, State
from tasks.environments.steps import MakeFolder, Place, PlaceFrom, RunProgram, Step, StepFailed, run_step
from tasks.environments.store import LayerStore, digest
from tasks.sandbox import network
from tasks.sandbox.base import SandboxError
from tasks.sandbox.image import Image, ImageConfig
from tasks.sandbox.runtime import Runtime, runtime

_SCRIPTS = "/dev/shm/pipes"
"""Of heredocs that are programs, while they run: no layer keeps it."""
_ONE_USER = "in a sandbox of one user: run as root, or with uidmap and a range in /etc/subuid and /etc/subgid"
_OCTAL = re.compile("[0-7]{3,4}")
_BUILD_ENV = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
"""For commands of a build alone: what pip installs in an image is the image's own affair."""


class Builder:
    """Builds the environments of tasks; may be used by many at once."""

    def __init__(self, config: SandboxConfig | None = None):
        self.config = config or SandboxConfig()
        self._runtime: Runtime = runtime(self.config.store)
        self._locks: dict[str, asyncio.Lock] = {}

    async def build(self, recipe: Recipe, progress: Progress = lambda _: None) -> Built:
        """Make an environment. Raises DockerfileError, BuildRefused, SandboxError."""
        await self._runtime.ready()
        instructions = dockerfile.parse(recipe.text, recipe.file)
        args = dockerfile.global_variables(
            dockerfile.global_args(instructions), {}, dockerfile.platform_args()
        )
        deadline = asyncio.get_running_loop().time() + recipe.timeout_s
        stages = dockerfile.stages(instructions)
        build = Build(recipe, Context(recipe.context), args, deadline, progress)
        state = None
        for stage in stages:
            state = await self._stage(build, stage)
            build.done |= {str(stage.index): state} | ({stage.name: state} if stage.name else {})
        assert state is not None  # the parser asks for one FROM at least
        return state.built

    def keeps(self, image: Image) -> bool:
        """Whether the store still has all layers of an image; they count as used now."""
        return LayerStore(self._runtime).use(image.layers)

    async def clean(self, unused_s: float) -> int:
        """Remove the layers that no build and no start has used for so many seconds; returns how many."""
        await self._runtime.ready()
        return await LayerStore(self._runtime).clean(unused_s)

    async def _stage(self, build: Build, stage: Stage) -> State:
        state = await self._from(build, stage.from_)
        for written in stage.instructions:
            state = await self._step(build, state, written)
        return state

    async def _from(self, build: Build, instruction: Instruction) -> State:
        source = dockerfile.base_image(instruction, build.global_args)
        if (parent := build.done.get(source.image.lower())) is not None:
            state = replace(parent, triggers=())
            for trigger in parent.triggers:
                state = await self._step(build, state, dockerfile.trigger(trigger))
            return state
        if source.platform and source.platform != dockerfile.platform_args()["TARGETPLATFORM"]:
            raise refuse(instruction, f"the platform {source.platform} is not this machine's")
        return await self._base(build, source.image, instruction)

    async def _base(self, build: Build, name: str, instruction: Instruction) -> State:
        """An image that is not built here."""
        try:
            served: Served = await serve(name, config_of(name, self.config.bases), self._runtime)
        except (UnknownBase, SandboxError) as problem:
            raise refuse(instruction, str(problem)) from None
        image = Image(served.base, (), ImageConfig(env=served.env))
        scope = Scope.of_image(served.env, build.global_args, {})
        state = State(image, scope, digest("base", served.base, served.env), name, served.note)
        for command in served.nearer:
            state = await self._run(build, state, instruction, dockerfile.Run(command), "without a network")
        for command in served.run:
            no_network = self._no_network_here()
            state = await self._run(build, state, instruction, dockerfile.Run(command), no_network)
        return state

    async def _step(self, build: Build, state: State, written: Instruction) -> State:
        instruction, scope = state.scope.apply(written)
        state = replace(await self._apply(build, replace(state, scope=scope), instruction), scope=scope)
        return state.having(replace(state.image.config, env=dict(scope.env)))

    async def _apply(self, build: Build, state: State, instruction: Instruction) -> State:
        config = state.image.config
        match instruction.view:
            case dockerfile.Run() as run:
                return await self._run(build, state, instruction, run, self._no_network(build.recipe))
            case dockerfile.Copy() | dockerfile.Add() as copy:
                return await self._copy(build, state, instruction, copy)
            case dockerfile.Workdir(path):
                workdir = str(PurePosixPath(config.workdir, path))
                state = state.having(replace(config, workdir=workdir))
                made_of = ("workdir", workdir, config.user)
                return await self._layer(build, state, instruction, MakeFolder(workdir), made_of)
            case dockerfile.User(user):
                return state.having(replace(config, user=user))
            case dockerfile.Shell(command):
                return state.having(replace(config, shell=command))
            case dockerfile.Entrypoint(command):
                return state.having(replace(config, entrypoint=_argv(command, config.shell), cmd=()))
            case dockerfile.Cmd(command):
                return state.having(replace(config, cmd=_argv(command, config.shell)))
            case dockerfile.Onbuild():
                return replace(state, triggers=(*state.triggers, instruction))
        return state

    async def _run(
        self,
        build: Build,
        state: State,
        instruction: Instruction,
        run: dockerfile.Run,
        no_network: str | None,
    ) -> State:
        config = state.image.config
        if run.security != "sandbox":
            raise refuse(instruction, "RUN --security=insecure asks for privileges that no sandbox gives")
        script = None
        command = run.command
        if run.script is not None:
            command = f"{_SCRIPTS}/{PurePosixPath(run.script.name).name}"
            script = (command, run.script.content)
        if run.network == "none":
            no_network = "without a network: RUN --network=none"
        step = RunProgram(
            argv=_argv(command, config.shell),
            shown=run.command if isinstance(run.command, str) else " ".join(run.command),
            env={**self._host_env(), **config.environment, **state.scope.variables},
            network=no_network is None,
            folders=_mounted(run.mounts, instruction),
            script=script,
        )
        place = (config.user, config.workdir)
        variables = sorted(state.scope.variables.items())
        made_of = ("run", step.argv, variables, place, step.network, step.folders, script)
        return await self._layer(build, state, instruction, step, made_of, no_network)

    async def _copy(
        self, build: Build, state: State, instruction: Instruction, copy: dockerfile.Copy | dockerfile.Add
    ) -> State:
        destination = str(PurePosixPath("/", state.image.config.workdir, copy.destination))
        if copy.destination.endswith(("/", "/.")) or copy.destination in (".", ""):
            destination = destination.rstrip("/") + "/"
        elif len(copy.sources) + len(copy.files) > 1:
            raise refuse(instruction, f"{copy.destination} must end in '/': it takes more than one source")
        if copy.chmod and not _OCTAL.fullmatch(copy.chmod):
            raise refuse(instruction, f"--chmod={copy.chmod} must be an octal number")
        if copy.exclude or (isinstance(copy, dockerfile.Copy) and copy.parents):
            problem = "--exclude and --parents are not supported: use .dockerignore, or one COPY a folder"
            raise refuse(instruction, problem)
        chmod = int(copy.chmod, 8) if copy.chmod else None
        if isinstance(copy, dockerfile.Copy) and copy.from_stage:
            return await self._copy_from(build, state, instruction, copy, destination, chmod)
        unpack = isinstance(copy, dockerfile.Add) and copy.unpack is not False

        def pack(owner: Owner, target: str) -> bytes:
            archive = Archive(owner, chmod)
            for file in copy.files:
                inside = target + file.name if target.endswith("/") else target
                archive.add_text(inside.lstrip("/"), file.content)
            add_sources(build.context, copy.sources, target, archive, unpack)
            return archive.data()

        try:
            if await asyncio.to_thread(needs_folder, build.context, copy.sources, unpack):
                destination = destination.rstrip("/") + "/"
            content = await asyncio.to_thread(pack, Owner(), destination)
        except ContextError as problem:
            raise refuse(instruction, str(problem)) from None
        except OSError as problem:
            raise refuse(instruction, f"{problem.filename} cannot be read: {problem.strerror}") from None
        made_of = ("copy", hashlib.sha256(content).hexdigest(), destination, copy.chown)
        step = Place(destination, _owner(copy.chown), pack)
        return await self._layer(build, state, instruction, step, made_of)

    async def _copy_from(
        self,
        build: Build,
        state: State,
        instruction: Instruction,
        copy: dockerfile.Copy,
        destination: str,
        chmod: int | None,
    ) -> State:
        source = build.done.get(copy.from_stage.lower())
        if source is None:
            try:
                config_of(copy.from_stage, self.config.bases)
            except UnknownBase as problem:
                names = f"COPY --from={copy.from_stage} names no earlier stage"
                raise refuse(instruction, f"{names}, and {problem}") from None
            source = await self._base(build, copy.from_stage, instruction)
        made_of = ("copy from", source.key, copy.sources, destination, copy.chown, chmod)
        step = PlaceFrom(destination, _owner(copy.chown), source.image, copy.sources, chmod)
        return await self._layer(build, state, instruction, step, made_of)

    async def _layer(
        self,
        build: Build,
        state: State,
        instruction: Instruction,
        step: Step,
        made_of: object,
        no_network: str | None = None,
    ) -> State:
        """The state with one layer more, made now if the store has it not; `no_network`: why it has none."""
        store = LayerStore(self._runtime)
        key = digest(state.key, made_of)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if not store.has(key):
                    where = f"{build.recipe.name} line {instruction.line}"
                    build.progress(f"{where}: {shortened(instruction.text)}")
                    async with store.making(key) as staging:
                        await run_step(
                            step, state.image, staging, self.config, build.recipe.name, build.deadline
                        )
        except StepFailed as problem:
            notes = [
                no_network or "",
                state.note if lacks_package(str(problem)) else "",
                "" if self._runtime.has_users else _ONE_USER,
            ]
            why = "; ".join(filter(None, notes))
            raise refuse(instruction, f"{problem}{f' ({why})' if why else ''}") from None
        finally:
            self._locks.pop(key, None)
        layers = (store.folder(key), *state.image.layers)
        return replace(state, image=replace(state.image, layers=layers), key=key)

    def _no_network(self, recipe: Recipe) -> str | None:
        """Why a build has no network, if it has none."""
        if not recipe.allow_internet:
            return "without a network: the task allows none"
        return self._no_network_here()

    def _no_network_here(self) -> str | None:
        if not self.config.build.network:
            return "without a network: the config allows none (sandbox.build.network)"
        return None if network.program() else "without a network: slirp4netns was not found"

    def _host_env(self) -> dict[str, str]:
        host = {name: os.environ[name] for name in self.config.build.env if name in os.environ}
        return {**_BUILD_ENV, **host}


def _owner(chown: str) -> str:
    """A number alone is that of the group too."""
    return f"{chown}:{chown}" if chown.isdigit() else chown


def _mounted(mounts: tuple[str, ...], instruction: Instruction) -> tuple[str, ...]:
    """Folders that the mounts of a RUN stand for. Raises BuildRefused."""
    folders = []
    for mount in mounts:
        values = dict(part.partition("=")[::2] for part in mount.split(","))
        kind = values.get("type", "bind")
        target = values.get("target") or values.get("dst") or values.get("destination")
        if kind in ("secret", "ssh") and values.get("required", "false") != "true":
            continue  # as where none is given
        if kind not in ("cache", "tmpfs") or target is None:
            raise refuse(
                instruction, f"RUN --mount of type {kind} is not supported: copy what it needs with COPY"
            )
        folders.append(target)
    return tuple(folders)


def _argv(command: str | tuple[str, ...], shell: tuple[str, ...]) -> tuple[str, ...]:
    return (*shell, command) if isinstance(command, str) else command
