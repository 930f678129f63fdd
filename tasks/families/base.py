"""A family: a seeded generator of tasks, each with a scripted expert.

`generate(seed)` is a pure function of the family and the seed. Seeds below `EVAL_SEED` are for
training, the others for evaluation; the two share words and numbers, but no pair of words and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

EVAL_SEED = 1_000_000


@dataclass(frozen=True)
class Step:
    """One expert action: a short sentence of thought, then a bash command (None: the tool `done`)."""

    thought: str
    command: str | None


Expert = Generator[Step, str, None]
"""Yields steps; is sent the canonical observation of each."""


@dataclass(frozen=True)
class GeneratedTask:
    """A task before it is written to disk. `expert` makes a fresh expert each time it is called."""

    family: str
    seed: int
    instruction: str
    files: dict[str, str]
    """Relative path in the work folder → text."""
    test_sh: str
    """Text of `tests/check.sh`; runs in the work folder and fails (any line) unless the task is solved."""
    expert: Callable[[], Expert]
    setup_sh: str | None = None
    executable: frozenset[str] = field(default_factory=frozenset)

    @property
    def id(self) -> str:
        return f"{self.family}/{self.seed}"


class Family(Protocol):
    name: str

    def generate(self, seed: int) -> GeneratedTask: ...
