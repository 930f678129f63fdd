"""Every rollout of a service: queued, run with bounded concurrency, kept.

A rollout that was accepted ends in the store exactly once, whatever fails; closing cancels those that
run, which drops their branches and stops their sandboxes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import structlog

from orchestrator.config import OrchestratorConfig
from orchestrator.metrics import Metrics
from orchestrator.predictors.base import Unavailable
from orchestrator.record import RolloutRecord, RolloutSpec
from orchestrator.rollout import World, run_rollout
from orchestrator.schema import (
    Rollout,
    RolloutRequest,
    RolloutStatus,
    RolloutSummary,
    SpeculationMode,
    SpeculationSettings,
    ToolLatency,
)
from orchestrator.store import RolloutStore
from orchestrator.task_index import TaskIndex
from tasks.task import Task, TaskError

log = structlog.get_logger()

_STOPPED = "cancelled: the service stopped"


class RequestError(ValueError):
    """A request that cannot be met: one sentence."""


class RolloutManager:
    def __init__(
        self,
        world: World,
        tasks: TaskIndex,
        store: RolloutStore,
        metrics: Metrics,
        config: OrchestratorConfig,
    ):
        self._world = world
        self._tasks = tasks
        self._store = store
        self._metrics = metrics
        self._config = config
        self._slots = asyncio.Semaphore(config.concurrency)
        self._records: dict[str, RolloutRecord] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, request: RolloutRequest) -> list[str]:
        """Queue every rollout of a request, or none. Raises RequestError and TaskError."""
        speculation = self._speculation(request)
        families = await asyncio.to_thread(lambda: [self._tasks.check(task) for task in request.tasks])
        records = [
            RolloutRecord(self._spec(request, task, family, speculation, request.seed + i))
            for task, family in zip(request.tasks, families, strict=True)
            for i in range(request.n)
        ]
        for record in records:
            self._records[record.spec.id] = record
            task = asyncio.create_task(self._run(record), name=f"rollout {record.spec.id}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        self._metrics.queued.inc(len(records))
        return [record.spec.id for record in records]

    def get(self, rollout_id: str) -> Rollout | None:
        """The rollout as it stands."""
        record = self._records.get(rollout_id)
        return record.snapshot() if record else self._store.get(rollout_id)

    async def wait(self, rollout_id: str, seconds: float) -> None:
        """Until the rollout has ended, or for so many seconds."""
        record = self._records.get(rollout_id)
        if record and seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(record.ended.wait(), seconds)

    def latest(self, status: RolloutStatus | None = None) -> Iterator[RolloutSummary]:
        """Newest first, those that have not ended before those that have; of one status, or of any."""
        wanted = set(RolloutStatus) if status is None else {status}
        live = (r.summary() for r in reversed(self._records.values()) if r.status in wanted)
        return chain(live, (r for r in self._store.latest() if r.status in wanted))

    async def close(self) -> None:
        """Cancel every rollout that has not ended, and wait until each is stored."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for record in list(self._records.values()):  # cancelled before their task's first step
            record.end(RolloutStatus.CANCELLED, _STOPPED)
            self._keep(record)

    def _speculation(self, request: RolloutRequest) -> SpeculationSettings:
        """Raises RequestError where a predictor that the request names cannot be had."""
        own = self._config.speculation_settings()
        wanted = request.speculation.resolve(own) if request.speculation else own
        if wanted.mode is SpeculationMode.NEVER:
            return wanted
        try:
            self._world.scopes.check(wanted.predictors)
        except Unavailable as error:
            raise RequestError(str(error)) from None
        return wanted

    def _spec(
        self,
        request: RolloutRequest,
        task: str,
        family: str,
        speculation: SpeculationSettings,
        seed: int,
    ) -> RolloutSpec:
        latency = self._config.tool_latency if request.tool_latency is None else request.tool_latency
        return RolloutSpec(
            id=uuid.uuid4().hex,
            task=task,
            family=family,
            speculation=speculation,
            seed=seed,
            sampling=request.sampling or self._config.sampling,
            limits=request.limits or self._config.limits,
            tool_latency=latency if isinstance(latency, ToolLatency) else None,
        )

    async def _run(self, record: RolloutRecord) -> None:
        queued = True
        try:
            async with self._slots:
                self._metrics.queued.dec()
                queued = False
                with self._metrics.running.track_inprogress():
                    task, record.environment = await asyncio.to_thread(self._load, record.spec.task)
                    await run_rollout(self._world, task, record)
        except asyncio.CancelledError:
            record.end(RolloutStatus.CANCELLED, _STOPPED)
            raise
        except TaskError as error:
            record.end(RolloutStatus.FAILED, str(error))
        except Exception as error:  # a defect costs its own rollout, not the service
            log.exception("rollout failed by a defect", rollout=record.spec.id)
            record.end(
                RolloutStatus.FAILED, f"defect in the orchestrator, see its log ({type(error).__name__})"
            )
        finally:
            if queued:
                self._metrics.queued.dec()
            self._keep(record)

    def _load(self, task_id: str) -> tuple[Task, str]:
        task = self._tasks.load(task_id)
        return task, task.stamp()

    def _keep(self, record: RolloutRecord) -> None:
        rollout = record.snapshot()
        self._store.put(rollout)
        del self._records[rollout.id]
        self._metrics.observe(rollout)
        record.ended.set()
        log.info(
            "rollout ended", rollout=rollout.id, task=rollout.task, mode=rollout.mode, status=rollout.status,
            reward=rollout.reward, turns=rollout.totals.turns, latency_s=rollout.agent_latency_s,
            error=rollout.error,
        )  # fmt: skip
