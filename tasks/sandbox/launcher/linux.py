"""The system calls that Python 3.11 has no function for, each raising OSError as `os` does."""

from __future__ import annotations

import ctypes
import os
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ALL_NAMESPACES = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)

MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
LAST_CAP = 40
"""CAP_CHECKPOINT_RESTORE."""

_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""Call numbers; the same on x86-64 and arm64."""
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_IDMAP = 0x1, 0x4, 0x100000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 24, 36, 38
_SECCOMP_MODE_FILTER = 2

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def unshare(namespaces: int) -> None:
    _checked(_libc.unshare(namespaces))


def setns(fd: int, namespaces: int) -> None:
    """Join namespaces of the process behind a pidfd, or the one behind a namespace's descriptor."""
    _checked(_libc.setns(fd, namespaces))


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    _checked(
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            os.fsencode(options),
        ),
        target,
    )


def unmount(target: str) -> None:
    """Take it out of the tree now; it ends when its last user does."""
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), target)


def clone_mount(path: str, user_namespace_fd: int | None = None) -> int:
    """A detached bind mount of one folder, without what is mounted below it.

    With `user_namespace_fd` it is read-only and its owners are shifted as that namespace maps them.
    """
    fd = _checked(
        _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | os.O_CLOEXEC), path
    )
    if user_namespace_fd is not None:
        flags = _MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NODEV
        attributes = _MountAttr(flags, 0, 0, user_namespace_fd)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        _checked(_libc.syscall(_MOUNT_SETATTR, fd, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size), path)
    return fd


def attach_mount(fd: int, target: str) -> None:
    """Put a detached mount into the tree, and close its descriptor."""
    _checked(
        _libc.syscall(_MOVE_MOUNT, fd, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH), target
    )
    os.close(fd)


def die_with_parent(signal_number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def be_subreaper() -> None:
    """Orphans among our descendants become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_unreadable() -> None:
    """No process without more capabilities may trace or read us, until we execute a program."""
    _prctl(_PR_SET_DUMPABLE, 0)


def be_readable() -> None:
    """The opposite; a process whose user changed is unreadable, and then its children's maps are too."""
    _prctl(_PR_SET_DUMPABLE, 1)


def bound_capabilities(kept: frozenset[int]) -> None:
    """No program that we execute has a capability beyond these."""
    for capability in set(range(LAST_CAP + 1)) - kept:
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # one that this kernel lacks cannot be dropped


def gain_nothing() -> None:
    """No program that we execute has more privileges than we do, whatever its mode says."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_calls(program: bytes) -> None:
    """Install a seccomp filter (see `tasks.sandbox.seccomp`)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = _Filter(len(program) // 8, ctypes.cast(buffer, ctypes.c_char_p))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_))


def _prctl(option: int, value: int, pointer: Any = 0) -> None:
    _checked(_libc.prctl(option, value, pointer, 0, 0))


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
