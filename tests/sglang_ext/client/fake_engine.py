"""An engine with the branch API, without a model: every token is a function of those before it.

Branches generate when the test says so; ordinary requests at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tests.sglang_ext.client.wire import Wire

URL = "http://127.0.0.1:30000"
STOP = 1
SIZES = {"freed": 1, "available": 2, "evictable": 3, "protected": 4}


def continuation(ids: Sequence[int], params: dict[str, Any]) -> list[int]:
    """Depends on every id, on positions and on the seed, as honoured seeds do."""
    context = list(ids)
    tokens: list[int] = []
    while len(tokens) < params["max_new_tokens"]:
        token = (sum(context) * 7 + len(context) * 13 + params["sampling_seed"]) % 50 + 2
        token = STOP if token % 11 == 0 else token
        tokens.append(token)
        context.append(token)
        if token in params["stop_token_ids"]:
            break
    return tokens


def logprobs(tokens: Sequence[int]) -> list[float]:
    return [-token / 64 for token in tokens]


class Refused(Exception):
    def __init__(self, status: int, code: str):
        self.status = status
        self.code = code


class FakeBranch:
    def __init__(self, branch_id: str, body: dict[str, Any], ids: list[int]):
        self.id = branch_id
        self.body = body
        self.ids = ids
        self.plan = continuation(ids, body["sampling_params"])
        self.made = 0
        self.state = "queued"
        self.reason: str | None = None
        self.changed = asyncio.Event()

    @property
    def finished(self) -> bool:
        return self.made == len(self.plan)

    @property
    def tokens(self) -> list[int]:
        return self.plan[: self.made]

    def make(self, tokens: int) -> None:
        self.made = min(self.made + tokens, len(self.plan))
        if self.state in ("queued", "running"):
            self.state = "held" if self.finished else "running"
        self.notify()

    def end(self, state: str, reason: str | None = None) -> None:
        self.state, self.reason = state, reason
        self.notify()

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class FakeEngine:
    def __init__(self) -> None:
        self.epoch = "0000aaaa"
        self.version = "v3"
        self.plugin = True
        """False: a stock server, without branch routes."""
        self.capabilities: dict[str, Any] = {"supported": True, "reason": None, "seeds": True}
        self.refuse: dict[str, tuple[int, str]] = {}
        """Status and code, by the last part of a branch route's path."""
        self.branches: dict[str, FakeBranch] = {}
        self.aborted: list[str] = []
        self.wire = Wire(self._app())

    def restart(self) -> None:
        self.epoch = f"{int(self.epoch, 16) + 1:08x}"
        self.branches.clear()

    def make(self, tokens: int = 1000) -> None:
        """Every branch that runs generates so many tokens more."""
        for branch in self.branches.values():
            branch.make(tokens)

    def states(self) -> list[str]:
        return [branch.state for branch in self.branches.values()]

    def _app(self) -> FastAPI:
        app = FastAPI(dependencies=[Depends(self._gate)])

        @app.exception_handler(Refused)
        async def refused(_: Request, error: Refused) -> JSONResponse:
            return JSONResponse(
                {"error": {"code": error.code, "message": f"it is {error.code}."}}, error.status
            )

        app.add_api_route("/model_info", self._model_info)
        app.add_api_route("/generate", self._generate, methods=["POST"])
        app.add_api_route("/abort_request", self._abort, methods=["POST"])
        app.add_api_route("/update_weights_from_disk", self._update, methods=["POST"])
        app.add_api_route("/branch", self._list)
        app.add_api_route("/branch/open", self._open, methods=["POST"])
        app.add_api_route("/branch/drop_all", self._drop_all, methods=["POST"])
        app.add_api_route("/branch/{branch_id}", self._read)
        app.add_api_route("/branch/{branch_id}/stream", self._stream)
        app.add_api_route("/branch/{branch_id}/commit", self._commit, methods=["POST"])
        app.add_api_route("/branch/{branch_id}/drop", self._drop, methods=["POST"])
        return app

    async def _gate(self, request: Request) -> None:
        path = request.url.path
        if path.startswith("/branch"):
            if not self.plugin:
                raise HTTPException(404, "Not Found")
            if refusal := self.refuse.get(path.rpartition("/")[2]):
                raise Refused(*refusal)

    async def _model_info(self) -> dict[str, str]:
        return {"model_path": "tiny"}

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        assert body["stream"] is body["return_logprob"] is True
        params = body["sampling_params"]
        tokens = continuation(body["input_ids"], params)
        version = self.version

        async def events() -> AsyncIterator[str]:
            for count in range(1, len(tokens) + 1):
                triples = [[-t / 64, t, None] for t in tokens[:count]]
                finish = _finish(tokens, params) if count == len(tokens) else None
                meta = {"completion_tokens": count, "output_token_logprobs": triples}
                meta |= {"finish_reason": finish, "weight_version": version}
                # As SGLang does, without escapes: Python takes this character for the end of a line.
                event = {"text": "\u2028", "output_ids": tokens[:count], "meta_info": meta}
                yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _abort(self, request: Request) -> None:
        self.aborted.append((await request.json())["rid"])

    async def _update(self, request: Request) -> dict[str, bool]:
        self.version = (await request.json())["weight_version"]
        for branch in self.branches.values():
            branch.end("lost", "new weights")
        return {"success": True}

    async def _list(self) -> dict[str, Any]:
        return {
            "plugin": "0.1.0",
            "sglang": "0.5.14",
            "epoch": self.epoch,
            "batch_invariant": False,
            "budget_tokens": 4096,
            "held_tokens": 0,
            "branches": [
                {"id": b.id, "state": b.state, "tokens": b.made, "age_s": 0.5} for b in self.branches.values()
            ],
        } | self.capabilities

    async def _open(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        parent = body.get("parent")
        if parent is None:
            held = self.branches[body["parent_branch"]]
            parent = [*held.ids, *held.tokens]
        opened = []
        for candidate in body["candidates"]:
            branch_id = f"obsspec-branch-{self.epoch}-{len(self.branches):016x}"
            self.branches[branch_id] = FakeBranch(branch_id, body, [*parent, *candidate])
            opened.append(branch_id)
        return {"branches": opened, "epoch": self.epoch}

    async def _read(self, branch_id: str, since: int = 0) -> dict[str, Any]:
        branch = self._get(branch_id)
        head = {"id": branch.id, "state": branch.state, "tokens": branch.made, "reason": branch.reason}
        return head | _chunk(branch, since, self.version)

    async def _stream(self, branch_id: str, since: int = 0) -> Response:
        return self._events(self._get(branch_id), since, [])

    async def _commit(self, branch_id: str) -> Response:
        branch = self._get(branch_id)
        head = {"branch": branch.id, "state": branch.state, "run_s": 1.5 if branch.finished else None}
        branch.end("committed")
        return self._events(branch, 0, [head])

    async def _drop(self, branch_id: str) -> dict[str, Any]:
        branch = self._get(branch_id)
        run_s = 1.5 if branch.finished else None
        branch.end("dropped")
        return {"tokens": branch.made, "run_s": run_s} | SIZES

    async def _drop_all(self) -> dict[str, int]:
        left = [b for b in self.branches.values() if b.state in ("queued", "running", "held")]
        for branch in left:
            branch.end("dropped")
        return {"branches": len(left)} | SIZES

    def _get(self, branch_id: str) -> FakeBranch:
        if not branch_id.startswith(f"obsspec-branch-{self.epoch}-"):
            raise Refused(410, "restarted")
        branch = self.branches.get(branch_id)
        if branch is None:
            raise Refused(404, "unknown")
        if branch.state in ("committed", "dropped", "expired", "lost"):
            raise Refused(409, branch.state)
        return branch

    def _events(self, branch: FakeBranch, sent: int, head: list[dict[str, Any]]) -> Response:
        version = self.version

        async def events() -> AsyncIterator[dict[str, Any]]:
            nonlocal sent
            for event in head:
                yield event
            while True:
                changed = branch.changed
                if sent < branch.made or branch.finished:
                    yield _chunk(branch, sent, version)
                    sent = branch.made
                if branch.state in ("lost", "dropped"):
                    message = f"the branch was lost: {branch.reason}"
                    yield {"error": {"code": "lost", "message": message}}
                    return
                if branch.finished:
                    return
                await changed.wait()

        async def lines() -> AsyncIterator[str]:
            async for event in events():
                yield f"data: {json.dumps(event)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


def _chunk(branch: FakeBranch, since: int, version: str) -> dict[str, Any]:
    tokens = branch.tokens[since:]
    params = branch.body["sampling_params"]
    return {
        "token_ids": tokens,
        "logprobs": logprobs(tokens) if branch.body["return_logprob"] else None,
        "finish_reason": _finish(branch.plan, params) if branch.finished else None,
        "weight_version": version,
    }


def _finish(tokens: Sequence[int], params: dict[str, Any]) -> dict[str, Any]:
    if len(tokens) == params["max_new_tokens"]:
        return {"type": "length", "length": len(tokens)}
    return {"type": "stop", "matched": tokens[-1]}


def seed_of(length: int, ids: Sequence[int], params: dict[str, Any]) -> int:
    """A seed with which the continuation has that many tokens, the last of them a stop token."""
    for seed in range(10_000):
        tokens = continuation(ids, params | {"sampling_seed": seed})
        if len(tokens) == length and tokens[-1] == STOP:
            return seed
    raise AssertionError("no such seed")
