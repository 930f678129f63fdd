"""Builds the service from its config and serves it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from fastapi import FastAPI

from orchestrator import predictors
from orchestrator.backends.base import Backend
from orchestrator.backends.factory import create
from orchestrator.chat import ChatFormat
from orchestrator.config import OrchestratorConfig
from orchestrator.predictors.base import PredictorTools
from orchestrator.rollout import World
from orchestrator.service import create_app
from orchestrator.speculation import Scopes
from orchestrator.store import MemoryStore
from orchestrator.task_index import TaskIndex
from orchestrator.tokenizer import ModelTokenizer
from tasks.tools import TOOLS
from tasks.worlds import Worlds

_GRACE_S = 2
_COLLECT_AFTER = 50_000
"""Objects more than before."""


class ServeError(RuntimeError):
    """The service cannot listen: one sentence."""


def build(config: OrchestratorConfig) -> FastAPI:
    """The service that a config describes. Raises ChatFormatError, TaskError or BackendError."""
    chat = ChatFormat(ModelTokenizer.load(config.tokenizer), config.system, TOOLS)
    tasks = TaskIndex(config.task_folders, config.cache)
    engines: dict[str, Backend] = {"policy": create("policy", config.policy)}
    if config.world_model is not None:
        engines["world model"] = create("world model", config.world_model)
    store = MemoryStore(config.keep_rollouts)
    speculation = config.speculation
    tools = PredictorTools(
        chat,
        engines.get("world model"),
        speculation.max_prediction_tokens,
        speculation.world_model_context_tokens,
        speculation.memo_entries,
        store.sequential,
    )
    world = World(
        engines["policy"],
        Scopes(partial(predictors.create, tools=tools)),
        chat,
        Worlds(config.sandbox).sandbox,
        config.sandbox.observation_chars,
        config.context_tokens,
    )
    return create_app(world, engines, tasks, store, config)


def serve(config: OrchestratorConfig, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called with the address once it listens.

    Raises ServeError when the address cannot be had, and what `build` raises.
    """
    app = build(config)
    listener = _listen(config.host, config.port)
    url = f"http://{config.host}:{listener.getsockname()[1]}"
    server = _Server(
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_S, lifespan="on")
    )

    async def run() -> None:
        collect_garbage_rarely()
        ready(url)
        await server.serve(sockets=[listener])

    asyncio.run(run())


def collect_garbage_rarely() -> None:
    """Of the process, from now on: a collection pauses every rollout, and what has ended leaves next to no
    cycles. What was loaded so far is never gone through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 10, 10)


class _Server(uvicorn.Server):
    """Takes a signal as the request to stop, and no more: uvicorn's own raises it again afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # Python repeats the address there
        raise ServeError(
            f"cannot listen on {host}:{port} ({reason}): choose another `port` in the config, or end what "
            "uses it"
        ) from error
