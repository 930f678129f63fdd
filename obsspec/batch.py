"""Rollouts submitted together and awaited with a progress bar; held-out tasks to run them on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from obsspec.errors import ProcessError
from orchestrator.client import OrchestratorClient
from orchestrator.schema import Outcome, Rollout, RolloutRequest, RolloutStatus
from tasks.families import EVAL_SEED, FAMILIES

TOLERATED_FAILURES = 0.1
"""Share of rollouts that may fail before the whole batch is an error."""


def held_out(count: int) -> list[str]:
    """`count` evaluation tasks, the families in turn."""
    names = list(FAMILIES)
    return [f"{names[i % len(names)]}/{EVAL_SEED + i // len(names)}" for i in range(count)]


async def run_batch(
    client: OrchestratorClient, requests: Sequence[RolloutRequest], console: Console
) -> list[Rollout]:
    """Run the requests, queued in this order; the rollouts come back in the same order.

    Raises ProcessError when more than one rollout in ten fails, OrchestratorError.
    """
    ids = [rollout_id for request in requests for rollout_id in await client.submit(request)]
    ended: dict[str, Rollout] = {}
    hits = compared = 0
    with _bar(console) as bar:
        job = bar.add_task("rollouts", total=len(ids), hits="")
        async with aclosing(client.completed(ids)) as rollouts:
            async for rollout in rollouts:
                ended[rollout.id] = rollout
                outcomes = [turn.prediction.outcome for turn in rollout.turns if turn.prediction]
                hits += outcomes.count(Outcome.HIT)
                compared += outcomes.count(Outcome.HIT) + outcomes.count(Outcome.MISS)
                bar.update(job, advance=1, hits=f"{hits} of {compared} predictions exact")
    failed = [rollout for rollout in ended.values() if rollout.status is RolloutStatus.FAILED]
    if len(failed) > TOLERATED_FAILURES * len(ended):
        raise ProcessError(f"{len(failed)} of {len(ended)} rollouts failed; the first: {failed[0].error}")
    return [ended[rollout_id] for rollout_id in ids]


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[hits]}"),
        TimeElapsedColumn(),
        console=console,
    )
