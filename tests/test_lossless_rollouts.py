"""Rollouts of all families, sequentially and with every kind of speculation, through two real engines: the
same tokens, log-probabilities, rewards and turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from obsspec.batch import held_out
from obsspec.config import Config
from orchestrator.app import build
from orchestrator.client import OrchestratorClient
from orchestrator.schema import (
    NoLatency,
    Outcome,
    Rollout,
    RolloutRequest,
    RolloutStatus,
    Speculation,
    SpeculationMode,
    ToolLatency,
)
from tasks.families import FAMILIES

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

PER_FAMILY = 14
TASKS = held_out(PER_FAMILY * len(FAMILIES))
SEQUENTIAL = Speculation(preset="sequential", scope="sequential")
WAYS = [
    Speculation(preset="default", mode=mode, depth=depth, breadth=breadth, scope=mode)
    for depth, breadth, mode in product(
        (1, 2, 3), (1, 2, 3, 4), (SpeculationMode.ALWAYS, SpeculationMode.GOVERNED)
    )
]
LATENCY: dict[int | None, ToolLatency | NoLatency] = {
    None: "none",
    1: ToolLatency(mean_s=0.2),
    2: ToolLatency(mean_s=0.3),
    3: ToolLatency(mean_s=0.8),
}
"""By depth: so long that branches come as far ahead of their tools. What is said does not depend on it."""
TOLERANCE = 1e-3
"""Nats: a token's numbers depend a little on what else is in its batch."""


@pytest.fixture
async def client(engines: Config, tmp_path: Path) -> AsyncIterator[OrchestratorClient]:
    config = engines.orchestrator.model_copy(update={"cache": tmp_path, "concurrency": 12})
    app = build(config)
    async with (
        app.router.lifespan_context(app),
        OrchestratorClient("http://service", transport=httpx.ASGITransport(app)) as client,
    ):
        yield client


async def run(client: OrchestratorClient, ways: list[Speculation]) -> list[Rollout]:
    """Each task once, the ways in turn."""
    ids = []
    for seed, task in enumerate(TASKS):
        way = ways[seed % len(ways)]
        request = RolloutRequest(tasks=[task], seed=seed, speculation=way, tool_latency=LATENCY[way.depth])
        ids += await client.submit(request)
    return list(await asyncio.gather(*(client.wait(rollout_id, trajectory=True) for rollout_id in ids)))


async def test_every_rollout_is_the_same_with_speculation(client: OrchestratorClient) -> None:
    assert len(TASKS) >= 200
    sequential, speculative = await run(client, [SEQUENTIAL]), await run(client, WAYS)
    for one, two in zip(sequential, speculative, strict=True):
        assert (one.task, one.seed) == (two.task, two.seed)
        for rollout in (one, two):
            assert rollout.status in (RolloutStatus.FINISHED, RolloutStatus.TRUNCATED), rollout.error
            assert rollout.trajectory is not None
        assert one.trajectory is not None
        assert two.trajectory is not None
        where = f"{two.task}, seed {two.seed}, {two.speculation}"
        assert [(s.kind, s.token_ids) for s in one.trajectory.segments] == [
            (s.kind, s.token_ids) for s in two.trajectory.segments
        ], where
        assert (one.reward, len(one.turns)) == (two.reward, len(two.turns)), where
        for first, second in zip(one.trajectory.segments, two.trajectory.segments, strict=True):
            assert first.logprobs == pytest.approx(second.logprobs, abs=TOLERANCE), where
    guesses = [g for r in speculative for t in r.turns if t.prediction for g in t.prediction.guesses]
    outcomes = [t.prediction.outcome for r in speculative for t in r.turns if t.prediction]
    assert outcomes.count(Outcome.HIT) > 200
    assert outcomes.count(Outcome.MISS) > 50
    assert outcomes.count(Outcome.BRANCH_FAILED) < 5
    assert {guess.depth for guess in guesses} >= {1, 2, 3}
    assert sum(turn.speculated for rollout in speculative for turn in rollout.turns) > 200
