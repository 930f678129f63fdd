"""`.dockerignore`: which files of a context no COPY and no ADD sees."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

_LONGEST = 1000
"""Parts of a rule that are looked at."""


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
        ignored = False
        for keeps, rule in self._rules:
            if _fits(rule, parts):
                ignored = not keeps
        return ignored


def _rule(line: str) -> tuple[bool, list[str]]:
    """Whether it keeps what it fits (`!`), and the parts of what it fits."""
    keeps = line.startswith("!")
    pattern = os.path.normpath(line.removeprefix("!").strip()).strip("/")
    return keeps, pattern.split("/")[:_LONGEST]


def _fits(rule: list[str], parts: list[str]) -> bool:
    """Whether a rule fits a path or a folder above it; linear in rule times path.

    `reached` holds how many parts of the path the rule so far may have taken; `**` takes any number.
    """
    reached = {0}
    for part in rule:
        if part == "**":
            reached = set(range(min(reached), len(parts) + 1))
            continue
        # Docker negates a set with ^, and `**` within a part is `*`.
        one = part.replace("[^", "[!").replace("**", "*")
        reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], one)}
        if not reached:
            return False
    return max(reached) > 0
