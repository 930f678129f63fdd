"""`obsspec up` with a real engine: what is left when it ends, in each way it can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from tests.obsspec.processes import descendants

pytestmark = pytest.mark.engine


@pytest.fixture
def one_engine(model_folders: dict[str, Path], tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    engines = {"policy": {"model": str(model_folders["policy"])}}
    file.write_text(yaml.safe_dump({"engines": engines, "orchestrator": {"port": 0}}))
    return file


@contextmanager
def up(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "obsspec", "up", "--config", str(config), *arguments]
    with subprocess.Popen(
        command, cwd=config.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_ready(process: subprocess.Popen[str]) -> list[str]:
    """Lines printed until everything is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith("Ready:")):
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        lines.append(line.rstrip())
    return lines


def test_ctrl_c_ends_everything(one_engine: Path) -> None:
    with up(one_engine) as process:
        lines = wait_ready(process)
        assert [line.split(" ready on ")[0] for line in lines[:-1]] == ["policy-engine", "orchestrator"]
        with descendants(process.pid) as processes:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
            assert (process.returncode, output, errors) == (0, "Stopped.\n", "")
            assert processes.survivors(timeout_s=5) == []


def test_sigterm_while_starting_ends_everything(one_engine: Path) -> None:
    with up(one_engine) as process:
        log = one_engine.parent / "runs"
        wait_for_engine(process)
        with descendants(process.pid) as processes:
            process.terminate()
            output, errors = process.communicate(timeout=30)
            assert (process.returncode, output, errors) == (0, "Stopped.\n", "")
            assert processes.survivors(timeout_s=5) == []
        assert list(log.glob("*/logs/policy-engine.log"))


def test_kill_9_leaves_nothing(one_engine: Path) -> None:
    with up(one_engine) as process:
        wait_ready(process)
        with descendants(process.pid) as processes:
            process.kill()
            assert processes.survivors(timeout_s=10) == []


def test_an_engine_that_dies_is_named_with_its_log(one_engine: Path) -> None:
    with up(one_engine) as process:
        wait_ready(process)
        with descendants(process.pid) as processes:
            os.kill(scheduler(process.pid), signal.SIGKILL)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 1
            assert errors.startswith("obsspec: policy-engine stopped by itself")
            assert "policy-engine.log ends with:" in errors
            assert "crashed with exit code -9" in errors
            assert "Traceback" not in errors
            assert processes.survivors(timeout_s=5) == []


def test_an_engine_that_cannot_start_is_named_with_its_log(one_engine: Path) -> None:
    with up(one_engine, "--set", "engines.policy.extra_args=[--no-such-flag]") as process:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert errors.startswith("obsspec: policy-engine stopped by itself (exit status 2)")
        assert "unrecognized arguments: --no-such-flag" in errors
        assert "Traceback" not in errors


def wait_for_engine(process: subprocess.Popen[str]) -> None:
    """Wait until the engine's process has a child of its own, which is half-way through its start."""
    inside = psutil.Process(process.pid)
    while not any("obsspec.engine_process" in child.cmdline() for child in inside.children()):
        assert process.poll() is None
        os.sched_yield()


def scheduler(pid: int) -> int:
    children = psutil.Process(pid).children(recursive=True)
    return next(child.pid for child in children if "sglang::scheduler" in " ".join(child.cmdline()))
