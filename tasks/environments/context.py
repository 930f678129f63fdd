"""What COPY and ADD take from the build context, as tar bytes for the sandbox to unpack.

The context is a folder of the task; no pattern and no link leads out of it.
"""

from __future__ import annotations

import glob
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tasks.environments.ignore import IgnoreRules
from tasks.sandbox.archive import EPOCH, LARGEST


class ContextError(Exception):
    """A sentence about a source."""


@dataclass(frozen=True)
class Owner:
    uid: int = 0
    gid: int = 0


class Archive:
    """Files on their way into an image. `chmod`: for all of them, or None."""

    def __init__(self, owner: Owner, chmod: int | None) -> None:
        self._owner, self._chmod = owner, chmod
        self._left = LARGEST
        self._buffer = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._buffer, mode="w", format=tarfile.GNU_FORMAT)

    def add(self, path: Path, name: str) -> None:
        """One file, folder (without its content) or link of the context."""
        info = self._tar.gettarinfo(path, arcname=name)
        if info is None or not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
            raise ContextError(f"{path} is neither a file, a folder nor a link")
        if info.islnk():  # each name is a file of its own
            info.type, info.size = tarfile.REGTYPE, path.stat().st_size
        mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        self._own(info, mode)
        self._take(info.size)
        if info.isreg():
            with path.open("rb") as file:
                self._tar.addfile(info, file)
        else:
            self._tar.addfile(info)

    def add_text(self, name: str, text: str) -> None:
        info = tarfile.TarInfo(name)
        data = text.encode()
        info.size = len(data)
        self._own(info, 0o644)
        self._tar.addfile(info, io.BytesIO(data))

    def add_archive(self, path: Path, below: str) -> None:
        """The content of a tar archive, with its own modes, times and owners."""
        try:
            with tarfile.open(path) as source:
                for member in source:
                    member.name = _within(member.name, below, path)
                    if member.islnk():
                        member.linkname = _within(member.linkname, below, path)
                    if member.issparse():
                        member.type = tarfile.REGTYPE
                    self._take(member.size)
                    self._tar.addfile(member, source.extractfile(member) if member.isreg() else None)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ContextError(f"{path} cannot be unpacked: {error}") from None

    def data(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ContextError(f"its files are more than {LARGEST >> 20} MB, which are held in memory")

    def _own(self, info: tarfile.TarInfo, mode: int) -> None:
        info.mode = mode if self._chmod is None else self._chmod
        info.mtime = EPOCH
        info.uid, info.gid, info.uname, info.gname = self._owner.uid, self._owner.gid, "", ""


class Context:
    """The folder that a Dockerfile is built in."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._ignored = IgnoreRules(folder / ".dockerignore")

    def matches(self, source: str) -> list[Path]:
        """What a source names, wildcards included, in order. Raises ContextError if it is nothing."""
        if "://" in source or source.startswith("git@"):
            raise ContextError(
                f"{source} would be downloaded: put the file into the task's environment folder, and ADD that"
            )
        relative = os.path.normpath("/" + source).lstrip("/")
        if relative == "":
            return [self.folder]
        if any(character in relative for character in "*?["):
            pattern = str(Path(glob.escape(str(self.folder)), relative))
            found = sorted(Path(path) for path in glob.glob(pattern, include_hidden=True))
        else:
            found = [self.folder / relative]
        found = [
            path for path in found if (path.exists() or path.is_symlink()) and not self._is_ignored(path)
        ]
        if not found:
            raise ContextError(f"{source} is not in {self.folder}")
        for path in found:
            if not path.resolve().is_relative_to(self.folder.resolve()):
                raise ContextError(f"{source} leads out of {self.folder}")
            if not path.exists():
                raise ContextError(f"{source} is a link to nothing")
        return found

    def below(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """All that a folder holds, parents first, with names relative to it."""
        for top, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted((*folders, *files)):
                path = Path(top, name)
                if not self._is_ignored(path):
                    yield path, str(path.relative_to(folder))

    def _is_ignored(self, path: Path) -> bool:
        return self._ignored.ignores(path.relative_to(self.folder).as_posix())


def needs_folder(context: Context, sources: tuple[str, ...], unpack: bool = False) -> bool:
    """Whether the destination is a folder, because a source holds more than one file. Raises ContextError."""
    found = [path for source in sources for path in context.matches(source)]
    return len(found) > 1 or any(path.is_dir() or (unpack and tarfile.is_tarfile(path)) for path in found)


def add_sources(
    context: Context, sources: tuple[str, ...], destination: str, archive: Archive, unpack: bool = False
) -> None:
    """As COPY does it: a folder gives its content, with `unpack` a tar archive too; `destination` ends in `/`
    where it is a folder. Raises ContextError."""
    for path in (path for source in sources for path in context.matches(source)):
        if path.is_dir():
            for below, name in context.below(path):
                archive.add(below, _inside(destination, name))
        elif unpack and tarfile.is_tarfile(path):
            archive.add_archive(path, destination)
        elif destination.endswith("/"):
            archive.add(path.resolve(), _inside(destination, path.name))
        else:
            archive.add(path.resolve(), _inside(destination))


def _inside(*parts: str) -> str:
    return str(PurePosixPath("/", *parts)).lstrip("/")


def _within(name: str, below: str, archive: Path) -> str:
    """A name of an archive where that is unpacked. Raises ContextError if it leads elsewhere."""
    if ".." in PurePosixPath(name).parts:
        raise ContextError(f"{archive} has {name!r} in it, which leads out of where it is unpacked")
    return _inside(below, name.lstrip("/"))
