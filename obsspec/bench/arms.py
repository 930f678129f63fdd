"""Ways to run the same rollouts, side by side: sequential, `paper`, default and oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from obsspec.batch import TOLERATED_FAILURES
from obsspec.errors import ProcessError
from orchestrator.client import OrchestratorClient
from orchestrator.schema import (
    NoLatency,
    Rollout,
    RolloutRequest,
    RolloutStatus,
    Speculation,
    SpeculationMode,
    ToolLatency,
)

SEQUENTIAL, PAPER, DEFAULT, ORACLE = "sequential", "paper", "default", "oracle"
ARMS: dict[str, Speculation] = {
    SEQUENTIAL: Speculation(preset="sequential"),
    PAPER: Speculation(preset="paper"),
    DEFAULT: Speculation(preset="default"),
    ORACLE: Speculation(preset="default", mode=SpeculationMode.ALWAYS, predictors=("oracle",)),
}
"""The oracle has the observations of the sequential rollouts, at the depth of the default."""


@dataclass(frozen=True)
class Block:
    """One group: rollouts of one task, with seeds `seed`, `seed + 1`, ..."""

    task: str
    seed: int
    size: int


@dataclass
class Runs:
    """The rollouts of a regime, by arm; index i of every list is the same task and seed."""

    name: str
    tool_latency: ToolLatency | NoLatency
    rollouts: dict[str, list[Rollout]] = field(default_factory=lambda: {arm: [] for arm in ARMS})


async def run(
    client: OrchestratorClient,
    name: str,
    blocks: Sequence[Block],
    latency: ToolLatency | NoLatency,
    tick: Callable[[int], None] = lambda rollouts: None,
) -> Runs:
    """Each block in every arm, one arm at a time; which goes first changes from block to block.

    No arm learns from another, and none begins before the one before it has ended. The oracle comes after
    the sequential arm, whose observations it has. Raises ProcessError when more than one rollout in ten
    fails, and OrchestratorError.
    """
    runs = Runs(name, latency)
    for number, block in enumerate(blocks):
        for arm in _order(number):
            scope = f"{name}/{arm}"
            request = RolloutRequest(
                tasks=[block.task],
                n=block.size,
                seed=block.seed,
                speculation=ARMS[arm].model_copy(update={"scope": scope}),
                tool_latency=latency,
            )
            runs.rollouts[arm] += await ended(client, await client.submit(request), tick)
    return runs


async def ended(client: OrchestratorClient, ids: Sequence[str], tick: Callable[[int], None]) -> list[Rollout]:
    """Those rollouts with their trajectories, when all have ended. Raises ProcessError, OrchestratorError."""
    found: dict[str, Rollout] = {}
    async with aclosing(client.completed(ids, trajectory=True)) as rollouts:
        async for rollout in rollouts:
            found[rollout.id] = rollout
            tick(1)
    failed = [rollout for rollout in found.values() if rollout.status is RolloutStatus.FAILED]
    if len(failed) > TOLERATED_FAILURES * len(found):
        raise ProcessError(f"{len(failed)} of {len(found)} rollouts failed; the first: {failed[0].error}")
    return [found[rollout_id] for rollout_id in ids]


def _order(block: int) -> list[str]:
    """All arms; the sequential one before the oracle."""
    orders = (
        [SEQUENTIAL, PAPER, DEFAULT, ORACLE],
        [DEFAULT, SEQUENTIAL, ORACLE, PAPER],
        [PAPER, DEFAULT, SEQUENTIAL, ORACLE],
        [SEQUENTIAL, ORACLE, DEFAULT, PAPER],
    )
    return orders[block % len(orders)]
