"""The SGLang backend against recorded answers of SGLang 0.5.14; a real server is for the engine tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from orchestrator.action import SampledAction
from orchestrator.backends.base import BackendError, Branch, BranchEnded, FinishReason, SamplingParams
from orchestrator.backends.sglang import SGLangBackend
from orchestrator.trajectory import GrowingTrajectory

URL = "http://127.0.0.1:30000"
PARAMS = SamplingParams(max_new_tokens=8, temperature=0.5, stop_token_ids=(42,), seed=11)
STOP = {"type": "stop", "matched": 42}
Lines = list[dict[str, Any]]


def event(
    triples: list[tuple[float, int]], total: int, finish: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "text": "…",
        "output_ids": [token for _, token in triples],
        "meta_info": {
            "finish_reason": finish,
            "completion_tokens": total,
            "output_token_logprobs": [[logprob, token, None] for logprob, token in triples],
            "weight_version": "v3",
        },
    }


A, B, C = (-0.1, 5), (-0.2, 6), (-0.3, 42)
CUMULATIVE = [event([A], 1), event([A, B], 2), event([A, B, C], 3, STOP)]
INCREMENTAL = [event([A], 1), event([B], 2), event([C], 3, STOP)]
# A chunk is rendered after more tokens have arrived than it counts.
AHEAD = [event([A, B], 1), event([A, B, C], 2), event([A, B, C], 3, STOP)]
COALESCED = [event([A, B], 2), event([C], 3, STOP)]


class Server(httpx.AsyncBaseTransport):
    """A stock server. Answers `/generate` with `events`, then ends the stream, dies or waits."""

    def __init__(self, events: Lines, end: str = "done"):
        self.events = events
        self.end = end
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/branch":
            return httpx.Response(404, json={"detail": "Not Found"})
        body = json.loads(await request.aread() or b"{}")
        self.requests.append((request.url.path, body))
        if request.url.path == "/generate":
            return httpx.Response(200, stream=Stream(self._stream()))
        return httpx.Response(200, json={"model_path": "tiny", "success": True})

    async def _stream(self) -> AsyncIterator[bytes]:
        for line in self.events:
            yield f"data: {json.dumps(line)}\n\n".encode()
        match self.end:
            case "done":
                yield b"data: [DONE]\n\n"
            case "dies":
                raise httpx.ReadError("connection reset")
            case "waits":
                await asyncio.Event().wait()

    def aborted(self) -> list[str]:
        return [body["rid"] for path, body in self.requests if path == "/abort_request"]


class Stream(httpx.AsyncByteStream):
    def __init__(self, lines: AsyncIterator[bytes]):
        self._lines = lines

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._lines


def backend(handler: httpx.AsyncBaseTransport | Callable[[httpx.Request], httpx.Response]) -> SGLangBackend:
    transport = handler if isinstance(handler, httpx.AsyncBaseTransport) else httpx.MockTransport(handler)
    return SGLangBackend("policy", URL, timeout_s=7, transport=transport)


async def generate(engine: SGLangBackend) -> SampledAction:
    return await SampledAction().read(engine.generate([1, 2, 3], PARAMS))


@pytest.mark.parametrize("events", [CUMULATIVE, INCREMENTAL, AHEAD, COALESCED])
async def test_every_sampled_token_comes_once_with_its_logprob_the_stop_token_too(events: Lines) -> None:
    server = Server(events)
    assert await generate(backend(server)) == SampledAction(
        [5, 6, 42], [-0.1, -0.2, -0.3], FinishReason.STOP, "v3"
    )
    ((path, body),) = server.requests
    assert path == "/generate"
    assert body["input_ids"] == [1, 2, 3]
    assert body["stream"] is body["return_logprob"] is True
    assert len(body["rid"]) == 32
    assert body["sampling_params"] == {
        "max_new_tokens": 8,
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": -1,
        "stop_token_ids": [42],
        "sampling_seed": 11,
        "stream_interval": 1,
    }


async def test_the_view_of_a_growing_trajectory_is_sent_as_it_stands() -> None:
    server = Server(INCREMENTAL)
    view = GrowingTrajectory([1, 2, 3]).ids
    await SampledAction().read(backend(server).generate(view, PARAMS))
    assert server.requests[0][1]["input_ids"] == [1, 2, 3]


async def test_an_action_cut_at_its_limit_says_so() -> None:
    action = await generate(backend(Server([event([A, B], 2, {"type": "length", "length": 2})])))
    assert action.finish is FinishReason.LENGTH


def refuse(status: int, body: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, json=body)


def raising(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    return handler


ABORTED = event([A], 1, {"type": "abort", "message": "weights are updated"})
NAN = event([A], 1, {"type": "stop", "matched": "NaN happened"})
ERROR = {"error": {"message": "The input is longer than the context.", "code": 400}}


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (refuse(400, {"error": {"message": "bad ids"}}), "refused with status 400: bad ids"),
        (refuse(400, {"success": False, "message": "no weights"}), "refused with status 400: no weights"),
        (lambda _: httpx.Response(503, text="busy\nnow"), "refused with status 503: busy now"),
        (Server([{"unknown": 1}]), "answered with what no SGLang of this version sends"),
        (raising(httpx.ConnectError("refused")), r"cannot be reached \(refused\): is it running\?"),
        (raising(httpx.ReadTimeout("")), "was silent for 7 s, after 0 tokens"),
        (Server(CUMULATIVE[:2], "dies"), r"died after 2 tokens \(connection reset\)"),
        (Server(CUMULATIVE[:2]), "ended its answer after 2 tokens, unfinished"),
        (Server([ERROR]), "refused: The input is longer than the context."),
        (Server([ABORTED]), "aborted the request after 0 tokens: weights are updated"),
        (Server([NAN]), "stopped after 0 tokens: NaN happened"),
    ],
)
async def test_every_failure_is_one_sentence_with_the_address(handler: Any, reason: str) -> None:
    with pytest.raises(BackendError, match=f"^the policy engine at {URL} {reason}") as caught:
        await generate(backend(handler))
    assert "\n" not in str(caught.value)


async def test_leaving_a_request_early_aborts_it() -> None:
    server = Server(CUMULATIVE[:1], "waits")
    engine = backend(server)
    chunks = engine.generate([1], PARAMS)
    await anext(chunks)
    await chunks.aclose()
    await engine.close()
    assert server.aborted() == [server.requests[0][1]["rid"]]


async def test_a_dropped_branch_is_aborted_and_a_committed_one_is_not() -> None:
    server = Server(CUMULATIVE[:2], "waits")
    engine = backend(server)
    dropped, lost = await engine.open([1, 2], [[3], [4]], PARAMS)
    for _ in range(30):
        await asyncio.sleep(0)
    assert [body["input_ids"] for _, body in server.requests] == [[1, 2, 3], [1, 2, 4]]
    assert await dropped.drop() == 2
    await engine.update_weights("/models/next", "v4")
    path, body = next(r for r in server.requests if r[0].startswith("/update"))
    assert (path, body) == (
        "/update_weights_from_disk",
        {"model_path": "/models/next", "weight_version": "v4"},
    )
    assert await lost.drop() == 2
    await engine.close()
    assert len(server.aborted()) == 2

    whole = Server(CUMULATIVE)
    engine = backend(whole)
    (branch,) = await engine.open([1, 2], [[3]], PARAMS)
    assert (await SampledAction().read(branch.commit())).token_ids == [5, 6, 42]
    await engine.close()
    assert whole.aborted() == []


async def test_no_branch_opened_during_a_weight_update_survives_it() -> None:
    class Updating(Server):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/update"):
                opened.extend(await engine.open([1], [[2]], PARAMS))
            return await super().handle_async_request(request)

    opened: list[Branch] = []
    engine = backend(Updating(CUMULATIVE))
    await engine.update_weights("/models/next", "v4")
    with pytest.raises(BranchEnded):
        opened[0].commit()
    await engine.close()


@pytest.mark.parametrize("answer", [httpx.Response(200, text="<html>"), httpx.Response(200, json=["tiny"])])
async def test_a_server_that_is_no_sglang_is_named(answer: httpx.Response) -> None:
    with pytest.raises(BackendError, match=f"^the policy engine at {URL} answered with what no SGLang"):
        await backend(lambda request: answer).capabilities()


async def test_capabilities_say_what_is_emulated() -> None:
    capabilities = await backend(Server([])).capabilities()
    assert (capabilities.name, capabilities.branches, capabilities.seeds) == (
        "sglang, tiny",
        "emulated",
        False,
    )
    assert any("not honoured" in note for note in capabilities.notes)
