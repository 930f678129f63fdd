"""`.dockerignore`: which files of a context no COPY and no ADD sees."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TOKENS = re.compile(r"\*\*/?|\*|\?|\[\^?[^]]+\]|\\.|.", re.DOTALL)


class IgnoreRules:
    """Of one context; the last rule that fits a path, or a folder above it, decides."""

    def __init__(self, file: Path) -> None:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        self._rules = [_rule(line) for line in map(str.strip, lines) if line and not line.startswith("#")]

    def ignores(self, path: str) -> bool:
        """`path` is relative to the context, with slashes."""
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        ignored = False
        for keeps, pattern in self._rules:
            if any(pattern.fullmatch(each) for each in above):
                ignored = not keeps
        return ignored


def _rule(line: str) -> tuple[bool, re.Pattern[str]]:
    """Whether it keeps what it fits (`!`), and what it fits."""
    keeps = line.startswith("!")
    pattern = os.path.normpath(line.removeprefix("!").strip()).strip("/")
    return keeps, re.compile("".join(map(_regex, _TOKENS.findall(pattern))), re.DOTALL)


def _regex(token: str) -> str:
    match token:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if token.startswith("[") and len(token) > 1:
        return token
    return re.escape(token[-1])
