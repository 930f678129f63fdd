"""Trees of files in the making, as tar bytes for the launcher to unpack: bases and layers."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
from collections.abc import Callable

from tasks.sandbox.archive import EPOCH

_CREDENTIALS = re.compile(rb"://[^/\s:@]+:[^/\s@]+@")
"""A user and a password in an address: a file of the host that has them is nobody else's."""


class Tree:
    """A tar archive in the making; a file added twice is the first one."""

    def __init__(self, tar: tarfile.TarFile):
        self._tar = tar
        self._names: set[str] = set()

    def folder(self, name: str, mode: int = 0o755, owner: int = 0, opaque: bool = False) -> None:
        """`opaque`: what lies below it in lower layers is hidden."""
        if (info := self._new(name, tarfile.DIRTYPE, mode, owner)) is not None:
            if opaque:
                info.pax_headers = {"SCHILY.xattr.user.overlay.opaque": "y"}
            self._tar.addfile(info)

    def text(self, name: str, text: str, mode: int = 0o644) -> None:
        if (info := self._new(name, tarfile.REGTYPE, mode)) is not None:
            info.size = len(text.encode())
            self._tar.addfile(info, io.BytesIO(text.encode()))

    def link(self, name: str, target: str) -> None:
        if (info := self._new(name, tarfile.SYMTYPE, 0o777)) is not None:
            info.linkname = target
            self._tar.addfile(info)

    def gone(self, name: str) -> None:
        """A file of a lower layer that is not there."""
        if (info := self._new(name, tarfile.CHRTYPE, 0)) is not None:
            self._tar.addfile(info)

    def copy(self, path: str, name: str) -> None:
        """A file, folder or link of the host that everybody may read; nothing for any other."""
        try:
            status = os.lstat(path)
        except OSError:
            return
        if stat.S_ISLNK(status.st_mode):
            self.link(name, os.readlink(path))
        elif stat.S_ISDIR(status.st_mode) and status.st_mode & 0o005 == 0o005:
            self.folder(name, stat.S_IMODE(status.st_mode))
        elif stat.S_ISREG(status.st_mode) and status.st_mode & 0o004:
            self._file(path, name, status)

    def _file(self, path: str, name: str, status: os.stat_result) -> None:
        info = self._new(name, tarfile.REGTYPE, stat.S_IMODE(status.st_mode))
        with open(path, "rb") as file:
            data = file.read()
        if info is not None and _CREDENTIALS.search(data) is None:
            info.size, info.mtime = len(data), int(status.st_mtime)
            self._tar.addfile(info, io.BytesIO(data))

    def _new(self, name: str, kind: bytes, mode: int, owner: int = 0) -> tarfile.TarInfo | None:
        parent = os.path.dirname(name)
        if parent and parent not in self._names:
            self.folder(parent)
        if name in self._names:
            return None
        self._names.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime, info.uid, info.gid = kind, mode, EPOCH, owner, owner
        return info


def packed(write: Callable[[Tree], None]) -> bytes:
    """What `write` puts into a tree. Raises OSError for a file that cannot be read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        write(Tree(tar))
    return buffer.getvalue()
