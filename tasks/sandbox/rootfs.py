"""Files of a running sandbox, reached from the host without trusting a single link in it."""

from __future__ import annotations

import base64
import os
import shlex
import stat
from pathlib import PurePosixPath

LARGEST_READ = 64 * 1024 * 1024


def read(pid: int, path: str) -> bytes:
    """Bytes of `path` as the process sees it. Symbolic links are refused: theirs is the host's root.

    Raises FileNotFoundError unless it is a regular file of at most LARGEST_READ bytes.
    """
    parts = PurePosixPath("/", path).parts[1:]
    if ".." in parts:
        raise FileNotFoundError(f"{path}: name it without '..'")
    try:
        fd = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
        for index, part in enumerate(parts):
            flags = os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if index < len(parts) - 1 else 0)
            parent, fd = fd, -1
            try:
                fd = os.open(part, os.O_RDONLY | flags, dir_fd=parent)
            finally:
                os.close(parent)
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error.strerror} in the sandbox") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_READ:
        os.close(fd)
        raise FileNotFoundError(f"{path}: not a regular file of at most {LARGEST_READ} bytes")
    with open(fd, "rb") as file:
        return file.read(LARGEST_READ)


def write_command(path: str, data: bytes, mode: int) -> str:
    """A shell command that writes `data` to `path`, making its folder."""
    target, folder = shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent))
    text = base64.b64encode(data).decode()
    return (
        f"command -p mkdir -p -- {folder} && command -p base64 -d >{target} <<<'{text}' "
        f"&& command -p chmod {mode:o} -- {target}"
    )
