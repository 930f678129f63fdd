"""Several SGLang servers on one CPU machine, started from one process that imports SGLang once.

    python -m benchmarks.engines SPEC.json

SPEC.json is a list of {"env": {...}, "argv": [...], "log": path}. Each server is a fork; all end with
this process, however it ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import httpx

from obsspec import engine
from obsspec.config import EngineConfig
from obsspec.processes import lifetime, ports

_IMPORTS = ("sglang.srt.entrypoints.http_server", "sglang.srt.models.registry", "verl")


@dataclass(frozen=True)
class Spec:
    """One server: its configuration and what else its environment holds."""

    name: str
    config: EngineConfig
    env: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def running(specs: Sequence[Spec], folder: Path) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each, ready; on the way out all are gone."""
    chosen, entries = [], []
    for spec in specs:
        config = spec.config.model_copy(update={"port": ports.free_port()})
        command = engine.command("policy", config)
        log = folder / f"{spec.name}.log"
        entries.append({"env": command.env | spec.env, "argv": command.argv[3:], "log": str(log)})
        chosen.append(config)
    file = folder / "engines.json"
    file.write_text(json.dumps(entries))
    parent = await asyncio.create_subprocess_exec(
        *lifetime.launcher(),
        *(sys.executable, "-m", "benchmarks.engines", str(file)),
        stdin=asyncio.subprocess.DEVNULL,
        env=os.environ | command.env,  # SGLang reads some of it when it is imported
    )
    clients = [
        httpx.AsyncClient(base_url=config.url, timeout=httpx.Timeout(120, pool=None), trust_env=False)
        for config in chosen
    ]
    try:
        for spec, client in zip(specs, clients, strict=True):
            await _ready(spec.name, client, parent, folder)
        yield clients
    finally:
        for client in clients:
            await client.aclose()
        if parent.returncode is None:
            parent.terminate()
        await parent.wait()


async def _ready(name: str, client: httpx.AsyncClient, parent: Process, folder: Path) -> None:
    async with asyncio.timeout(300):
        while True:
            with suppress(httpx.HTTPError):
                if (await client.get("/health_generate", timeout=5)).status_code == 200:
                    return
            if parent.returncode is not None:
                raise RuntimeError(
                    f"engine {name} did not start: {(folder / f'{name}.log').read_text()[-2000:]}"
                )
            await asyncio.sleep(0.05)


def main(file: str) -> None:
    """Import what every server needs, fork them, and wait; they die with this process."""
    lifetime.bind_descendants()
    for module in _IMPORTS:
        importlib.import_module(module)
    for entry in json.loads(Path(file).read_text()):
        if os.fork() == 0:
            _serve(entry)
    os.wait()


def _serve(entry: dict[str, Any]) -> NoReturn:
    log = os.open(entry["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(entry["env"])
    from obsspec.engine_process import main as serve

    try:
        serve(entry["argv"])
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
