"""Where ended rollouts are kept. In memory here; a database has the same methods."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Protocol

from orchestrator.schema import Rollout, RolloutSummary, SpeculationMode

_READ = 64


class RolloutStore(Protocol):
    def put(self, rollout: Rollout) -> None:
        """Keep an ended rollout, trajectory included."""
        ...

    def get(self, rollout_id: str) -> Rollout | None: ...

    def latest(self) -> Iterator[RolloutSummary]:
        """Newest first."""
        ...

    def sequential(self, task: str, seed: int) -> Rollout | None:
        """The latest rollout without speculation of that task and seed."""
        ...


@dataclass(frozen=True)
class _Kept:
    summary: RolloutSummary
    pickled: bytes
    """The rollout. As objects, thousands of them would make every full garbage collection a long pause."""


class MemoryStore:
    """Keeps the latest `capacity` rollouts and forgets the oldest; gone with the process."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._rollouts: dict[str, _Kept] = {}
        self._sequential: dict[tuple[str, int], str] = {}
        self._read = lru_cache(_READ)(self._unpickled)

    def put(self, rollout: Rollout) -> None:
        self._rollouts[rollout.id] = _Kept(RolloutSummary.of(rollout), pickle.dumps(rollout, protocol=5))
        if rollout.mode is SpeculationMode.NEVER:
            self._sequential[rollout.task, rollout.seed] = rollout.id
        for oldest in list(islice(self._rollouts, max(0, len(self._rollouts) - self._capacity))):
            gone = self._rollouts.pop(oldest).summary
            if self._sequential.get((gone.task, gone.seed)) == oldest:
                del self._sequential[gone.task, gone.seed]

    def get(self, rollout_id: str) -> Rollout | None:
        return self._read(rollout_id) if rollout_id in self._rollouts else None

    def latest(self) -> Iterator[RolloutSummary]:
        return (kept.summary for kept in reversed(self._rollouts.values()))

    def sequential(self, task: str, seed: int) -> Rollout | None:
        return self.get(self._sequential.get((task, seed), ""))

    def _unpickled(self, rollout_id: str) -> Rollout:
        rollout: Rollout = pickle.loads(self._rollouts[rollout_id].pickled)
        return rollout
