"""An async client of the orchestrator's HTTP API, with typed answers and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, RootModel, ValidationError

from orchestrator.schema import (
    Problem,
    Readiness,
    Rollout,
    RolloutRequest,
    RolloutSummary,
    Submitted,
    TaskList,
)
from tasks.atif import Trajectory, loads
from tasks.task import TaskError

Model = TypeVar("Model", bound=BaseModel)

_POLL_S = 20.0
_PAGE = 1000
_Summaries = RootModel[list[RolloutSummary]]


class OrchestratorError(RuntimeError):
    """The orchestrator could not be reached or failed: one sentence with its address."""


class RequestRefused(OrchestratorError):
    """The orchestrator refused the request (4xx)."""

    def __init__(self, problem: Problem):
        super().__init__(problem.detail)
        self.problem = problem


class OrchestratorClient:
    """`async with OrchestratorClient("http://127.0.0.1:8900") as client: ...`"""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        max_waits: int = 64,
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        """`timeout_s`: longest silence of the server; `max_waits`: requests of one `completed` at once."""
        self._url = url
        self._max_waits = max_waits
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(timeout_s, pool=None),
            limits=httpx.Limits(max_connections=max_waits + 8, keepalive_expiry=2.0),
            transport=transport,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(self, request: RolloutRequest) -> list[str]:
        """Ids of the queued rollouts, in the order of the tasks. Raises RequestRefused, OrchestratorError."""
        body = request.model_dump(mode="json")
        return (await self._call(Submitted, "POST", "/v1/rollouts", json=body)).ids

    async def get(self, rollout_id: str, *, trajectory: bool = False, wait_s: float = 0.0) -> Rollout:
        """A rollout as it stands, after waiting at most `wait_s` (60 at most) seconds for its end."""
        params = {"wait_s": wait_s, **({"include": "trajectory"} if trajectory else {})}
        return await self._call(Rollout, "GET", f"/v1/rollouts/{rollout_id}", params=params)

    async def wait(self, rollout_id: str, *, trajectory: bool = False) -> Rollout:
        """The rollout once it has ended, whichever way."""
        while True:
            rollout = await self.get(rollout_id, trajectory=trajectory, wait_s=_POLL_S)
            if rollout.status.ended:
                return rollout

    async def completed(
        self, rollout_ids: Sequence[str], *, trajectory: bool = False
    ) -> AsyncGenerator[Rollout]:
        """Each rollout once it has ended, in the order in which they end."""
        slots = asyncio.Semaphore(self._max_waits)

        async def wait(rollout_id: str) -> Rollout:
            async with slots:
                return await self.wait(rollout_id, trajectory=trajectory)

        waits = [asyncio.create_task(wait(rollout_id)) for rollout_id in rollout_ids]
        try:
            for done in asyncio.as_completed(waits):
                yield await done
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def ended(self) -> list[str]:
        """Ids of every rollout that had ended when this was called, newest first."""
        ids: dict[str, None] = {}
        for offset in count(0, _PAGE):
            params = {"limit": _PAGE, "offset": offset}
            page = (await self._call(_Summaries, "GET", "/v1/rollouts", params=params)).root
            ids |= dict.fromkeys(line.id for line in page if line.status.ended)
            if len(page) < _PAGE:
                break
        return list(ids)

    async def atif(self, rollout_id: str) -> Trajectory:
        """An ended rollout as an ATIF trajectory. Raises RequestRefused, also where it has not ended."""
        response = await self._answer("GET", f"/v1/rollouts/{quote(rollout_id, safe='')}/atif")
        try:
            return loads(response.content)
        except TaskError as error:
            raise self._stranger(response) from error

    async def tasks(self) -> TaskList:
        return await self._call(TaskList, "GET", "/v1/tasks")

    async def ready(self) -> Readiness:
        """Which engines answer; also where some do not."""
        response = await self._send("GET", "/readyz")
        return self._parse(Readiness, response)

    async def _call(self, model: type[Model], method: str, path: str, **options: Any) -> Model:
        return self._parse(model, await self._answer(method, path, **options))

    async def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """An answer that is no error."""
        response = await self._send(method, path, **options)
        if response.is_client_error:
            raise RequestRefused(self._parse(Problem, response))
        if response.is_error:
            raise OrchestratorError(
                f"the orchestrator at {self._url} failed: {self._parse(Problem, response).detail}"
            )
        return response

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **options)
        except httpx.ConnectError as error:
            raise OrchestratorError(f"the orchestrator at {self._url} cannot be reached ({error})") from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise OrchestratorError(f"the orchestrator at {self._url} broke off ({reason})") from error

    def _parse(self, model: type[Model], response: httpx.Response) -> Model:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise self._stranger(response) from error

    def _stranger(self, response: httpx.Response) -> OrchestratorError:
        return OrchestratorError(
            f"{self._url} answered {response.status_code} with what no orchestrator of this version sends"
        )
