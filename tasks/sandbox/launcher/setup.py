"""How the launcher leaves the host: its own mounts first, then its own users.

Afterwards the process is root among the users of sandboxes and nobody on the host, and all that it mounts is
gone when it and its sandboxes are.
"""

from __future__ import annotations

import os
from pathlib import Path

from tasks.sandbox.launcher import identity, linux, places
from tasks.sandbox.launcher.identity import IdMap


def leave_host(store: str, shifted: list[str]) -> IdMap:
    """Enter the namespaces that sandboxes are made in. `store` is a folder of ours; `shifted` are root file
    systems that belong to the host's root. Returns the users that sandboxes have. Raises OSError."""
    id_map = identity.choose()
    users = identity.new_user_namespace(id_map)
    if os.geteuid() == 0:
        _prepare(store, shifted, users)
        linux.setns(users, linux.CLONE_NEWUSER)
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.setns(users, linux.CLONE_NEWUSER)
        _prepare(store, [], None)
    os.close(users)
    if id_map.has_users:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    linux.be_readable()
    return id_map


def _prepare(store: str, shifted: list[str], users: int | None) -> None:
    """Mount what sandboxes are made of at its place; with `users`, as a view with their ids."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    mounts = {places.STORE: linux.clone_mount(store)}
    if users is not None:
        mounts[places.USR] = linux.clone_mount("/usr", users)
        mounts |= {f"{places.SHIFTED}/{i}": linux.clone_mount(p, users) for i, p in enumerate(shifted)}
    linux.mount("tmpfs", places.HERE, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    for target, fd in mounts.items():
        Path(target).mkdir(parents=True)
        linux.attach_mount(fd, target)
    if users is None:
        os.symlink("/usr", places.USR)
    Path(places.BOXES).mkdir()
    if users is not None:
        os.chown(places.BOXES, identity.FIRST_HOST_ID, identity.FIRST_HOST_ID)
