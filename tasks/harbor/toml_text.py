"""The text of a task.toml: parsed, and the lines on which its fields are."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_HEADER = re.compile(r"\s*\[{1,2}([^\[\]=]+)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w.\"'\- ]+?)\s*=")
_AT = re.compile(r" \(at line (\d+), column \d+\)$")


class TomlError(ValueError):
    """Text that is not TOML, and the line where that shows, if it is known."""

    def __init__(self, what: str, line: int | None) -> None:
        super().__init__(what)
        self.line = line


def parse(text: str) -> dict[str, Any]:
    """Raises TomlError."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        match = _AT.search(what)
        raise TomlError(_AT.sub("", what), int(match[1]) if match else None) from None


def line_of(text: str, location: tuple[str | int, ...]) -> int | None:
    """The line of the field at `location`, or of the innermost table around it that has one."""
    wanted = tuple(part for part in location if isinstance(part, str))
    table: tuple[str, ...] = ()
    best, depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HEADER.fullmatch(line):
            table = found = _parts(match[1])
        elif match := _KEY.match(line):
            found = (*table, *_parts(match[1]))
        else:
            continue
        if len(found) > depth and wanted[: len(found)] == found:
            best, depth = number, len(found)
    return best


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))
