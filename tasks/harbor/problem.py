"""What is wrong with a task directory, as one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """An error keeps the task from being used; a warning says what will not be as its author meant."""

    severity: Severity
    file: str
    """Relative to the task directory."""
    what: str
    """What is wrong, and what to do about it."""
    line: int | None = None

    def __post_init__(self) -> None:
        # Names of files and fields are the task's, and may hold anything.
        object.__setattr__(self, "file", printable(self.file))
        object.__setattr__(self, "what", printable(self.what))

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


def printable(text: str) -> str:
    """The text on one line that any terminal and any UTF-8 file can take."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


Report = Callable[[Problem], None]
"""Takes each problem as it is found: it may collect them, or raise at the first error."""
