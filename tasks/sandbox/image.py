"""What a sandbox starts as: a root file system in layers, and how programs run in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DOCKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIXED_ENVIRONMENT: Mapping[str, str] = {
    "PATH": DOCKER_PATH,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "COLUMNS": "80",
    "LINES": "24",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""In every sandbox, unless the image says otherwise: equal commands give equal output."""


@dataclass(frozen=True)
class Base:
    """The bottom of a root file system."""

    folder: str
    """Folder of the store, with `root` and, over the host's system, `usr` in it."""
    host_usr: bool = True
    """Whether `/usr` is the host's."""
    shifted: Path | None = None
    """A root file system on the host that belongs to root, in place of `folder`."""


@dataclass(frozen=True)
class ImageConfig:
    """How programs run: what a Dockerfile says with USER, WORKDIR, ENV, ENTRYPOINT, CMD and SHELL."""

    user: str = "root"
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    shell: tuple[str, ...] = ("/bin/sh", "-c")

    @property
    def environment(self) -> dict[str, str]:
        """Of every program."""
        return {**FIXED_ENVIRONMENT, **self.env}


@dataclass(frozen=True)
class Image:
    """A built environment. Layers are folders of the store, topmost first."""

    base: Base
    layers: tuple[str, ...] = ()
    config: ImageConfig = ImageConfig()
    uid: int = 0
    """Of the one user, where the host gives sandboxes only one."""
