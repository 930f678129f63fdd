"""Which tasks exist: built-in families by `family/seed`, and folders of Harbor task directories.

A task of a family is written to the cache folder when it is first loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from orchestrator.schema import FamilyInfo, TaskList
from tasks.families import EVAL_SEED, FAMILIES
from tasks.harbor import load_task, write_task
from tasks.task import Task, TaskError

_FAMILY_TASK = re.compile(r"(?P<family>[A-Za-z_]\w*)/(?P<seed>0|[1-9]\d{0,17})")


class UnknownTask(TaskError):
    """There is no task of that id."""


class TaskIndex:
    """Blocking; `load` may be called from several threads."""

    def __init__(self, folders: Iterable[Path], cache: Path):
        """Raises TaskError when a folder is not there or two hold a task of the same name."""
        self._cache = cache
        self._lock = Lock()
        self._loaded: dict[str, Task] = {}
        self._folders: dict[str, Path] = {}
        for folder in folders:
            if not folder.is_dir():
                raise TaskError(f"no task folder at {folder}: correct `task_folders` in the config")
            for path in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
                if other := self._folders.get(path.name):
                    raise TaskError(f"{path} and {other} have the same name: rename one of them")
                self._folders[path.name] = path

    def listing(self) -> TaskList:
        return TaskList(
            families=[FamilyInfo(name=name, eval_seed=EVAL_SEED) for name in FAMILIES],
            tasks=list(self._folders),
        )

    def check(self, task_id: str) -> str:
        """The family of a task that can be run. Raises UnknownTask, or TaskError for one that is broken."""
        if task_id in self._folders:
            return self.load(task_id).family
        match = _FAMILY_TASK.fullmatch(task_id)
        if match is None or match["family"] not in FAMILIES:
            raise UnknownTask(
                f"there is no task {task_id!r}: GET /v1/tasks lists the families, where every `family/seed` "
                "is a task, and the task directories"
            )
        return match["family"]

    def load(self, task_id: str) -> Task:
        """Raises as `check` does."""
        with self._lock:
            if task_id not in self._loaded:
                self._loaded[task_id] = load_task(self._folders.get(task_id) or self._write(task_id))
            return self._loaded[task_id]

    def _write(self, task_id: str) -> Path:
        family = self.check(task_id)
        generated = FAMILIES[family].generate(int(task_id.rpartition("/")[2]))
        try:
            return write_task(generated, self._cache)
        except OSError as error:
            where = f"{task_id} cannot be written to {self._cache} ({error.strerror})"
            raise TaskError(f"{where}: correct `cache` in the config") from error
