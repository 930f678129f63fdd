"""Folders as tar bytes that are the same for the same content: fixed owner, times, modes and order."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tasks.sandbox.base import SandboxError

EPOCH = 1_704_067_200
"""2024-01-01T00:00:00Z: the time stamp of every file a sandbox starts with (`ls -l` shows no hour)."""

LARGEST = 1 << 30
"""Bytes of a folder; they are held in memory."""


def pack(folder: Path, uid: int, gid: int) -> bytes:
    """The content of `folder` (not the folder's own name). Raises SandboxError."""
    try:
        return _pack(folder, uid, gid)
    except OSError as error:
        raise SandboxError(f"{error.filename or folder} cannot be read: {error.strerror}") from None


def _pack(folder: Path, uid: int, gid: int) -> bytes:
    buffer, left = io.BytesIO(), LARGEST
    # Newest first is how a tmpfs lists a folder: last name first here is alphabetical there.
    paths = sorted(folder.rglob("*"), reverse=True)
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in [folder, *sorted(paths, key=lambda path: len(path.parts))]:
            info = archive.gettarinfo(path, arcname=str(Path(".") / path.relative_to(folder)))
            if info is None or not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
                raise SandboxError(f"{path} is neither a file, a folder nor a link; remove it from the task")
            left -= info.size
            if left < 0:
                raise SandboxError(f"{folder} holds more than {LARGEST >> 20} MB: make it smaller")
            info.uid, info.gid, info.uname, info.gname = uid, gid, "", ""
            info.mtime = EPOCH
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            if info.isfile():
                with path.open("rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)
    return buffer.getvalue()
