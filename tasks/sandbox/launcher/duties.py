"""Small duties done as the root of a sandbox: unpack an archive, read a file.

What lies in their way may be anything that the sandbox made of it; none of it can hold them up.
"""

from __future__ import annotations

import os
import stat
import tarfile
from contextlib import suppress
from typing import Any

_XATTR = "SCHILY.xattr."
"""Prefix of extended attributes in an archive."""


class DutyError(Exception):
    """One sentence for the caller."""


def extract(archive: int, target: str, any_user: bool) -> None:
    """Unpack tar bytes into a folder, which is made if it is not there. Raises OSError, DutyError."""
    os.umask(0o022)
    try:
        os.makedirs(target, exist_ok=True)
        with open(archive, "rb", closefd=False) as file, _Archive.open(fileobj=file, mode="r:") as tar:
            assert isinstance(tar, _Archive)
            tar.keep_owners = any_user
            tar.extractall(target, numeric_owner=True)
    except tarfile.TarError as error:
        raise DutyError(f"{target}: {error}") from None


def read(path: str, into: int, largest: int) -> int:
    """Copy a regular file to a descriptor; returns its size. Raises OSError, DutyError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        raise DutyError(f"{path}: not a regular file of at most {largest} bytes")
    size = 0
    while size < largest and (data := os.read(fd, min(1 << 20, largest - size))):
        size += os.write(into, data)
    return size


class _Archive(tarfile.TarFile):
    keep_owners = True
    errorlevel = 2
    """Every problem is an error."""

    @staticmethod
    def extraction_filter(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        """All as the archive says: where it is unpacked there is nothing to protect from it."""
        return member

    def makefile(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        _make_way(targetpath)
        super().makefile(tarinfo, targetpath)

    def makelink(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        _make_way(targetpath)
        super().makelink(tarinfo, targetpath)
        if tarinfo.issym():
            os.utime(targetpath, (tarinfo.mtime, tarinfo.mtime), follow_symlinks=False)

    def makedev(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        _make_way(targetpath)
        super().makedev(tarinfo, targetpath)

    def makedir(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        if not os.path.isdir(targetpath):
            _make_way(targetpath)
        super().makedir(tarinfo, targetpath)
        for key, value in tarinfo.pax_headers.items():
            if key.startswith(_XATTR):
                os.setxattr(targetpath, key.removeprefix(_XATTR), value.encode())

    def chown(self, *arguments: Any, **options: Any) -> None:
        if self.keep_owners:
            super().chown(*arguments, **options)


def _make_way(path: str) -> None:
    """Remove what is there and no folder: a link would lead elsewhere, a named pipe would be waited for."""
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(path)
