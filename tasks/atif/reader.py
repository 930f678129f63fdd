"""Reads ATIF without loss: what would not be written again as it was is refused, in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.atif.models import Trajectory
from tasks.task import TaskError


def read(file: Path) -> Trajectory:
    """The trajectory in a file. Raises TaskError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise TaskError(f"{file} cannot be read ({error.strerror}): name a file with a trajectory") from None
    return loads(data, str(file))


def loads(data: bytes | str, name: str = "the document") -> Trajectory:
    """The trajectory in a JSON text; `name` is for errors. Raises TaskError."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise TaskError(f"{name} is not ATIF: it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise TaskError(f"{name} is not ATIF: it is not valid JSON ({error.msg} at {where})") from None
    except RecursionError:
        raise TaskError(f"{name} is not ATIF: it is nested too deeply") from None
    except ValueError as error:
        raise TaskError(f"{name} is not ATIF: {error}") from None
    return _trajectory(value, name)


def _trajectory(value: Any, name: str) -> Trajectory:
    if not isinstance(value, dict):
        raise TaskError(f"{name} is not ATIF: it should hold a JSON object with `schema_version` and `steps`")
    version = value.get("schema_version")
    if not (isinstance(version, str) and version.startswith("ATIF-v")):
        raise TaskError(f"{name} is not ATIF: its `schema_version` should be one such as ATIF-v1.6")
    try:
        return Trajectory.model_validate(value)
    except ValidationError as error:
        first, *others = error.errors(include_url=False, include_context=False, include_input=False)
        more = f" (and {len(others)} more)" if others else ""
        where = _path(first["loc"])
        raise TaskError(
            f"{name} is not ATIF: {where}: {_complaint(first['type'], first['msg'])}{more}"
        ) from None


def _path(location: tuple[int | str, ...]) -> str:
    """As `steps[3].message`; without the names that the types of `models` give their alternatives."""
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in location
        if not str(part).startswith("(")
    )
    return "".join(parts).removeprefix(".")


def _complaint(kind: str, message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    for python, json_name in (("an instance of str", "a string"), ("an instance of dict", "an object")):
        message = message.replace(python, json_name)
    if kind == "missing":
        return "is missing"
    if kind in ("model_type", "model_attributes_type"):
        return "should be an object"
    return message[0].lower() + message[1:]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return found


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
