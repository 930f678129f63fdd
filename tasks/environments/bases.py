"""Which root file system stands for a base image.

There is no registry to pull from: a base image is served by the host's own system, by a root that
`debootstrap` makes, or by a folder. What differs from the real image is said, not hidden: `Served.note`.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.config import BaseConfig
from tasks.environments.locks import file_lock
from tasks.sandbox.base import SandboxError
from tasks.sandbox.host import NETWORK_FILES, host_base
from tasks.sandbox.image import DOCKER_PATH, Base
from tasks.sandbox.runtime import Runtime

_DEBOOTSTRAP_TIMEOUT_S = 900.0
_MIRRORS = ("docker.io/", "index.docker.io/", "public.ecr.aws/docker/", "mirror.gcr.io/")
"""Of Docker Hub."""


@dataclass(frozen=True)
class Served:
    """A base image as it is here."""

    base: Base
    env: Mapping[str, str]
    nearer: tuple[str, ...] = ()
    """Commands that bring the base nearer to the image, as its first layers; they need no network."""
    run: tuple[str, ...] = ()
    """Commands of the configuration, as the layers above."""
    note: str = ""


class UnknownBase(Exception):
    """No base serves the image; the sentence says what to configure."""


def config_of(image: str, bases: Mapping[str, BaseConfig]) -> BaseConfig:
    """The first entry whose pattern fits the image's name. Raises UnknownBase."""
    name = normal(image)
    for pattern, config in bases.items():
        if fnmatch.fnmatchcase(name, pattern):
            return config
    known = ", ".join(bases) or "none"
    raise UnknownBase(
        f"no root file system serves the image {image}: name one in the config under sandbox.bases "
        f"(served: {known})"
    )


def normal(image: str) -> str:
    """`docker.io/library/ubuntu` and `ubuntu` are `ubuntu:latest`; a digest is left out."""
    name = image.partition("@")[0]
    for mirror in _MIRRORS:
        name = name.removeprefix(mirror)
    name = name.removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


async def serve(image: str, config: BaseConfig, runtime: Runtime) -> Served:
    """Raises SandboxError where the root cannot be made."""
    if config.debootstrap is not None:
        root = await debootstrap(config.debootstrap, runtime.store.parent / "roots")
        base, by = Base("", host_usr=False, shifted=root), f"debootstrap's {config.debootstrap}"
    elif config.folder is not None:
        base, by = Base("", host_usr=False, shifted=config.folder.resolve()), str(config.folder)
    else:
        base, by = await host_base(runtime), f"this host's own system ({host_name()})"
    nearer = () if config.folder else _nearer(image)
    env = {"PATH": DOCKER_PATH, **config.env}
    return Served(base, env, nearer, tuple(config.run), f"{image} is served by {by}")


def _nearer(image: str) -> tuple[str, ...]:
    """Scripts that bring a Debian nearer to the image."""
    names, debian, ubuntu = (
        Path(__file__).with_name(f"{name}.sh").read_text(encoding="utf-8")
        for name in ("names", "debian", "ubuntu")
    )
    return (names + debian, names + ubuntu) if normal(image).startswith("ubuntu:") else (names + debian,)


def host_name() -> str:
    """What /etc/os-release calls this system."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "unknown"
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("PRETTY_NAME", "unknown").strip('"')


async def debootstrap(suite: str, folder: Path) -> Path:
    """A minimal Debian root, made once. Raises SandboxError."""
    root = folder / f"{suite}-{hashlib.sha256(suite.encode()).hexdigest()[:8]}"
    if root.is_dir():
        return root
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise SandboxError("a base asks for debootstrap, which was not found: apt-get install debootstrap")
    if os.geteuid() != 0:
        raise SandboxError(
            "a base asks for debootstrap, which needs root: name a folder with a root file system instead"
        )
    folder.mkdir(parents=True, exist_ok=True)
    async with file_lock(folder / "making", exclusive=True):
        if not root.is_dir():
            await _debootstrap(program, suite, root)
    return root


async def _debootstrap(program: str, suite: str, root: Path) -> None:
    """With the lock held: whatever is there half made is of a dead process."""
    staging = root.with_name(f"{root.name}.new")
    await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    process = await asyncio.create_subprocess_exec(
        *(program, "--variant=minbase", suite, str(staging)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_DEBOOTSTRAP_TIMEOUT_S):
            output, _ = await process.communicate()
        if process.returncode != 0:
            last = output.decode(errors="replace").strip().splitlines()[-1:]
            raise SandboxError(f"debootstrap {suite} failed: {''.join(last)}")
        for name, text in NETWORK_FILES.items():
            (staging / "etc" / name).write_text(text)
        staging.rename(root)
    except TimeoutError:
        raise SandboxError(f"debootstrap {suite} took more than {_DEBOOTSTRAP_TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
