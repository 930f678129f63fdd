"""Copying what a sandbox wrote, as it is at one moment: its programs are held meanwhile.

Even if one of them could not be held, a folder that it swaps for a link leads nowhere: the copy is made in a
root of its own, with nothing in it but the two folders and the host's programs.
"""

from __future__ import annotations

import errno
import os
import signal

from tasks.sandbox.launcher import ending, inside, linux, places
from tasks.sandbox.launcher.box import Box

_PROGRAMS = ("usr", "bin", "lib", "lib32", "lib64", "libx32")


def copy(box: Box, target: str) -> None:
    """Copy what a sandbox wrote to a new folder, in two children of ours. Raises OSError."""
    os.makedirs(target)
    held_read, held_write = os.pipe()
    go_read, go_write = os.pipe()

    def hold() -> None:
        os.close(go_write)
        ending.hold(held_write, go_read)

    holder = inside.visit(box, hold)
    os.close(held_write)
    os.read(held_read, 1)
    copier = os.fork()
    if copier == 0:
        try:
            _become_copy(box.upper, target)
        finally:
            os._exit(1)
    _, status = os.waitpid(copier, 0)
    os.close(go_write)
    os.waitpid(holder, 0)
    if status != 0:
        raise OSError(errno.EIO, "could not be copied whole: is there room in the store?", "its files")


def _become_copy(source: str, target: str) -> None:
    linux.die_with_parent(signal.SIGKILL)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    linux.unshare(linux.CLONE_NEWNS)
    own = f"/proc/{os.getpid()}"  # libc sets modes through /proc/self/fd
    mounts = {
        "from": linux.clone_mount(source),
        "to": linux.clone_mount(target),
        "proc/self": linux.clone_mount(own),
    }
    links = {name: os.readlink(f"/{name}") for name in _PROGRAMS if os.path.islink(f"/{name}")}
    mounts |= {
        name: linux.clone_mount(f"/{name}")
        for name in _PROGRAMS
        if name not in links and os.path.isdir(f"/{name}")
    }
    root = places.HERE
    linux.mount("tmpfs", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    for name, fd in mounts.items():
        os.makedirs(f"{root}/{name}")
        linux.attach_mount(fd, f"{root}/{name}")
    for name, link in links.items():
        os.symlink(link, f"{root}/{name}")
    os.chroot(root)
    os.chdir("/")
    os.execve("/usr/bin/cp", ["cp", "-a", "from/.", "to"], {})
