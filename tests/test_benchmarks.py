"""The commands behind the figures, quickly, on two real engines: what they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from obsspec.config import Config
from tests.obsspec.command import obsspec

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def service_file(engines: Config, tmp_path: Path) -> Path:
    """A service in front of the session's engines."""
    service = engines.orchestrator.model_dump(mode="json") | {"port": 0, "cache": str(tmp_path / "cache")}
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump({"orchestrator": service}))
    return file


def bench(what: str, config: Path, folder: Path) -> tuple[dict[str, Any], str, Path]:
    """The JSON, what was printed, and the folder of the run."""
    copy = folder / "copy.json"
    arguments = ("--quick", "--config", config, "--runs", folder / "runs", "--json", copy)
    result = obsspec("bench", what, *arguments, timeout=280)
    assert result.returncode == 0, result.stderr + result.stdout
    (run,) = (folder / "runs").iterdir()
    return json.loads(copy.read_text()), result.stdout, run


def test_bench_latency(service_file: Path, tmp_path: Path) -> None:
    data, printed, run = bench("latency", service_file, tmp_path)
    assert set(data["reduction"]) == {"paper", "default", "oracle"}
    assert set(data["regimes"]) == {"tool_3.7x", "tool_1x"}
    for regime in data["regimes"].values():
        assert regime["rollouts_per_arm"] >= 3
        for arm in ("paper", "default", "oracle"):
            assert regime["identical_to_sequential"][arm] == regime["rollouts_per_arm"]
        assert 0 <= regime["exact_frac"]["paper"] <= 1
        assert regime["hit_frac"]["oracle"] > 0.9
        assert {"ci", "gap_closed", "oracle_share", "p99_over_sequential"} <= set(regime)
    assert data["reduction"]["oracle"] > 0
    assert "Simulated" in (run / "latency.md").read_text()
    assert (run / "latency.png").stat().st_size > 10_000
    assert "oracle" in printed


def test_bench_regimes(service_file: Path, tmp_path: Path) -> None:
    data, printed, run = bench("regimes", service_file, tmp_path)
    assert data["worst_case"]["governed"] < data["worst_case"]["always"]
    assert set(data["validation"]["modes"]) == {"sequential", "paper", "default"}
    assert data["simulator_error"] < 0.5
    assert "simulated" in printed
    assert "assumed, not measured" in printed
    assert (run / "regimes-8b-latency.png").stat().st_size > 10_000
