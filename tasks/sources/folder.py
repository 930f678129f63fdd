"""A folder of Harbor task directories, of sets of them (one level), or a task directory itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tasks.harbor.reader import load_task
from tasks.task import Task, TaskError, UnknownTask


class FolderSource:
    """The ids are the directories' names, `set/name` in a set; hidden folders are no tasks."""

    def __init__(self, folder: Path) -> None:
        """Raises TaskError where the folder holds no task."""
        self._folder = folder
        try:
            if _has_task_file(folder):
                self._paths = {Path(os.path.abspath(folder)).name: folder}
            else:
                self._paths = dict(_find(folder))
        except OSError as error:
            raise TaskError(f"{folder} cannot be read: {error.strerror}") from None
        if not self._paths:
            raise TaskError(f"{folder} holds no task directories: a task has task.toml and instruction.md")

    def __len__(self) -> int:
        return len(self._paths)

    def ids(self) -> Iterator[str]:
        return iter(self._paths)

    def describe(self) -> str:
        return f"folder {self._folder}"

    def path(self, task_id: str) -> Path:
        if task_id not in self._paths:
            raise UnknownTask(f"there is no task {task_id!r} in {self._folder}: list the tasks there")
        return self._paths[task_id]

    def load(self, task_id: str) -> Task:
        return load_task(self.path(task_id), task_id)


def _find(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in _folders(folder):
        inner = [] if _has_task_file(path) else [inner for inner in _folders(path) if _has_part(inner)]
        if inner:
            yield from ((f"{path.name}/{each.name}", each) for each in inner)
        elif _has_part(path):
            yield path.name, path


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _has_task_file(folder: Path) -> bool:
    return (folder / "task.toml").is_file() or (folder / "instruction.md").is_file()


def _has_part(folder: Path) -> bool:
    """Any part will do, so that a task which lacks others is listed, and its defects are named."""
    parts = folder / "environment" / "Dockerfile", folder / "tests" / "test.sh"
    return _has_task_file(folder) or any(part.is_file() for part in parts)
