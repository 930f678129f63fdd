"""Plans, played by the orchestrator in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator import predictors
from orchestrator.predictors.base import PredictorTools
from orchestrator.record import RolloutRecord, RolloutSpec
from orchestrator.rollout import World, run_rollout
from orchestrator.schema import Limits, Rollout, RolloutStatus, Sampling, SpeculationSettings
from orchestrator.simulation import clock
from orchestrator.simulation.batching import EngineSpeed, Machine
from orchestrator.simulation.chat import SimulatedChat
from orchestrator.simulation.engine import SimulatedEngine
from orchestrator.simulation.plan import Plan
from orchestrator.simulation.sandbox import SimulatedSandbox
from orchestrator.simulation.scripts import Scripts
from orchestrator.speculation import Scopes
from tasks.task import Task

_NO_LIMIT = 1_000_000_000
_NO_TIMEOUT_S = 1e12
_MEMO_ENTRIES = 20_000


@dataclass(frozen=True)
class Engines:
    """Where rollouts run."""

    policy: EngineSpeed
    world_model: EngineSpeed
    slowdown: float = 0.0
    """Further time that one's work takes, as a fraction, while the other one works: where they share
    processors."""


@dataclass(frozen=True)
class Played:
    rollouts: list[Rollout] = field(repr=False)
    """In the order of the plans; without trajectories unless these were asked for."""
    seconds: float
    """Virtual, from the first rollout's start to the last one's end."""
    given_up: int
    """Branches that made room for ordinary requests."""


def play(
    plans: Sequence[Plan],
    settings: SpeculationSettings | Sequence[SpeculationSettings],
    engines: Engines,
    concurrency: int,
    *,
    wave: int | None = None,
    trajectories: bool = False,
) -> Played:
    """Run every plan, so many at once, in this order. `settings`: of all, or of each.

    `wave`: so many plans begin together, and only when those before have ended; None: all do.
    """
    each = [settings] * len(plans) if isinstance(settings, SpeculationSettings) else settings
    return clock.run(_play(plans, each, engines, concurrency, wave or len(plans), trajectories))


async def _play(
    plans: Sequence[Plan],
    settings: Sequence[SpeculationSettings],
    engines: Engines,
    concurrency: int,
    wave: int,
    trajectories: bool,
) -> Played:
    chat = SimulatedChat()
    scripts = Scripts(plans, chat)
    machine = Machine(engines.slowdown)
    policy = SimulatedEngine(scripts.policy, engines.policy, machine)
    world_model = SimulatedEngine(scripts.world_model, engines.world_model, machine)
    tools = PredictorTools(chat, world_model, _NO_LIMIT, None, _MEMO_ENTRIES)
    scopes = Scopes(partial(predictors.create, tools=tools))
    slots = asyncio.Semaphore(concurrency)
    records = [_record(i, *pair) for i, pair in enumerate(zip(plans, settings, strict=True))]

    async def rollout(plan: Plan, record: RolloutRecord) -> None:
        async with slots:
            world = World(policy, scopes, chat, lambda _: SimulatedSandbox(plan), _NO_LIMIT)
            await run_rollout(world, _task(plan), record)
            if not trajectories:
                record.trajectory = None

    each = list(zip(plans, records, strict=True))
    for first in range(0, len(each), wave):
        async with asyncio.TaskGroup() as group:
            for plan, record in each[first : first + wave]:
                group.create_task(rollout(plan, record))
    assert not policy.branches, "branches are left"
    assert not len(policy.batch), "requests are left in the engine"
    assert not len(world_model.batch), "requests are left in the engine"
    rollouts = [record.snapshot() for record in records]
    for ended in rollouts:
        assert ended.status in (RolloutStatus.FINISHED, RolloutStatus.TRUNCATED), ended.error
    return Played(rollouts, asyncio.get_running_loop().time(), policy.batch.given_up)


def _record(number: int, plan: Plan, settings: SpeculationSettings) -> RolloutRecord:
    limits = Limits(
        max_turns=len(plan.turns),
        max_action_tokens=_NO_LIMIT,
        max_tokens=_NO_LIMIT,
    )
    spec = RolloutSpec(str(number), plan.task, plan.task, settings, plan.seed, Sampling(), limits, None)
    return RolloutRecord(spec)


def _task(plan: Plan) -> Task:
    return Task(plan.task, plan.task, plan.task, Path(), agent_timeout_s=_NO_TIMEOUT_S)
