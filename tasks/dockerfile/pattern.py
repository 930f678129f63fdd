"""Shell patterns of `${x#p}`, `${x%p}` and `${x/p/r}`: `*`, `?` and literals, as BuildKit has them.

Matching walks a set of pattern positions, so its time is bounded by pattern length × value length.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.dockerfile.errors import DockerfileError, shown

_ANY, _ONE = "any", "one"
Pattern = tuple[tuple[str, str], ...]
"""One (kind, literal) a position."""


def compile_pattern(text: str) -> Pattern:
    """Raises DockerfileError for an escape of something that needs none."""
    items: list[tuple[str, str]] = []
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char == "\\":
            char = text[index : index + 1]
            index += 1
            if char not in ("*", "?", "\\", "}", "/"):
                raise DockerfileError(
                    f"the pattern {shown(text)} escapes {shown(char)}, which needs no escape"
                )
            items.append(("literal", char))
        elif char == "*":
            items.append((_ANY, ""))
        elif char == "?":
            items.append((_ONE, ""))
        else:
            items.append(("literal", char))
    return tuple(items)


def _prefix(items: Pattern, value: Sequence[str], start: int, longest: bool) -> int | None:
    """The end of the shortest or longest match that begins at `start`."""

    def closed(positions: set[int]) -> set[int]:
        for position in sorted(positions):
            while position < len(items) and items[position][0] == _ANY:
                position += 1
                positions.add(position)
        return positions

    found: int | None = None
    positions = closed({0})
    for end in range(start, len(value) + 1):
        if len(items) in positions:
            found = end
            if not longest:
                break
        if end == len(value) or not positions:
            break
        following: set[int] = set()
        for position in positions:
            if position == len(items):
                continue
            kind, literal = items[position]
            if kind == _ANY:
                following.add(position)
            elif kind == _ONE or literal == value[end]:
                following.add(position + 1)
        positions = closed(following)
    return found


def trim(pattern: str, value: str, suffix: bool, longest: bool) -> str:
    """`value` without the matching prefix, or suffix."""
    items = compile_pattern(pattern)
    if suffix:
        end = _prefix(items[::-1], value[::-1], 0, longest)
        return value if end is None else value[: len(value) - end]
    end = _prefix(items, value, 0, longest)
    return value if end is None else value[end:]


def substitute(pattern: str, replacement: str, value: str, every: bool) -> str:
    """`value` with the first match, or every match, replaced; a match is as long as it can be."""
    items = compile_pattern(pattern)
    parts: list[str] = []
    index = 0
    while index <= len(value):
        end = _prefix(items, value, index, longest=True)
        if end is None:
            parts.append(value[index : index + 1])
            index += 1
            continue
        parts.append(replacement)
        if not every:
            return "".join(parts) + value[end:]
        if end == index:
            parts.append(value[index : index + 1])
            end += 1
        index = end
    return "".join(parts)
