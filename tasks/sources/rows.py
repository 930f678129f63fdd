"""Rows of an index file, read one at a time: JSON lines, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from tasks.task import TaskError

NAMES = ("id", "path", "family", "seed")
"""Columns that name a task; the others may be long and are read only for the task that is asked for."""

Row = dict[str, Any]


class Rows(Protocol):
    def names(self) -> Iterator[Row]:
        """Each row in order, reduced to what names its task. Raises TaskError."""
        ...

    def row(self, number: int) -> Row:
        """A whole row, counted from 0. Raises TaskError."""
        ...

    def where(self, number: int) -> str:
        """Where a row is, for errors."""
        ...


def open_rows(file: Path) -> Rows:
    """By the name's ending. Raises TaskError."""
    return ParquetRows(file) if file.suffix == ".parquet" else JsonRows(file)


class JsonRows:
    """A JSON object a line; empty lines do not count."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: list[tuple[int, int]] = []
        """Line number and offset of each row."""
        offset = 0
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        self._lines.append((number, offset))
                    offset += len(line)
        except OSError as error:
            raise TaskError(f"{file} cannot be read: {error.strerror}") from None

    def names(self) -> Iterator[Row]:
        for number in range(len(self._lines)):
            row = self.row(number)
            yield {name: row[name] for name in NAMES if name in row}

    def row(self, number: int) -> Row:
        with self._file.open("rb") as lines:
            lines.seek(self._lines[number][1])
            line = lines.readline()
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{self.where(number)} is not JSON ({error}): correct the line") from None
        if not isinstance(row, dict):
            raise TaskError(f"{self.where(number)} is not a JSON object: correct the line")
        return _given(row)

    def where(self, number: int) -> str:
        return f"{self._file}:{self._lines[number][0]}"


class ParquetRows:
    """A row group is read at a time, and the last one kept."""

    def __init__(self, file: Path) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self._file = file
        self._lock = Lock()
        try:
            self._parquet = ParquetFile(file)
        except (OSError, ArrowException) as error:
            raise TaskError(f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
        groups = range(self._parquet.num_row_groups)
        self._sizes = [self._parquet.metadata.row_group(group).num_rows for group in groups]
        self._group: tuple[int, Any] | None = None

    def names(self) -> Iterator[Row]:
        present = [name for name in NAMES if name in self._parquet.schema_arrow.names]
        for size, group in zip(self._sizes, range(len(self._sizes)), strict=True):
            if not present:  # a table without columns has no rows either
                yield from ({} for _ in range(size))
                continue
            for row in self._parquet.read_row_group(group, columns=present).to_pylist():
                yield _given(row)

    def row(self, number: int) -> Row:
        group = 0
        while number >= self._sizes[group]:
            number -= self._sizes[group]
            group += 1
        with self._lock:
            if self._group is None or self._group[0] != group:
                self._group = group, self._parquet.read_row_group(group)
            (row,) = self._group[1].slice(number, 1).to_pylist()
        return _given(row)

    def where(self, number: int) -> str:
        return f"{self._file}, row {number + 1}"


def _given(row: Row) -> Row:
    """Without nulls, which stand for no value: all rows of a Parquet file have all its columns."""
    return {name: value for name, value in row.items() if value is not None}
