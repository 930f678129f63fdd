"""Writes ATIF: a document that was read is written with the same keys, values and order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tasks.atif.models import AtifModel

_DEEPEST = 12
"""Levels that are laid out; what lies deeper stays on one line."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(model: AtifModel, indent: int | None = None) -> str:
    """JSON text. With `indent`, a value a line, lists of numbers (token ids) on one."""
    value = model.as_json()
    text = _json(value) if indent is None else _laid_out(value, indent, 0)
    # Only inside strings, and not encodable as UTF-8.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write(model: AtifModel, file: Path) -> None:
    """To a file, as `dumps` with an indent of 1, which is how recorded trajectories look."""
    file.write_text(dumps(model, indent=1), encoding="utf-8", newline="")


def _laid_out(value: Any, indent: int, level: int) -> str:
    if level == _DEEPEST or not value or not isinstance(value, dict | list):
        return _json(value)
    if isinstance(value, dict):
        ends = "{}"
        items = [f"{_json(key)}: {_laid_out(item, indent, level + 1)}" for key, item in value.items()]
    elif all(isinstance(item, int | float) for item in value):
        return _json(value)
    else:
        ends = "[]"
        items = [_laid_out(item, indent, level + 1) for item in value]
    lines = f",\n{' ' * (indent * (level + 1))}".join(items)
    return f"{ends[0]}\n{' ' * (indent * (level + 1))}{lines}\n{' ' * (indent * level)}{ends[1]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
