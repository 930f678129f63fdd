"""Which tasks are served: built-in families by `family/seed`, and those of the configured folders.

A task that has no directory is written to the cache folder when it is first loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from orchestrator.schema import FamilyInfo, TaskList
from tasks.families import ALL_FAMILIES, EVAL_SEED, SLOW_FAMILIES
from tasks.sources import FamilySource, TaskSource, open_source
from tasks.task import Task, TaskError, UnknownTask

__all__ = ["TaskIndex", "UnknownTask"]


class TaskIndex:
    """Blocking; `load` may be called from several threads."""

    def __init__(self, folders: Iterable[Path], cache: Path):
        """Folders of task directories, or indexes of them; raises TaskError where one cannot be used, or
        two of them hold a task of the same name."""
        self._lock = Lock()
        self._loaded: dict[str, Task] = {}
        self._families = FamilySource(cache)
        self._sources: dict[str, TaskSource] = {}
        for folder in folders:
            if not folder.exists():
                raise TaskError(f"no task folder at {folder}: correct `task_folders` in the config")
            source = open_source(folder, cache)
            for task_id in source.ids():
                other = self._families if task_id in self._families else self._sources.get(task_id)
                if other is not None:
                    pair = f"{source.describe()} and {other.describe()}"
                    raise TaskError(f"{pair} have the same name for a task, {task_id!r}: rename one of them")
                self._sources[task_id] = source

    def listing(self) -> TaskList:
        families = [
            FamilyInfo(name=name, eval_seed=EVAL_SEED, slow=name in SLOW_FAMILIES) for name in ALL_FAMILIES
        ]
        return TaskList(families=families, tasks=list(self._sources))

    def check(self, task_id: str) -> str:
        """The family of a task that can be run. Raises UnknownTask, or TaskError for one that is broken."""
        if task_id in self._sources:
            return self.load(task_id).family
        if task_id not in self._families:
            raise UnknownTask(
                f"there is no task {task_id!r}: GET /v1/tasks lists the families, where every `family/seed` "
                "is a task, and the task directories"
            )
        return self._families.family(task_id)

    def load(self, task_id: str) -> Task:
        """Raises as `check` does."""
        with self._lock:
            if task_id not in self._loaded:
                if task_id not in self._sources:
                    self.check(task_id)
                self._loaded[task_id] = self._sources.get(task_id, self._families).load(task_id)
            return self._loaded[task_id]
