"""The built-in families: every `family/seed` is a task, made when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path
from threading import Lock

from tasks.families import ALL_FAMILIES, EVAL_SEED, family
from tasks.harbor.reader import load_task
from tasks.harbor.writer import write_task
from tasks.task import Task, TaskError, UnknownTask

_ID = re.compile(r"(?P<family>[A-Za-z_]\w*)/(?P<seed>0|[1-9]\d{0,17})")


class FamilySource:
    """All families, or those named; `ids` takes them in turn, seed by seed, from `first_seed` on."""

    def __init__(
        self, cache: Path, names: Collection[str] = tuple(ALL_FAMILIES), first_seed: int = 0
    ) -> None:
        """Raises TaskError for a name that no family has."""
        self._cache = cache
        self._families = {name: family(name) for name in names}
        self._names = tuple(self._families)
        self._first_seed = first_seed
        self._lock = Lock()
        self._written: dict[str, Path] = {}

    def ids(self) -> Iterator[str]:
        """Without end; from `EVAL_SEED` on they are for evaluation."""
        return (f"{name}/{seed}" for seed in count(self._first_seed) for name in self._names)

    def describe(self) -> str:
        names = self._names
        what = f"family {names[0]}" if len(names) == 1 else f"{len(names)} built-in families"
        return f"{what}, a task for every seed (from {EVAL_SEED:,} on for evaluation)"

    def __contains__(self, task_id: str) -> bool:
        match = _ID.fullmatch(task_id)
        return match is not None and match["family"] in self._families

    def family(self, task_id: str) -> str:
        """Its name; the task is not made. Raises UnknownTask."""
        if task_id not in self:
            raise UnknownTask(
                f"there is no task {task_id!r}: every family/seed is one, such as {self._names[0]}/0, "
                f"of {', '.join(self._names)}"
            )
        return task_id.partition("/")[0]

    def path(self, task_id: str) -> Path:
        name = self.family(task_id)
        with self._lock:
            if task_id not in self._written:
                generated = self._families[name].generate(int(task_id.rpartition("/")[2]))
                try:
                    self._written[task_id] = write_task(generated, self._cache)
                except OSError as error:
                    raise cannot_write(task_id, self._cache, error) from error
            return self._written[task_id]

    def load(self, task_id: str) -> Task:
        return load_task(self.path(task_id), task_id)


def cannot_write(task_id: str, cache: Path, error: OSError) -> TaskError:
    return TaskError(f"{task_id} cannot be written to {cache} ({error.strerror}): name another cache folder")
