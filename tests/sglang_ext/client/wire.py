"""An in-process network: ASGI, streamed as it comes, that cuts and breaks answers where it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI


@dataclass(frozen=True)
class Fault:
    """What happens, once, to a request whose path ends so."""

    path: str
    error: type[httpx.TransportError] | None = httpx.ReadError
    """None: the answer just ends."""
    after_events: int | None = None
    """The answer breaks after so many events; None: before its first byte."""
    reached: bool = True
    """Whether the engine has got the request."""


class Wire(httpx.AsyncBaseTransport):
    def __init__(self, app: FastAPI):
        self.sent: list[tuple[str, Any]] = []
        """Method and path, and body, of every request that reached the engine."""
        self.reached = asyncio.Event()
        """The engine has got a request."""
        self.faults: list[Fault] = []
        self.cut: int | None = None
        """Bytes to a network chunk; None: as the engine sends them."""
        self._app = app

    def paths(self) -> list[str]:
        return [path for path, _ in self.sent]

    def bodies(self, path: str) -> list[Any]:
        return [body for sent, body in self.sent if sent == path]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        fault = next((f for f in self.faults if request.url.path.endswith(f.path)), None)
        if fault is not None:
            self.faults.remove(fault)
            if not fault.reached:
                assert fault.error
                raise fault.error("refused")
        self.sent.append((f"{request.method} {request.url.path}", json.loads(body) if body else None))
        self.reached.set()
        call = _Call(self._app, request, body)
        if fault is not None and fault.after_events is None:
            await call.finish()
            assert fault.error
            raise fault.error("connection reset")
        return await call.answer(self.cut, fault)


class _Call(httpx.AsyncByteStream):
    """One request in the application, and its answer's body."""

    def __init__(self, app: FastAPI, request: httpx.Request, body: bytes):
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._left = asyncio.Event()
        self._body: bytes | None = body
        self._cut: int | None = None
        self._fault: Fault | None = None
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        self._task = asyncio.create_task(self._run(app, scope))

    async def answer(self, cut: int | None, fault: Fault | None) -> httpx.Response:
        self._cut, self._fault = cut, fault
        start = await self._messages.get()
        assert start is not None, "the fake engine failed"
        return httpx.Response(start["status"], headers=start["headers"], stream=self)

    async def finish(self) -> None:
        """Until the application has handled it, unless its answer waits for more."""
        await self._messages.get()
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = 0
        while (message := await self._messages.get()) is not None:
            part = message.get("body", b"")
            cut = self._cut or max(1, len(part))
            for start in range(0, len(part), cut):
                yield part[start : start + cut]
            events += part.count(b"\n\n")
            if self._fault is not None and self._fault.after_events == events:
                if self._fault.error is None:
                    return
                raise self._fault.error("connection reset")

    async def aclose(self) -> None:
        self._left.set()
        await asyncio.wait({self._task})
        with suppress(asyncio.CancelledError):
            self._task.result()

    async def _run(self, app: FastAPI, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)  # type: ignore[arg-type]
        finally:
            self._messages.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self._messages.put_nowait(message)
