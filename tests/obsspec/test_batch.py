from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence

import pytest
from rich.console import Console

from obsspec.batch import held_out, run_batch
from obsspec.errors import ProcessError
from orchestrator.schema import Outcome, Rollout, RolloutRequest, RolloutStatus, SpeculationMode
from tasks.families import EVAL_SEED, FAMILIES
from tests.obsspec.rollouts import made


class Service:
    """A client whose rollouts end in the opposite order; `failing` of them fail."""

    def __init__(self, failing: int) -> None:
        self._failing = failing
        self._count = 0

    async def submit(self, request: RolloutRequest) -> list[str]:
        self._count += 1
        return [str(self._count - 1)]

    async def completed(self, ids: Sequence[str]) -> AsyncIterator[Rollout]:
        whole = made("f", [Outcome.HIT, Outcome.MISS], 1.0, 1.0, SpeculationMode.ALWAYS)
        lost = {"status": RolloutStatus.FAILED, "reward": None, "error": "the policy engine died"}
        for i in reversed(ids):
            yield whole.model_copy(update={"id": i, **(lost if int(i) < self._failing else {})})


def console() -> Console:
    return Console(file=io.StringIO())


REQUESTS = [RolloutRequest(tasks=["f/1"])] * 10


async def test_rollouts_come_back_in_the_order_of_their_requests() -> None:
    rollouts = await run_batch(Service(failing=1), REQUESTS, console())  # type: ignore[arg-type]
    assert [rollout.id for rollout in rollouts] == [str(i) for i in range(10)]


async def test_more_than_one_failure_in_ten_is_an_error_with_its_reason() -> None:
    with pytest.raises(ProcessError, match=r"^2 of 10 rollouts failed; the first: the policy engine died$"):
        await run_batch(Service(failing=2), REQUESTS, console())  # type: ignore[arg-type]


def test_held_out_tasks_take_the_families_in_turn() -> None:
    count = len(FAMILIES)
    tasks = held_out(2 * count)
    assert tasks[:count] == [f"{name}/{EVAL_SEED}" for name in FAMILIES]
    assert tasks[count:] == [f"{name}/{EVAL_SEED + 1}" for name in FAMILIES]
