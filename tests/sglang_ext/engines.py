"""One real SGLang server with the plugin and SGLang's own leak checks on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from obsspec import engine
from obsspec.config import EngineConfig
from obsspec.processes import ports
from obsspec.processes.child import Child

KEY = "a-key-of-the-tests"
STRICT = {
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
}


@asynccontextmanager
async def running(model: Path, folder: Path, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Its client, with the key; the engine ends with the block. A leak ends the engine, and so the test."""
    config = EngineConfig(model=model, port=ports.free_port(), **options)
    command = engine.command("policy", config, api_key=KEY)
    child = Child(replace(command, env=command.env | STRICT), folder / "engine.log")
    await child.start()
    try:
        await child.ready()
        async with httpx.AsyncClient(
            base_url=config.url,
            timeout=httpx.Timeout(60, pool=None),
            limits=httpx.Limits(max_connections=None),
            headers={"Authorization": f"Bearer {KEY}"},
            trust_env=False,
        ) as http:
            yield http
    finally:
        await child.stop()
