"""Images of the daemon: what one says of itself, and how a task's is built or pulled."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.sandbox.archive import pack
from tasks.sandbox.base import SandboxError
from tasks.sandbox.docker.client import call
from tasks.task import Task


@dataclass(frozen=True)
class DockerImage:
    """What an image says with ENV, USER, WORKDIR, ENTRYPOINT and VOLUME."""

    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


async def inspect(name: str) -> DockerImage:
    """Raises SandboxError for an image that the daemon does not have."""
    answer = await call("image", "inspect", "--format={{json .Config}}", name)
    if answer.code != 0:
        raise SandboxError(f"docker has no image {name}: build or pull it first ({answer.reason})")
    config = json.loads(answer.stdout) or {}
    env = dict(entry.split("=", 1) for entry in config.get("Env") or () if "=" in entry)
    return DockerImage(
        name,
        env,
        config.get("User") or "root",
        config.get("WorkingDir") or "/",
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Volumes") or ()),
    )


async def build(
    context: Path, dockerfile: Path, tag: str, *, network: bool = False, timeout_s: float = 600.0
) -> None:
    """`docker build`, with a network only where that is allowed. Raises SandboxError with the reason."""
    options = (
        f"--network={'default' if network else 'none'}",
        f"--file={dockerfile}",
        f"--tag={tag}",
        "--force-rm",
    )
    answer = await call("build", *options, str(context), timeout_s=timeout_s, tail=True)
    if answer.code != 0:
        raise SandboxError(f"docker build of {dockerfile} failed: {answer.reason}")


async def pull(name: str, *, timeout_s: float = 600.0) -> None:
    """Fetch an image unless the daemon has it. Raises SandboxError."""
    try:
        await inspect(name)
    except SandboxError:
        answer = await call("pull", "--quiet", name, timeout_s=timeout_s, tail=True)
        if answer.code != 0:
            raise SandboxError(f"docker pull of {name} failed: {answer.reason}") from None


async def task_image(task: Task) -> str:
    """The image that a task names, or its Dockerfile's, built if the daemon lacks it. Raises SandboxError."""
    if not task.dockerfile.exists() and task.docker_image:
        await pull(task.docker_image, timeout_s=task.build_timeout_s)
        return task.docker_image
    context = task.dockerfile.parent
    digest = hashlib.sha256(await asyncio.to_thread(pack, context, 0, 0)).hexdigest()[:32]
    tag = f"obsspec-task:{digest}"
    try:
        await inspect(tag)
    except SandboxError:
        await build(
            context, task.dockerfile, tag, network=task.allow_internet, timeout_s=task.build_timeout_s
        )
    return tag
