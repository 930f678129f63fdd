"""The service as its config describes it: scripted engines, real sandboxes, a real socket."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from orchestrator.app import ServeError, build, serve
from orchestrator.backends.base import SamplingParams
from orchestrator.chat import ChatFormat
from orchestrator.client import OrchestratorClient
from orchestrator.config import OrchestratorConfig
from orchestrator.schema import Outcome, RolloutRequest, RolloutStatus
from orchestrator.tokenizer import ChatFormatError
from tasks.tools import SYSTEM, TOOLS, render_action
from tests.orchestrator import qwen_like
from tests.orchestrator.test_chat import save

TOKENIZER = qwen_like.tokenizer()
CHAT = ChatFormat(TOKENIZER, SYSTEM, TOOLS)


def policy(ids: Sequence[int], params: SamplingParams) -> Iterable[int]:
    """Writes a file, reads it, and is done."""
    turn = list(ids).count(CHAT.end_id) // 2 - 1
    commands = ["echo hello > greeting", "cat greeting", None]
    return [*TOKENIZER.encode(render_action("I go on.", commands[turn])), CHAT.end_id]


def world_model(ids: Sequence[int], params: SamplingParams) -> Iterable[int]:
    turn = list(ids).count(CHAT.end_id) // 2 - 1
    bodies = ["(no output)\n(exit_code=0)", "hello\n(exit_code=0)"]
    return [*TOKENIZER.encode(bodies[turn]), *CHAT.closing]


def config(tmp_path: Path, **fields: object) -> OrchestratorConfig:
    save(tmp_path)
    engine = {"kind": "scripted", "tokens_per_s": 2000}
    values = {
        "tokenizer": tmp_path,
        "policy": {**engine, "script": f"{__name__}:policy"},
        "world_model": {**engine, "script": f"{__name__}:world_model"},
        "tool_latency": {"mean_s": 0.2, "sigma": 0.0},
        "cache": tmp_path / "cache",
        "port": 0,
    }
    return OrchestratorConfig.model_validate(values | fields)


SERVER = """
    import sys
    from orchestrator.app import serve
    from orchestrator.config import OrchestratorConfig
    config = OrchestratorConfig.model_validate_json(sys.stdin.read())
    serve(config, lambda url: print(url, flush=True))
    print("stopped", flush=True)
"""


async def test_a_rollout_in_a_real_sandbox_over_a_real_socket(tmp_path: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(SERVER), stdin=PIPE, stdout=PIPE
    )
    assert server.stdin
    assert server.stdout
    try:
        server.stdin.write(config(tmp_path).model_dump_json().encode())
        server.stdin.close()
        url = (await server.stdout.readline()).decode().strip()
        async with OrchestratorClient(url) as client:
            ids = await client.submit(RolloutRequest(tasks=["csv_edit/1000001"], n=2))
            for rollout in [await client.wait(i, trajectory=True) for i in ids]:
                assert (rollout.status, rollout.reward, rollout.error) == (RolloutStatus.FINISHED, 0.0, None)
                assert [turn.observation for turn in rollout.turns] == [
                    "(no output)\n(exit_code=0)",
                    "hello\n(exit_code=0)",
                    None,
                ]
                assert [t.prediction.outcome for t in rollout.turns if t.prediction] == [Outcome.HIT] * 2
            busy = await client.submit(RolloutRequest(tasks=["csv_edit/1000001"], n=20))
            assert len(busy) == 20
        server.send_signal(signal.SIGTERM)
        rest = (await server.stdout.read()).decode()
        assert rest.endswith("stopped\n")
        assert rest.count("status=cancelled") + rest.count("status=finished") == 22
        assert await server.wait() == 0
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{port} .*: choose another `port`"):
            serve(config(tmp_path, port=port))


def test_a_missing_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChatFormatError, match="no model folder at"):
        build(config(tmp_path, tokenizer=tmp_path / "nowhere"))
