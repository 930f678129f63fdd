"""Values of task.toml: numbers, sizes and texts, read as tolerantly as Harbor does, or refused in words."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Annotated, Any

from pydantic import BeforeValidator

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:(?P<unit>[kmgt])i?)?b?", re.IGNORECASE)
_UNITS = {"": 1 / 2**20, "k": 1 / 2**10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: Any) -> str:
    """The value as an error shows it."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return "a very long number"


def _number(value: Any) -> float:
    """A finite number, or a text that is one; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _above_zero(value: Any) -> Any:
    if value is None:
        return None
    if not (number := _number(value)) > 0:
        raise ValueError("must be a number above 0")
    return number


def _not_negative(value: Any) -> float:
    if not (number := _number(value)) >= 0:
        raise ValueError("must be a number of 0 or more")
    return number


def _count(value: Any) -> int:
    number = _number(value)
    if not number >= 0 or number != int(number):
        raise ValueError("must be a whole number of 0 or more")
    return int(number)


def _megabytes(value: Any) -> Any:
    if value is None:
        return None
    if not 0 < (number := _number(value)) < 2**40:
        raise ValueError("must be a number above 0, of MB")
    return math.ceil(number)


def _size(value: Any) -> Any:
    """MB of `4G`, `512M`, `2Gi`, `1.5gb`, or of a number of bytes; units are powers of 1024, as in Docker."""
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not whole and match is None:
        raise ValueError('must be a size like "512M" or "2G"')
    if match is None:
        megabytes = _number(value) / 2**20
    else:
        megabytes = float(match["number"]) * _UNITS[(match["unit"] or "").lower()]
    if not 1 <= megabytes < 2**40:
        raise ValueError('must be a size like "512M" or "2G", of 1 MB or more (a bare number counts bytes)')
    return math.ceil(megabytes)


def _text(value: Any) -> Any:
    """Numbers are taken as the text they are written as: users and ports are often unquoted."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shown(value)
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _name(value: Any) -> Any:
    text = None if value is None else _text(value)
    if text is not None and not text.strip():
        raise ValueError("must be text that is not empty")
    return text


Above0 = Annotated[float, BeforeValidator(_above_zero)]
NotNegative = Annotated[float, BeforeValidator(_not_negative)]
Count = Annotated[int, BeforeValidator(_count)]
OptionalAbove0 = Annotated[float | None, BeforeValidator(_above_zero)]
Megabytes = Annotated[int | None, BeforeValidator(_megabytes)]
Size = Annotated[int | None, BeforeValidator(_size)]
Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str | None, BeforeValidator(_name)]
