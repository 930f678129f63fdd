"""Where things are in the launcher's own mount namespace.

The host's folders that sandboxes are made of are reached here through mounts that nobody else sees, so that
no folder on the way to them must be open to anyone. What a name is made of is checked: a request cannot point
elsewhere.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

HERE = "/tmp"
USR = f"{HERE}/usr"
"""The host's /usr, read-only, its owners shifted to those of the sandboxes."""
STORE = f"{HERE}/store"
"""Bases, layers and snapshots."""
SHIFTED = f"{HERE}/shifted"
"""Root file systems made by the host's root, read-only and shifted, by number."""
BOXES = f"{HERE}/boxes"
"""A folder for each sandbox."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


def in_store(name: str) -> str:
    """The path of a folder of the store. Raises ValueError for a name that is none."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a folder in the store")
    return f"{STORE}/{name}"


def box(number: int) -> str:
    return f"{BOXES}/{int(number)}"


def inside(path: str) -> str:
    """A path inside a sandbox, absolute."""
    return str(PurePosixPath("/", path))
