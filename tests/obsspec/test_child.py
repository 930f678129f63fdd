from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from obsspec.engine import require_plugin
from obsspec.errors import ProcessError
from obsspec.processes import Child, Command
from obsspec.processes.ports import free_port
from tests.obsspec.processes import descendants

SERVER = """
import http.server, os, signal, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        signal.pause()
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def child(tmp_path: Path, code: str, *arguments: object, **options: float) -> Child:
    port = free_port()
    argv = [sys.executable, "-c", code, str(port), *map(str, arguments)]
    return Child(Command("server", argv, f"http://127.0.0.1:{port}/", **options), tmp_path / "server.log")


async def test_ready_returns_when_it_answers(tmp_path: Path) -> None:
    server = child(tmp_path, SERVER)
    await server.start()
    await server.ready()
    assert "serving" in server.log.read_text()
    await server.stop()
    await server.stop()


async def test_stop_before_start_does_nothing(tmp_path: Path) -> None:
    await child(tmp_path, SERVER).stop()


async def test_stop_ends_what_ignores_it_and_what_it_started(tmp_path: Path) -> None:
    server = child(tmp_path, SERVER, "stubborn", stop_timeout_s=0.1)
    await server.start()
    await server.ready()
    with descendants(server.pid) as processes:
        await server.stop()
        assert processes.survivors(timeout_s=5) == []


async def test_an_end_at_start_is_told_with_the_log(tmp_path: Path) -> None:
    server = child(tmp_path, "import sys; print('first'); sys.exit('no such model')")
    await server.start()
    with pytest.raises(
        ProcessError, match=r"server stopped by itself \(exit status 1\).*(?s:.*)first\n.*model"
    ):
        await server.ready()
    await server.stop()


async def test_an_end_while_running_is_told_with_the_log(tmp_path: Path) -> None:
    server = child(tmp_path, SERVER)
    await server.start()
    await server.ready()
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ProcessError, match=r"server stopped by itself \(killed by SIGKILL\)(?s:.*)serving"):
        await server.ended()
    await server.stop()


async def test_a_silent_start_has_an_end(tmp_path: Path) -> None:
    server = child(tmp_path, "import time; time.sleep(60)", startup_timeout_s=0.3)
    await server.start()
    with pytest.raises(ProcessError, match=r"server was not ready after 0\.3 s; its log .* is empty"):
        await server.ready()
    await server.stop()


async def test_a_cancelled_wait_leaves_nothing(tmp_path: Path) -> None:
    server = child(tmp_path, "import time; time.sleep(60)")
    await server.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await server.ready()
    with descendants(server.pid) as processes:
        await server.stop()
        assert processes.survivors(timeout_s=5) == []


async def test_an_engine_without_the_plugin_is_named(tmp_path: Path) -> None:
    server = child(tmp_path, SERVER)  # answers 404 to GET /branch, as a stock SGLang does
    await server.start()
    await server.ready()
    with pytest.raises(ProcessError, match=r"policy-engine runs without the obsspec plugin.*404.*make setup"):
        await require_plugin("policy-engine", server.command.ready_url.rstrip("/"))
    await server.stop()


def test_it_dies_with_a_parent_killed_at_once(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from tests.obsspec.test_child import SERVER, child

async def main():
    server = child(Path({str(tmp_path)!r}), SERVER)
    await server.start()
    await server.ready()
    print("ready", flush=True)
    await server.ended()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        with descendants(parent.pid) as processes:
            parent.kill()
            assert processes.survivors(timeout_s=5) == []
