from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.obsspec.command import assert_one_sentence, obsspec


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("command", [("engine", "policy"), ("up",)])
def test_a_missing_model_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("engines: {policy: {model: nowhere}}\norchestrator: {}\n")
    result = obsspec(*command, "--config", file, cwd=tmp_path)
    assert_one_sentence(
        result, "engines.policy.model", str(tmp_path / "nowhere"), "obsspec warmstart", status=2
    )


@pytest.mark.parametrize("command", [("engine", "world-model"), ("up",)])
def test_a_port_in_use_is_named(
    config_file: Path, busy_port: int, command: tuple[str, ...], tmp_path: Path
) -> None:
    override = f"engines.world_model.port={busy_port}"
    result = obsspec(*command, "--config", config_file, "--set", override, cwd=tmp_path)
    assert_one_sentence(result, "world-model-engine", f"127.0.0.1:{busy_port}", "in use", status=1)


def test_a_port_in_use_by_another_service_is_named(config_file: Path, busy_port: int) -> None:
    result = obsspec("orchestrator", "--config", config_file, "--set", f"orchestrator.port={busy_port}")
    assert_one_sentence(result, "the orchestrator", f"127.0.0.1:{busy_port}", "in use", status=1)


def test_an_engine_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("orchestrator: {policy: {url: 'http://127.0.0.1:1', kind: sglang}, tokenizer: t}\n")
    assert_one_sentence(obsspec("engine", "policy", "--config", file), "engines.policy", status=2)


@pytest.mark.parametrize("command", ["demo", "evaluate"])
def test_a_result_that_cannot_be_written_is_named_before_the_work(
    config_file: Path, tmp_path: Path, command: str
) -> None:
    for file in (tmp_path, tmp_path / "nowhere" / "report.json"):
        result = obsspec(command, "--config", config_file, "--json", file, cwd=tmp_path)
        assert_one_sentence(result, f"--json {file}", "a folder that exists", status=2)


def test_runs_that_cannot_be_kept_are_named(config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = obsspec("up", "--config", config_file, "--runs", tmp_path / "file")
    assert_one_sentence(result, f"--runs {tmp_path / 'file'}", "Not a directory", status=2)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, obsspec.cli; from typer.testing import CliRunner; "
        "assert 'engine' in CliRunner().invoke(obsspec.cli.app, ['--help']).output; "
        "print(*{'torch', 'transformers', 'sglang', 'verl', 'ray', 'fastapi', 'httpx'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
