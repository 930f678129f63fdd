"""Tasks whose files are in a row of an index: as columns, or as an archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.harbor.writer import new_folder, relative, write_files
from tasks.task import TaskError

COLUMNS = {
    "instruction": "instruction.md",
    "task_toml": "task.toml",
    "dockerfile": "environment/Dockerfile",
    "test_sh": "tests/test.sh",
    "solve_sh": "solution/solve.sh",
}
"""Columns that hold a file, and its name; `files` holds any others by their names."""
ARCHIVE = "task_binary"
"""A tar archive of the task directory, perhaps compressed, as data sets of tasks have it."""
LARGEST = 1 << 30
"""Bytes that an archive may unpack to."""

Files = dict[str, bytes]


def is_inline(row: Mapping[str, Any]) -> bool:
    return ARCHIVE in row or "instruction" in row


def materialise(row: Mapping[str, Any], folder: Path) -> Path:
    """`folder/<hash of the files>`, written unless it is there. Raises TaskError, OSError."""
    files, executable = _without_top(*_unpack(row[ARCHIVE])) if ARCHIVE in row else ({}, set())
    for column, name in COLUMNS.items():
        if column in row:
            files[name] = _content(column, row[column])
    files |= {str(relative(name)): _content(name, content) for name, content in _files(row.get("files", {}))}
    files.setdefault("task.toml", b"")
    executable |= {name for name in files if name.endswith(".sh")}
    target = folder / _digest(files, executable)
    if not target.exists():
        with new_folder(target) as staging:
            write_files(files, executable, staging)
            try:
                os.rename(staging, target)
            except OSError:
                if not target.exists():  # else another process was faster, with the same content
                    raise
    return target


def _files(value: Any) -> Iterator[tuple[str, Any]]:
    """A table, its JSON text, or a list of pairs or of tables with a name and a content."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise TaskError("files is a text that is not JSON: write a table of names and contents") from None
    if isinstance(value, Mapping):
        value = list(value.items())
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, Mapping):
            item = item.get("name", item.get("path")), item.get("content", item.get("text"))
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise TaskError("files must be a table of names and contents, or a list of name and content")
        yield item[0], item[1]


def _content(name: str, value: Any) -> bytes:
    try:
        return value if isinstance(value, bytes) else value.encode()
    except AttributeError:
        raise TaskError(f"{name} must be text, not {type(value).__name__}") from None
    except UnicodeEncodeError:
        raise TaskError(f"{name} holds half a surrogate pair, which has no bytes: correct the text") from None


def _unpack(data: Any) -> tuple[Files, set[str]]:
    """The regular files, and which are executable; links are no files of a task."""
    if not isinstance(data, bytes):
        raise TaskError(f"{ARCHIVE} must be bytes, not {type(data).__name__}")
    files: Files = {}
    executable = set()
    left = LARGEST
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                left -= member.size
                if left < 0:
                    raise TaskError(f"{ARCHIVE} unpacks to more than {LARGEST >> 20} MB")
                if member.isfile() and (opened := archive.extractfile(member)):
                    name = str(relative(member.name))
                    files[name] = opened.read()
                    executable |= {name} if member.mode & 0o100 else set()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{ARCHIVE} is not a tar archive ({error})") from None
    return files, executable


def _without_top(files: Files, executable: set[str]) -> tuple[Files, set[str]]:
    """The same files, without the folder that holds them all in some archives."""
    tops = {name.partition("/")[0] for name in files}
    if len(tops) != 1 or tops & files.keys():
        return files, executable
    start = len(tops.pop()) + 1
    return {name[start:]: data for name, data in files.items()}, {name[start:] for name in executable}


def _digest(files: Files, executable: set[str]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{len(name)} {len(content)} {name in executable} {name}".encode() + content)
    return digest.hexdigest()[:24]
