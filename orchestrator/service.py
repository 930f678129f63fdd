"""The HTTP service: `/v1/rollouts`, `/v1/tasks`, `/healthz`, `/readyz`, `/metrics`, `/docs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Annotated, Literal

from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.responses import JSONResponse

from orchestrator import problems
from orchestrator.atif import Brief, to_atif
from orchestrator.backends.base import Backend, BackendError
from orchestrator.config import OrchestratorConfig
from orchestrator.manager import RolloutManager
from orchestrator.metrics import Metrics
from orchestrator.rollout import World
from orchestrator.schema import (
    EngineState,
    Problem,
    Readiness,
    Rollout,
    RolloutRequest,
    RolloutStatus,
    RolloutSummary,
    Submitted,
    TaskList,
)
from orchestrator.store import RolloutStore
from orchestrator.task_index import TaskIndex
from tasks import atif
from tasks.task import TaskError
from tasks.tools import TOOLS

_READY_TIMEOUT_S = 3.0


def create_app(
    world: World,
    engines: Mapping[str, Backend],
    tasks: TaskIndex,
    store: RolloutStore,
    config: OrchestratorConfig,
) -> FastAPI:
    """The service over a world. It closes `engines` (by role) when it stops."""
    metrics = Metrics(world.scopes)
    manager = RolloutManager(world, tasks, store, metrics, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await manager.close()
            for engine in engines.values():
                await engine.close()

    app = FastAPI(
        title="ObsSpec orchestrator",
        description="Rollouts of tool-using language models, with observation speculation.",
        lifespan=lifespan,
        responses={"default": {"model": Problem, "description": "What was wrong, in one sentence"}},
    )
    problems.install(app)

    def known(rollout_id: str) -> Rollout:
        rollout = manager.get(rollout_id)
        if rollout is None:
            raise HTTPException(404, f"there is no rollout {rollout_id!r}, or it was forgotten since")
        return rollout

    @app.post("/v1/rollouts", status_code=202)
    async def submit(request: RolloutRequest) -> Submitted:
        """Queue rollouts; all of a request are accepted, or none."""
        return Submitted(ids=await manager.submit(request))

    @app.get("/v1/rollouts")
    async def list_rollouts(
        status: RolloutStatus | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> list[RolloutSummary]:
        """The latest rollouts, newest first, without the first `offset`."""
        return list(islice(manager.latest(status), offset, offset + limit))

    @app.get("/v1/rollouts/{rollout_id}")
    async def get_rollout(
        rollout_id: str,
        include: Literal["trajectory"] | None = None,
        wait_s: Annotated[float, Query(ge=0, le=60)] = 0.0,
    ) -> Rollout:
        """One rollout as it stands, after waiting at most `wait_s` seconds for its end."""
        await manager.wait(rollout_id, wait_s)
        rollout = known(rollout_id)
        return rollout if include else rollout.model_copy(update={"trajectory": None})

    @app.get("/v1/rollouts/{rollout_id}/atif", response_class=_Atif)
    async def get_atif(rollout_id: str) -> Response:
        """An ended rollout in the Agent Trajectory Interchange Format; 409 while it has not ended."""
        rollout = known(rollout_id)
        if not rollout.status.ended:
            raise HTTPException(
                409, f"rollout {rollout_id!r} is {rollout.status}: it can be exported once it has ended"
            )
        return _Atif(await asyncio.to_thread(_atif_json, rollout, tasks, config))

    @app.get("/v1/tasks")
    async def list_tasks() -> TaskList:
        """Families, of which every `family/seed` is a task, and task directories."""
        return tasks.listing()

    @app.get("/healthz")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def ready(response: Response) -> Readiness:
        """Whether every engine answers; 503 and which one where not."""
        states = await asyncio.gather(*(_state(role, engine) for role, engine in engines.items()))
        readiness = Readiness(ready=all(state.ready for state in states), engines=states)
        response.status_code = 200 if readiness.ready else 503
        return readiness

    @app.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        """Prometheus metrics."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


class _Atif(JSONResponse):
    """JSON that is text already."""

    def render(self, content: str) -> bytes:
        return content.encode()


def _atif_json(rollout: Rollout, tasks: TaskIndex, config: OrchestratorConfig) -> str:
    """Blocking. A task that cannot be read any more costs the document its instruction, no more."""
    try:
        instruction = tasks.load(rollout.task).instruction
    except TaskError:
        instruction = None
    brief = Brief(config.system, TOOLS, instruction, config.tokenizer.name)
    return atif.dumps(to_atif(rollout, brief))


async def _state(role: str, engine: Backend) -> EngineState:
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            can = await engine.capabilities()
    except BackendError as error:
        return EngineState(name=role, ready=False, error=str(error))
    except TimeoutError:
        return EngineState(
            name=role, ready=False, error=f"the {role} engine did not answer in {_READY_TIMEOUT_S:g} s"
        )
    return EngineState(name=role, ready=True, branches=can.branches, seeds=can.seeds, notes=list(can.notes))
