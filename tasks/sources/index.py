"""An index of tasks: a JSON lines or Parquet file, a task a row.

A row names a task directory (`path`, from the index's folder), a built-in task (`family` and `seed`), or
holds the files themselves (see `tasks.sources.inline`), which are then written below the cache by the hash of
their content. Its `id` is optional: the path, `family/seed`, or the index's name and the row's number stand
in for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.harbor.reader import load_task
from tasks.sources.families import FamilySource, cannot_write
from tasks.sources.inline import is_inline, materialise
from tasks.sources.rows import Row, open_rows
from tasks.task import Task, TaskError, UnknownTask


class IndexSource:
    def __init__(self, file: Path, cache: Path) -> None:
        """Raises TaskError for a file that cannot be read, or that gives two rows the same id."""
        self._file = file
        self._cache = cache
        self._rows = open_rows(file)
        self._families = FamilySource(cache)
        self._numbers: dict[str, int] = {}
        for number, row in enumerate(self._rows.names()):
            task_id = self._id(number, row)
            if (other := self._numbers.setdefault(task_id, number)) != number:
                here, there = self._rows.where(number), self._rows.where(other)
                raise TaskError(f"{here} has the id {task_id!r}, as has {there}: change one")
        if not self._numbers:
            raise TaskError(f"{file} holds no rows: write a task in each")

    def __len__(self) -> int:
        return len(self._numbers)

    def ids(self) -> Iterator[str]:
        return iter(self._numbers)

    def describe(self) -> str:
        return f"index {self._file}"

    def path(self, task_id: str) -> Path:
        if task_id not in self._numbers:
            raise UnknownTask(f"there is no task {task_id!r} in {self._file}: list the tasks there")
        number = self._numbers[task_id]
        row = self._rows.row(number)
        try:
            return self._path(row)
        except TaskError as error:
            raise TaskError(f"{self._rows.where(number)}: {error}") from None
        except OSError as error:
            raise cannot_write(task_id, self._cache, error) from error

    def load(self, task_id: str) -> Task:
        return load_task(self.path(task_id), task_id)

    def _path(self, row: Row) -> Path:
        if is_inline(row):
            return materialise(row, self._cache / "inline" / self._file.stem)
        if isinstance(path := row.get("path"), str):
            return self._file.parent / path
        if "family" in row and "seed" in row:
            return self._families.path(f"{row['family']}/{row['seed']}")
        raise TaskError("names no task: give path, or family and seed, or instruction with its other files")

    def _id(self, number: int, row: Row) -> str:
        task_id = row.get("id", row.get("path"))
        if task_id is None and "family" in row and "seed" in row:
            task_id = f"{row['family']}/{row['seed']}"
        if task_id is None:
            return f"{self._file.stem}/{number}"
        if not isinstance(task_id, str | int) or not str(task_id).strip():
            raise TaskError(f"{self._rows.where(number)} has the id {task_id!r}: it must be text")
        return str(task_id)
