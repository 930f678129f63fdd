"""Files of a sandbox, on their way in and out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from tasks.sandbox.base import LARGEST_READ, SandboxError
from tasks.sandbox.box import Box
from tasks.sandbox.channel import Output
from tasks.sandbox.runtime import memory_file
from tasks.sandbox.shell import clock_ticks

WRITE_TIMEOUT_S = 10.0
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1" && chmod "$2" -- "$1"'
_COPIED = """\
set -e
destination=$1 owner=$2 group=$3 mode=$4; shift 4
for pattern; do
  for source in $(cd / && printf '%s\\n' "/${pattern#/}" | sed 's/ /?/g'); do
    if [ -d "$source" ]; then
      mkdir -p "/.copied$destination"
      cp -a "$source/." "/.copied$destination"
    elif [ "${destination%/}" != "$destination" ]; then
      mkdir -p "/.copied$destination"
      cp -aL "$source" "/.copied$destination"
    else
      mkdir -p "$(dirname "/.copied$destination")"
      cp -aL "$source" "/.copied$destination"
    fi
  done
done
cd /.copied
set -- --numeric-owner ${owner:+"--owner=x:$owner" "--group=x:$group"} ${mode:+"--mode=$mode"}
if [ -d ".$destination" ]; then
  find ".${destination%/}" -mindepth 1 -print0 | tar -c "$@" --no-recursion --null -T -
else
  tar -c "$@" ".$destination"
fi
"""
"""Gathers files at their destination, wildcards and all, and prints an archive of them (no folder above)."""


async def read(box: Box, path: str) -> bytes:
    """Bytes of a regular file; links are followed inside. Raises FileNotFoundError, SandboxError."""
    with memory_file() as fd:
        try:
            await box.duty("read", [fd], path=path, largest=LARGEST_READ)
        except SandboxError as error:
            if box.is_gone():
                raise
            raise FileNotFoundError(str(error)) from None
        return _content(fd)


async def write(box: Box, path: str, data: bytes, mode: int, user: str | None = None) -> None:
    """Write a file as a user, and make its folder. Raises SandboxError."""
    stderr, since = Output(4096), clock_ticks()
    stderr.begin()
    try:
        with memory_file(data) as fd:
            argv = ["sh", "-c", _WRITE, "sh", path, f"{mode:o}"]
            program = await box.spawn(argv, {0: fd, 1: stderr.inner, 2: stderr.inner}, user=user)
        if not await box.finishes(program, since, WRITE_TIMEOUT_S):
            raise box.error(f"could not write {path} within {WRITE_TIMEOUT_S:g} s: is it a named pipe?")
        if program.ended.result() != 0:
            message = stderr.end()[0].decode(errors="replace").strip().splitlines()
            raise box.error(f"could not write {path}: {message[-1] if message else 'no reason given'}")
    finally:
        stderr.close()


async def extract(box: Box, archive: bytes, target: str) -> None:
    """Unpack tar bytes, with the owners and modes that they name, into a folder. Raises SandboxError."""
    with memory_file(archive) as fd:
        await box.duty("extract", [fd], target=target)


async def archive(
    box: Box,
    sources: Sequence[str],
    destination: str,
    owner: tuple[int, int] | None = None,
    chmod: int | None = None,
) -> bytes:
    """Tar bytes, for `/`, of files as COPY puts them at a destination, which ends in `/` if a folder.

    Each file keeps its owner and mode unless others are given. Raises SandboxError.
    """
    stderr = Output(4096)
    stderr.begin()
    try:
        with memory_file() as fd:
            ids = ["", ""] if owner is None else [str(number) for number in owner]
            mode = "" if chmod is None else f"{chmod:o}"
            argv = ["sh", "-c", _COPIED, "sh", destination, *ids, mode, *sources]
            program = await box.spawn(argv, {1: fd, 2: stderr.inner}, user="root", cwd="/")
            if await asyncio.shield(program.ended) != 0:
                raise box.error(f"lacks a source: {stderr.end()[0].decode(errors='replace').strip()}")
            return _content(fd)
    finally:
        stderr.close()


def _content(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", closefd=False) as file:
        return file.read()
