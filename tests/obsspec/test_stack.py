"""A stack of small servers in place of engines and service: who is blamed when something ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from obsspec.config import EngineConfig, load_config
from obsspec.errors import ProcessError
from obsspec.processes import Command, Stack
from obsspec.processes.ports import free_port
from orchestrator.client import OrchestratorError
from orchestrator.schema import EngineState, Readiness

SERVER = """
import http.server, sys

port, status, body, requests = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", port), Handler)
for _ in range(requests):
    server.handle_request()
sys.exit("that was enough")
"""
CONFIG = "orchestrator: {policy: {kind: scripted, script: none}, tokenizer: none, port: 0}\n"


def server(name: str, port: int, status: int = 200, body: str = "{}", requests: int = 1_000_000) -> Command:
    """Answers so many requests, all alike, and ends."""
    argv = [sys.executable, "-c", SERVER, *map(str, (port, status, body, requests))]
    return Command(name, argv, f"http://127.0.0.1:{port}/readyz", startup_timeout_s=3, stop_timeout_s=0)


class Small(Stack):
    """Its service answers `status` and `body` to everything."""

    status, body = 200, "{}"

    def _orchestrator(self, config: Path) -> Command:
        return server("orchestrator", self.config.orchestrator.port, self.status, self.body)


def stack(tmp_path: Path, config: str = CONFIG) -> Small:
    file = tmp_path / "config.yaml"
    file.write_text(config)
    return Small(load_config(file), tmp_path)


async def test_an_engine_elsewhere_that_does_not_answer_is_named(tmp_path: Path) -> None:
    small = stack(tmp_path)
    reason = "the world model engine at http://10.0.0.9:1 cannot be reached (refused): is it running?"
    engines = [
        EngineState(name="policy", ready=True),
        EngineState(name="world model", ready=False, error=reason),
    ]
    small.status, small.body = 503, Readiness(ready=False, engines=engines).model_dump_json()
    with pytest.raises(ProcessError) as caught:
        await small.start()
    assert str(caught.value) == f"the orchestrator waits in vain: {reason}"


async def test_an_engine_that_ends_while_the_service_starts_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_soon(role: str, engine: EngineConfig, scratch: str, api_key: str | None = None) -> Command:
        """Answers that it is ready, and for its plugin, and no more."""
        return server("policy-engine", engine.port, requests=2)

    monkeypatch.setattr("obsspec.engine.check", lambda role, engine: None)
    monkeypatch.setattr("obsspec.engine.command", ends_soon)
    small = stack(tmp_path, f"engines: {{policy: {{model: none, port: {free_port()}}}}}\n{CONFIG}")
    small.status = 503
    with pytest.raises(ProcessError, match=r"policy-engine stopped by itself(?s:.*)that was enough"):
        await small.start()


async def test_a_client_that_fails_waits_for_the_process_that_explains_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with stack(tmp_path) as small:
            os.kill(small._children[0].pid, signal.SIGKILL)
            raise OrchestratorError("the orchestrator broke off")

    with pytest.raises(ProcessError, match=r"orchestrator stopped by itself \(killed by SIGKILL\)"):
        await body()
