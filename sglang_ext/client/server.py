"""One SGLang server over HTTP: requests, event streams, `/generate`, and an error for each way to fail."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, TypeVar

import httpx

from sglang_ext.client.answers import Chunk
from sglang_ext.client.errors import BranchError, ConnectionLost, Silent, Unavailable, refusal
from sglang_ext.client.events import GenerateReader, payloads

T = TypeVar("T")

_ABORT_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_S = 10.0


class Server:
    """Owns the tasks that end what nobody waits for; the HTTP client is its user's to close."""

    def __init__(self, http: httpx.AsyncClient, name: str = "engine"):
        """`name`: as in error messages."""
        self.where = f"the {name} at {str(http.base_url).rstrip('/')}"
        self._http = http
        self._tasks: set[asyncio.Task[Any]] = set()

    async def generate(
        self, token_ids: Sequence[int], sampling_params: Mapping[str, Any], extra_key: str | None = None
    ) -> AsyncGenerator[Chunk]:
        """An ordinary request, with log-probabilities. Closing the generator early ends it in the engine.

        The stop token that was sampled is part of the output, with its log-probability.
        """
        request_id = uuid.uuid4().hex  # of fixed length: SGLang aborts by prefix
        body = {
            "rid": request_id,
            "input_ids": list(token_ids),  # whatever kind of sequence it is
            "sampling_params": sampling_params,
            "stream": True,
            "return_logprob": True,
        } | ({} if extra_key is None else {"extra_key": extra_key})
        reader = GenerateReader(self.where)
        events = self.events("POST", "/generate", lambda: f"after {reader.sent} tokens", body=body)
        try:
            async with aclosing(events):
                async for event in events:
                    with self.understanding():
                        chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
            if not reader.finished:
                raise ConnectionLost(f"{self.where} ended its answer after {reader.sent} tokens, unfinished")
        except (GeneratorExit, asyncio.CancelledError):
            if not reader.finished:
                self.spawn(self.abort(request_id), f"abort {request_id}")
            raise

    async def request(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None
    ) -> Any:
        """The JSON of the answer; `timeout_s`: longest silence, if not the client's. Raises BranchError."""
        default = self._http.timeout
        timeout = default if timeout_s is None else httpx.Timeout(timeout_s, connect=default.connect)
        try:
            response = await self._http.request(method, path, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise self._failure(error, f"at {path}", timeout_s) from error
        await self._check(response, path)
        with self.understanding():
            return response.json()

    async def get(self, path: str) -> Any:
        """As `request`; once more where the connection broke, which changes nothing in the engine."""
        try:
            return await self.request("GET", path)
        except ConnectionLost:
            return await self.request("GET", path)

    async def events(
        self, method: str, path: str, when: Callable[[], str], *, body: Any = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """The JSON of each event, as they come; `when`: how far it got, for messages. Raises BranchError."""
        try:
            async with self._http.stream(method, path, json=body) as response:
                await self._check(response, path)
                async with aclosing(payloads(response.aiter_bytes())) as data:
                    async for payload in data:
                        if payload == b"[DONE]":  # and on to the end, so that the connection can be kept
                            continue
                        with self.understanding():
                            event = json.loads(payload)
                        yield event
        except httpx.HTTPError as error:
            raise self._failure(error, when()) from error

    async def abort(self, request_id: str) -> None:
        """End a request in the engine, if it is there."""
        # A closed stream would end it too, up to two seconds later; so a failure here costs little.
        with suppress(httpx.HTTPError):
            await self._http.post("/abort_request", json={"rid": request_id}, timeout=_ABORT_TIMEOUT_S)

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Do `work` whoever waits for it; `aclose` does."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Wait for what is still being ended, 10 s at most; safe to call twice."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    @contextmanager
    def understanding(self) -> Iterator[None]:
        """Makes what reading an answer raises a BranchError."""
        try:
            yield
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise BranchError(f"{self.where} answered with what no SGLang of this version sends") from error

    async def _check(self, response: httpx.Response, path: str) -> None:
        if response.status_code >= 400:
            body = (await response.aread()).decode(errors="replace")
            raise refusal(self.where, path, response.status_code, body)

    def _failure(self, error: httpx.HTTPError, when: str, timeout_s: float | None = None) -> BranchError:
        match error:
            case httpx.ConnectTimeout() | httpx.ConnectError():
                return Unavailable(f"{self.where} cannot be reached ({error or 'time-out'}): is it running?")
            case httpx.TimeoutException():
                seconds = timeout_s or self._http.timeout.read or 0.0
                return Silent(f"{self.where} was silent for {seconds:g} s, {when}")
            case _:
                return ConnectionLost(f"{self.where} died {when} ({error or type(error).__name__})")
