"""One step of a build: a sandbox over the layers so far, whose changes become the next layer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from tasks.config import SandboxConfig
from tasks.environments.context import Owner
from tasks.environments.errors import reason, shortened
from tasks.sandbox.base import ExecResult, SandboxError, SandboxLimits
from tasks.sandbox.image import Image
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec

_PATTERN = re.compile(rb"^Note, selecting '[^']*' for regex '([a-z0-9][a-z0-9.+-]*)'", re.MULTILINE)
"""What apt-get says of a name that no package has, such as python3.10 on another release."""
_SMALL_S = 60.0
_OUTPUT_BYTES = 256 * 1024
_SHOWN = 120
"""Characters of a command in an error."""
_MAKE_FOLDER = """\
missing= folder=$1
while [ ! -d "$folder" ]; do missing=$folder folder=$(dirname "$folder"); done
mkdir -p -- "$1" && { [ -z "$missing" ] || [ -z "$2" ] || chown -R -- "$2" "$missing"; }
"""
"""Only what it makes becomes the owner's."""


class StepFailed(Exception):
    """Why a step made no layer, for the sentence that names its line."""


@dataclass(frozen=True)
class MakeFolder:
    """WORKDIR: a folder that belongs, where it is new, to the image's user."""

    path: str


@dataclass(frozen=True)
class Place:
    """COPY and ADD: files of the context. A destination that ends in `/` is a folder."""

    destination: str
    owner: str
    """As --chown has it."""
    pack: Callable[[Owner, str], bytes]
    """Tar bytes for `/`, given the owner and the destination."""


@dataclass(frozen=True)
class PlaceFrom:
    """COPY --from: files of another image."""

    destination: str
    owner: str
    """As --chown has it; empty: each file keeps its own."""
    image: Image
    sources: tuple[str, ...]
    chmod: int | None


@dataclass(frozen=True)
class RunProgram:
    """RUN."""

    argv: tuple[str, ...]
    shown: str
    """The command in errors."""
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    folders: tuple[str, ...] = ()
    """Made before, for mounts that are only there while the program runs."""
    script: tuple[str, str] | None = None
    """A file that is only there while the program runs: path, content."""


Step = MakeFolder | Place | PlaceFrom | RunProgram


async def run_step(
    step: Step, image: Image, staging: str, config: SandboxConfig, name: str, deadline: float
) -> None:
    """Do it; the store's folder `staging` then is the layer. Raises StepFailed, or SandboxError."""
    network = isinstance(step, RunProgram) and step.network
    spec = SandboxSpec(
        f"the build of {name}", image=_quiet(image), network=network, upper=staging, shell=False
    )
    async with NamespaceSandbox(spec, _limits(config), config.store) as sandbox:
        try:
            match step:
                case MakeFolder(path):
                    await _make_folder(sandbox, path, image.config.user)
                case Place():
                    await _place(step, sandbox)
                case PlaceFrom():
                    await _place_from(step, sandbox, config)
                case RunProgram():
                    await _run(step, sandbox, deadline)
        except SandboxError as error:
            raise StepFailed(str(error)) from None


def _quiet(image: Image) -> Image:
    """Without its entry point."""
    return replace(image, config=replace(image.config, entrypoint=()))


def _limits(config: SandboxConfig) -> SandboxLimits:
    build = config.build
    return SandboxLimits(
        memory_mb=build.memory_mb,
        processes=build.processes,
        file_mb=build.file_mb,
        disk_mb=config.max_disk_mb,
        output_bytes=_OUTPUT_BYTES,
    )


async def _make_folder(sandbox: NamespaceSandbox, folder: str, user: str = "") -> None:
    uid, gid = await sandbox.ids(user or "root")
    owner = f"{uid}:{gid}" if uid or gid else ""
    result = await _small(sandbox, ["sh", "-c", _MAKE_FOLDER, "sh", folder, owner])
    if result.exit_code != 0:
        raise StepFailed(f"the folder {folder} could not be made: {reason(result)}")


async def _small(sandbox: NamespaceSandbox, argv: list[str]) -> ExecResult:
    return await sandbox.run(argv, _SMALL_S, user="root", cwd="/")


async def _destination(sandbox: NamespaceSandbox, destination: str, owner: str) -> str:
    """With `/` at the end if it is a folder; then it is there, else the folder that it is in."""
    if not destination.endswith("/"):
        if (await _small(sandbox, ["test", "-d", destination])).exit_code == 0:
            return f"{destination}/"
        await _make_folder(sandbox, str(PurePosixPath(destination).parent), owner)
        return destination
    await _make_folder(sandbox, destination.rstrip("/") or "/", owner)
    return destination


async def _place(step: Place, sandbox: NamespaceSandbox) -> None:
    owner = Owner(*await sandbox.ids(step.owner or "root"))
    destination = await _destination(sandbox, step.destination, step.owner)
    await sandbox.extract(await asyncio.to_thread(step.pack, owner, destination), "/")


async def _place_from(step: PlaceFrom, sandbox: NamespaceSandbox, config: SandboxConfig) -> None:
    destination = await _destination(sandbox, step.destination, step.owner)
    owner = await sandbox.ids(step.owner) if step.owner else None
    spec = SandboxSpec("another stage", image=_quiet(step.image), shell=False)
    async with NamespaceSandbox(spec, _limits(config), config.store) as other:
        data = await other.archive(step.sources, destination, owner, step.chmod)
    await sandbox.extract(data, "/")


async def _run(step: RunProgram, sandbox: NamespaceSandbox, deadline: float) -> None:
    for folder in step.folders:
        await _make_folder(sandbox, folder)
    if step.script is not None:
        path, content = step.script
        await sandbox.write(path, content.encode(), 0o755, user="root")
    left = max(1.0, deadline - asyncio.get_running_loop().time())
    result = await sandbox.run(step.argv, left, env=step.env, new_privileges=True)
    what = f"RUN {shortened(step.shown, _SHOWN)}"
    if result.timed_out:
        raise StepFailed(f"{what} was not done within the task's build_timeout_sec")
    if result.exit_code != 0:
        raise StepFailed(f"{what} failed with exit code {result.exit_code}: {reason(result)}")
    if (pattern := _PATTERN.search(result.stdout)) is not None:
        name = pattern[1].decode(errors="replace")
        raise StepFailed(f"{what}: there is no package {name} here, and apt-get took its name for a pattern")
