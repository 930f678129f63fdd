"""Cutting one instruction's line: keyword, flags, and arguments as words, JSON, or names and values."""

from __future__ import annotations

import json
import re

from tasks.dockerfile.errors import DockerfileError, shown
from tasks.dockerfile.source import SPACE

_ASCII_SPACE = "\t\n\v\f\r "
_BLANK = re.compile(r"[\t\v\f\r ]+")


def split_instruction(line: str) -> tuple[str, list[str], str]:
    """(keyword as written, flags without dashes, rest without white space at its ends)."""
    parts = _BLANK.split(line.strip(SPACE), maxsplit=1)
    if len(parts) == 1:
        return parts[0], [], ""
    flags, rest = _split_flags(parts[1])
    return parts[0], flags, rest.strip(SPACE)


def split_blanks(rest: str) -> tuple[str, ...]:
    """Words between blanks; quotes mean nothing here."""
    return tuple(_BLANK.split(rest)) if rest else ()


def split_first(rest: str) -> tuple[str, str] | None:
    """The first word and the text after it; None if there is nothing after it."""
    parts = _BLANK.split(rest, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def split_quoted(rest: str, escape: str) -> tuple[str, ...]:
    """Words of `ENV`, `LABEL` and `ARG`: blanks in quotes or after an escape belong to a word."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    index = 0
    while index < len(rest):
        char = rest[index]
        index += 1
        if not quote and char in SPACE:
            if word:
                words.append("".join(word))
                word = []
            continue
        if char == escape and quote != "'":
            if index == len(rest):
                break
            char += rest[index]
            index += 1
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        word.append(char)
    if word:
        words.append("".join(word))
    return tuple(words)


def json_strings(rest: str) -> tuple[str, ...] | None:
    """The strings of a JSON array; None where the text is none and is taken literally, as Docker does."""
    text = rest.lstrip(SPACE)
    if not text.startswith("["):
        return None
    try:
        items = json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(item, str) for item in items):
        raise DockerfileError(f"the array {shown(text)} may hold strings only")
    return tuple(item.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for item in items)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _split_flags(text: str) -> tuple[list[str], str]:
    flags: list[str] = []
    index = 0
    while True:
        while index < len(text) and text[index] in _ASCII_SPACE:
            index += 1
        if not text.startswith("--", index):
            return flags, text[index:]
        flag, index = _flag(text, index)
        if flag == "--":
            return flags, text[index:]
        flags.append(flag[2:])


def _flag(text: str, index: int) -> tuple[str, int]:
    """One flag from `index` on, quotes and escapes taken away, and the index after it."""
    word: list[str] = []
    quote = ""
    while index < len(text):
        char = text[index]
        if not quote and char in _ASCII_SPACE:
            break
        index += 1
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char != "\\":
            word.append(char)
        elif index < len(text):
            word.append(text[index])
            index += 1
    return "".join(word), index
