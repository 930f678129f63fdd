"""The branch API on SGLang's FastAPI application. Every error is a status, a code and one sentence."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import json
import time
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.types import Receive, Scope, Send

from sglang_ext.front.branch import Branch, Chunk, GivenUp
from sglang_ext.front.branches import Branches, OpenRequest
from sglang_ext.front.errors import Refusal
from sglang_ext.front.metrics import Metrics
from sglang_ext.messages import Dropped
from sglang_ext.states import BranchState

TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
_GRAMMARS = ("n", "json_schema", "regex", "ebnf", "structural_tag", "custom_params")


class OpenBody(BaseModel):
    """Body of `POST /branch/open`: one parent, one branch for each candidate."""

    model_config = ConfigDict(extra="forbid", strict=True)

    parent: TokenIds | None = None
    parent_branch: str | None = None
    """A held branch, in place of `parent`: its parent, candidate and tokens are the parent."""
    candidates: Annotated[list[TokenIds], Field(min_length=1, max_length=64)]
    sampling_params: dict[str, Any]
    """As of SGLang's /generate; `max_new_tokens` is required."""
    ttl_s: Annotated[float, Field(gt=0, strict=False)] = 60.0
    extra_key: str | None = None
    """Namespace in the prefix cache, as of /generate."""
    return_logprob: bool = True


class Routes:
    def __init__(
        self, branches: Branches, metrics: Metrics, *, seeds: bool = False, batch_invariant: bool = False
    ) -> None:
        """`seeds`, `batch_invariant`: what the engine keeps to, as `GET /branch` tells it."""
        self._branches = branches
        self._metrics = metrics
        self._seeds = seeds
        self._batch_invariant = batch_invariant

    def add_to(self, app: FastAPI) -> None:
        """One by one: a router included in the application breaks SGLang's metrics middleware."""
        for method, path, endpoint in (
            ("GET", "/branch", self.list),
            ("POST", "/branch/open", self.open),
            ("POST", "/branch/drop_all", self.drop_all),
            ("GET", "/branch/{branch_id}", self.read),
            ("GET", "/branch/{branch_id}/stream", self.stream),
            ("POST", "/branch/{branch_id}/commit", self.commit),
            ("POST", "/branch/{branch_id}/drop", self.drop),
        ):
            app.add_api_route(path, _refusing(endpoint), methods=[method], response_model=None)

    async def list(self) -> Response:
        """What this engine can do, and its open branches."""
        branches = self._branches
        try:
            await branches.ready()
        except Refusal as refusal:
            reason: str | None = branches.reason or refusal.message
        else:
            reason = None
        return JSONResponse(
            {
                "supported": reason is None,
                "reason": reason,
                "plugin": importlib.metadata.version("obsspec"),
                "sglang": importlib.metadata.version("sglang"),
                "epoch": None if reason else branches.epoch,
                "seeds": self._seeds,
                "batch_invariant": self._batch_invariant,
                "budget_tokens": branches.budget,
                "held_tokens": branches.claimed,
                "branches": [
                    {"id": b.id, "state": b.state, "tokens": len(b.token_ids), "age_s": b.age_s}
                    for b in branches.all()
                ],
            }
        )

    async def open(self, request: Request) -> Response:
        """Open one branch for each candidate."""
        await self._branches.ready()
        try:
            body = OpenBody.model_validate_json(await request.body())
        except ValidationError as error:
            raise Refusal(400, "invalid", _sentence(error)) from None
        if (body.parent is None) == (body.parent_branch is None):
            raise Refusal(400, "invalid", "give either parent (token ids) or parent_branch (a branch's id)")
        if grammar := next((key for key in _GRAMMARS if body.sampling_params.get(key) is not None), None):
            raise Refusal(400, "invalid", f"sampling_params.{grammar} is not supported on a branch")
        parent_branch = None if body.parent_branch is None else self._parent(body.parent_branch)
        parent = (
            array("q", body.parent or ())
            if parent_branch is None
            else parent_branch.ids + array("q", parent_branch.token_ids)
        )
        opened = await self._branches.open(
            OpenRequest(
                parent,
                parent_branch,
                tuple(array("q", candidate) for candidate in body.candidates),
                body.sampling_params,
                body.ttl_s,
                body.extra_key,
                body.return_logprob,
            )
        )
        return JSONResponse({"branches": [branch.id for branch in opened], "epoch": self._branches.epoch})

    async def read(self, branch_id: str, since: Annotated[int, Query(ge=0)] = 0) -> Response:
        """State and tokens, from token `since` on."""
        branch = self._branches.get(branch_id)
        head = {"id": branch.id, "state": branch.state, "tokens": len(branch.token_ids)}
        return JSONResponse(head | asdict(branch.since(since)) | {"reason": branch.reason})

    async def stream(self, branch_id: str, since: Annotated[int, Query(ge=0)] = 0) -> Response:
        """Its chunks, buffered ones first. A listener that leaves does not end the branch."""
        return _events(_follow(self._branches.get(branch_id), since))

    async def commit(self, request: Request, branch_id: str, stream: bool = True) -> Response:
        """Make it an ordinary request and read it from its first token."""
        started_s = time.perf_counter()
        branches = self._branches
        branch = branches.get_open(branch_id)
        before = branch.state
        branches.commit(branch)
        if stream:
            return _HandOver(self._hand_over(branch, before, started_s), lambda: branches.abandon(branch))
        following = asyncio.create_task(_whole(branch))
        while not following.done():
            await asyncio.wait({following}, timeout=1.0)
            if not following.done() and await request.is_disconnected():
                branches.abandon(branch)
        try:
            return JSONResponse(asdict(following.result()))
        except GivenUp as lost:
            raise Refusal(409, "lost", f"the branch was lost: {lost}") from None

    async def drop(self, branch_id: str) -> Response:
        """End it, and all that was opened on it; answered when its KV is free."""
        branch = self._branches.get_open(branch_id)
        dropped = await self._branches.drop(branch)
        return JSONResponse({"tokens": len(branch.token_ids), "run_s": branch.run_s} | _sizes(dropped))

    async def drop_all(self) -> Response:
        """End every branch."""
        await self._branches.ready()
        count, dropped = await self._branches.end_all(BranchState.DROPPED, "all branches were dropped")
        return JSONResponse({"branches": count} | _sizes(dropped))

    def _parent(self, branch_id: str) -> Branch:
        branch = self._branches.get_open(branch_id)
        if branch.state is not BranchState.HELD:
            raise Refusal(
                409, branch.state, f"the parent branch is still {branch.state}: it can be extended once held"
            )
        return branch

    async def _hand_over(
        self, branch: Branch, before: BranchState, started_s: float
    ) -> AsyncGenerator[dict[str, Any]]:
        yield {"branch": branch.id, "state": before, "run_s": branch.run_s}
        async with aclosing(_follow(branch, 0)) as events:
            async for event in events:
                if started_s:
                    self._metrics.handed_over(time.perf_counter() - started_s)
                    started_s = 0.0
                yield event


async def _follow(branch: Branch, since: int) -> AsyncGenerator[dict[str, Any]]:
    try:
        async with aclosing(branch.follow(since)) as chunks:
            async for chunk in chunks:
                yield asdict(chunk)
    except GivenUp as lost:
        yield {"error": {"code": "lost", "message": f"the branch was lost: {lost}"}}


async def _whole(branch: Branch) -> Chunk:
    async for _ in branch.follow():
        pass
    return branch.since(0)


def _events(items: AsyncGenerator[dict[str, Any]]) -> StreamingResponse:
    return StreamingResponse(_lines(items), media_type="text/event-stream")


async def _lines(items: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    async with aclosing(items):
        async for item in items:
            yield b"data: " + json.dumps(item, separators=(",", ":")).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class _HandOver(StreamingResponse):
    """The events of a committed branch; `left` is called when its reader is gone, however early."""

    def __init__(self, items: AsyncGenerator[dict[str, Any]], left: Callable[[], None]):
        super().__init__(_lines(items), media_type="text/event-stream")
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


def _refusing(endpoint: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """The endpoint, with a Refusal answered as one."""

    @functools.wraps(endpoint)
    async def wrapper(*args: Any, **kwargs: Any) -> Response:
        try:
            return await endpoint(*args, **kwargs)
        except Refusal as refusal:
            return JSONResponse(refusal.body(), status_code=refusal.status)

    return wrapper


def _sizes(dropped: Dropped | None) -> dict[str, int]:
    if dropped is None:
        return {}
    return {key: getattr(dropped, key) for key in ("freed", "available", "evictable", "protected")}


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
