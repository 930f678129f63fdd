"""An SGLang server over HTTP: token ids in, a stream of token ids and log-probabilities out.

What SGLang 0.5.14 answers, and this module relies on (read in its source, held by an engine test): the
stop token that was sampled is part of the output, with its log-probability; log-probabilities are those
of the distribution after temperature and before top-p and top-k. Branches are emulated here.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import httpx

from orchestrator.backends.base import BackendError, Branch, Capabilities, Chunk, FinishReason, SamplingParams
from orchestrator.backends.emulated import BranchPool

# Idle connections end before the server's own limit of 5 s, so that none is used while it is being closed.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
_ABORT_TIMEOUT_S = 2.0
_WEIGHTS_TIMEOUT_S = 600.0


class SGLangBackend:
    """One SGLang server, stock or with the plugin."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
        stream_interval: int = 1,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        """`timeout_s`: longest silence within one answer; `stream_interval`: tokens to a chunk."""
        self._where = f"the {name} engine at {url}"
        self._timeout_s = timeout_s
        self._stream_interval = stream_interval
        self._branches = BranchPool()
        self._aborts: set[asyncio.Task[None]] = set()
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(timeout_s, connect=connect_timeout_s, pool=None),
            limits=_LIMITS,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            transport=transport,
            trust_env=False,
        )

    async def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[Chunk]:
        request_id = uuid.uuid4().hex  # of fixed length: SGLang aborts by prefix
        body = {
            "rid": request_id,
            "input_ids": list(token_ids),
            "sampling_params": self._sampling(params),
            "stream": True,
            "return_logprob": True,
        }
        reader = _Reader(self._where)
        try:
            async with self._http.stream("POST", "/generate", json=body) as response:
                await self._check(response)
                async for line in response.aiter_lines():
                    if (chunk := reader.read(line)) is not None:
                        yield chunk
            if not reader.finished:
                raise BackendError(f"{self._where} ended its answer after {reader.sent} tokens, unfinished")
        except httpx.HTTPError as error:
            raise self._failure(error, f"after {reader.sent} tokens") from error
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self._unknown() from error
        except (GeneratorExit, asyncio.CancelledError):
            if not reader.finished:
                self._abort(request_id)
            raise

    async def open(
        self, parent: Sequence[int], candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        return [self._branches.open(self.generate([*parent, *ids], params)) for ids in candidates]

    async def update_weights(self, path: str, version: str) -> None:
        await self._branches.lose_all()
        body = {"model_path": path, "weight_version": version}
        try:
            await self._request("POST", "/update_weights_from_disk", json=body, timeout=_WEIGHTS_TIMEOUT_S)
        finally:
            # The engine ends what it has begun before it loads: a branch opened meanwhile may be of either.
            await self._branches.lose_all()

    async def capabilities(self) -> Capabilities:
        answer = await self._request("GET", "/model_info")
        try:
            model = answer.json()["model_path"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._unknown() from error
        return Capabilities(
            name=f"sglang, {model}",
            branches="emulated",
            seeds=False,
            notes=(
                "branches are ordinary requests, buffered here and aborted when dropped",
                "sampling seeds are sent, and not honoured yet: two runs with equal seeds differ by sampling",
            ),
        )

    async def close(self) -> None:
        await self._branches.lose_all()
        if self._aborts:
            await asyncio.wait(self._aborts)
        await self._http.aclose()

    def _sampling(self, params: SamplingParams) -> dict[str, Any]:
        return {
            "max_new_tokens": params.max_new_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": -1 if params.top_k is None else params.top_k,
            "stop_token_ids": list(params.stop_token_ids),
            "sampling_seed": params.seed,
            "stream_interval": self._stream_interval,
        }

    def _abort(self, request_id: str) -> None:
        """End a request in the engine; a rollout never waits for it, `close` does."""

        async def abort() -> None:
            # The closed stream would abort it too, two seconds later; so a failure here costs little.
            with suppress(httpx.HTTPError):
                await self._http.post("/abort_request", json={"rid": request_id}, timeout=_ABORT_TIMEOUT_S)

        task = asyncio.create_task(abort(), name=f"abort {request_id}")
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **options)
            await self._check(response)
        except httpx.HTTPError as error:
            raise self._failure(error, f"at {path}") from error
        return response

    async def _check(self, response: httpx.Response) -> None:
        if response.status_code >= 400:
            reason = _reason((await response.aread()).decode(errors="replace"))
            raise BackendError(f"{self._where} refused with status {response.status_code}: {reason}")

    def _unknown(self) -> BackendError:
        return BackendError(f"{self._where} answered with what no SGLang of this version sends")

    def _failure(self, error: httpx.HTTPError, when: str) -> BackendError:
        match error:
            case httpx.ConnectTimeout() | httpx.ConnectError():
                return BackendError(
                    f"{self._where} cannot be reached ({error or 'time-out'}): is it running?"
                )
            case httpx.TimeoutException():
                return BackendError(f"{self._where} was silent for {self._timeout_s:g} s, {when}")
            case _:
                return BackendError(f"{self._where} died {when} ({error or type(error).__name__})")


class _Reader:
    """Server-sent events of one answer → chunks; understands cumulative and incremental streams."""

    def __init__(self, where: str):
        self.sent = 0
        self.finished = False
        self._where = where

    def read(self, line: str) -> Chunk | None:
        if not line.startswith("data:") or (data := line[5:].strip()) == "[DONE]":
            return None
        event = json.loads(data)
        if "error" in event:
            raise BackendError(f"{self._where} refused: {_reason(data)}")
        meta = event["meta_info"]
        finish = self._finish(meta["finish_reason"])
        triples = meta.get("output_token_logprobs") or []
        if len(triples) >= meta["completion_tokens"]:  # cumulative, else only what is new
            triples = triples[self.sent :]
        self.sent += len(triples)
        if not triples and finish is None:
            return None
        logprobs, ids = tuple(t[0] for t in triples), tuple(t[1] for t in triples)
        return Chunk(ids, logprobs, finish, meta.get("weight_version"))

    def _finish(self, reason: dict[str, Any] | None) -> FinishReason | None:
        if reason is None:
            return None
        self.finished = True
        if reason["type"] == "abort":
            message = reason.get("message", "no reason given")
            raise BackendError(f"{self._where} aborted the request after {self.sent} tokens: {message}")
        if isinstance(reason.get("matched"), str):
            # No stop strings are sent: this is how it reports NaN logits.
            raise BackendError(f"{self._where} stopped after {self.sent} tokens: {reason['matched']}")
        return FinishReason(reason["type"])


def _reason(body: str) -> str:
    """The message in an error answer, in one line."""
    with suppress(ValueError, AttributeError):
        answer = json.loads(body)
        error = answer.get("error", answer)
        body = str(error.get("message", body) if isinstance(error, dict) else error)
    return " ".join(body.split())[:300] or "no reason given"
