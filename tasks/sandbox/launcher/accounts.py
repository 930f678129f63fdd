"""The users and groups of a sandbox, as its own `/etc/passwd` and `/etc/group` name them.

These files may be anything that root inside made of them: no more is read than a plain file of reasonable
size.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass

_LARGEST = 1 << 20
"""Bytes of such a file."""


class AccountError(Exception):
    """A user or group that the sandbox does not have: one sentence."""


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int
    groups: list[int]
    home: str


def find(user: str) -> Account:
    """As Docker reads `USER`: names by /etc/passwd and /etc/group, numbers as they are. Raises
    AccountError."""
    name, _, group = user.partition(":")
    uid = gid = 0
    home, login = "/", name
    entry = _entry("/etc/passwd", name, 2)
    if entry is not None:
        login, uid, gid, home = entry[0], _number(entry[2]), _number(entry[3]), entry[5] or "/"
    elif name.isdigit():
        uid = _number(name)
    elif name not in ("", "root"):
        raise AccountError(f"there is no user {name!r} in the sandbox's /etc/passwd")
    lines = [line for line in _lines("/etc/group") if len(line) > 3]
    groups = [_number(line[2]) for line in lines if login in line[3].split(",")]
    if group:
        found = _entry("/etc/group", group, 2)
        if found is None and not group.isdigit():
            raise AccountError(f"there is no group {group!r} in the sandbox's /etc/group")
        gid, groups = _number(found[2] if found else group), []
    return Account(uid, gid, sorted({gid, *groups}), "/root" if uid == 0 and home == "/" else home)


def _entry(file: str, name: str, number: int) -> list[str] | None:
    """The line of a name, or else of a number; all its fields are there."""
    lines = [line for line in _lines(file) if len(line) > (5 if file.endswith("passwd") else number)]
    by_name = next((line for line in lines if line[0] == name), None)
    return by_name or next((line for line in lines if line[number] == name), None)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 32):
        raise AccountError(
            f"{text[:40]!r} in the sandbox's /etc/passwd or /etc/group is no number of a user or group"
        )
    return int(text)


def _lines(file: str) -> list[list[str]]:
    with suppress(OSError):
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                text = os.read(fd, _LARGEST).decode(errors="replace")
                return [line.split(":") for line in text.splitlines() if line and not line.startswith("#")]
        finally:
            os.close(fd)
    return []
