"""A source of tasks: which there are, and each by its id.

Ids are unique in a source, and the same each time it is opened. Methods block; `path` and `load` may be
called from several threads. A task that has no directory is written to the source's cache folder when it is
first asked for. A source that has an end also has a length.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tasks.task import Task


class TaskSource(Protocol):
    def ids(self) -> Iterator[str]: ...

    def describe(self) -> str:
        """What the source is, in a few words."""
        ...

    def path(self, task_id: str) -> Path:
        """The task's directory, which may be broken. Raises UnknownTask; TaskError where there is none."""
        ...

    def load(self, task_id: str) -> Task:
        """Raises UnknownTask, or TaskError for a task that cannot be used."""
        ...
