"""Where ended rollouts are kept. In memory here; a database has the same three methods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from orchestrator.schema import Rollout


class RolloutStore(Protocol):
    def put(self, rollout: Rollout) -> None:
        """Keep an ended rollout, trajectory included."""
        ...

    def get(self, rollout_id: str) -> Rollout | None: ...

    def latest(self) -> Iterator[Rollout]:
        """Newest first."""
        ...


class MemoryStore:
    """Keeps the latest `capacity` rollouts and forgets the oldest; gone with the process."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._rollouts: dict[str, Rollout] = {}

    def put(self, rollout: Rollout) -> None:
        self._rollouts[rollout.id] = rollout
        for oldest in list(islice(self._rollouts, max(0, len(self._rollouts) - self._capacity))):
            del self._rollouts[oldest]

    def get(self, rollout_id: str) -> Rollout | None:
        return self._rollouts.get(rollout_id)

    def latest(self) -> Iterator[Rollout]:
        return reversed(self._rollouts.values())
