"""`obsspec bench regimes`: cells and figures, pictures, report, and the command itself, all in simulation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from obsspec.bench import regimes, regimes_report
from obsspec.bench.regimes_cells import (
    ACCURACY,
    ALONE,
    ALWAYS,
    ARMS,
    GOVERNED,
    RATIO,
    SPEED,
    Cell,
    Size,
    measure,
    slowdown,
)
from obsspec.bench.regimes_real import COMPARED, RealSize, Recorded, Validation, record, validate
from obsspec.errors import ProcessError
from orchestrator.schema import PRESETS, Rollout, RolloutRequest
from orchestrator.seeds import derive
from orchestrator.simulation.hardware import H100_8B, TINY
from orchestrator.simulation.play import play
from orchestrator.simulation.replay import Compared
from orchestrator.simulation.workload import Workload
from tests.obsspec.command import assert_one_sentence, obsspec

SIZE = Size(
    hardware=("8b",),
    concurrency=(1, 8),
    maps={RATIO: (0.1, 1), ACCURACY: (0, 1)},
    rollouts_per_slot=1,
    least_rollouts=16,
    turns=3,
)
COMPARISON = Validation(TINY.engines, {"sequential": Compared(8, 3.0, 3.03), "paper": Compared(8, 2.5, 2.4)})


@pytest.fixture(scope="module")
def cells() -> list[dict[str, object]]:
    return [measure(cell, SIZE) for cell in SIZE.cells()]


def test_every_map_is_a_whole_grid() -> None:
    found = SIZE.cells()
    assert len(found) == len(set(found)) == 8
    assert {(cell.varied, cell.value, cell.concurrency) for cell in found} == {
        (varied, value, concurrency)
        for varied, values in SIZE.maps.items()
        for value in values
        for concurrency in SIZE.concurrency
    }


def test_a_cell_varies_one_figure() -> None:
    def study(varied: str, value: float) -> tuple[float, float, float]:
        each = Cell("8b", varied, value, 4).study(SIZE)
        return each.workload.tool_s, each.workload.accuracy, each.engines.world_model.step_s

    tool_s, accuracy, step_s = study(RATIO, 1)
    assert (accuracy, step_s) == (0.65, H100_8B.engines.world_model.step_s)
    assert study(RATIO, 10) == (pytest.approx(10 * tool_s), accuracy, step_s)
    assert study(ACCURACY, 0.2) == (tool_s, 0.2, step_s)
    assert study(SPEED, 5) == (tool_s, accuracy, pytest.approx(H100_8B.engines.policy.step_s / 5))


def test_a_cell_has_the_figures_of_every_arm() -> None:
    cell = measure(Cell("8b", ACCURACY, 1, 1), SIZE)
    assert set(cell["agent_latency_s"]) == set(ARMS)
    assert cell["rollouts"] == 16
    saved = cell[ALWAYS]
    assert saved["latency_saved"] == -slowdown(cell, ALWAYS)
    assert saved["latency_saved"] == pytest.approx(
        1 - cell["agent_latency_s"][ALWAYS] / cell["agent_latency_s"]["sequential"]
    )
    low, high = saved["latency_saved_ci"]
    assert 0.1 < low < saved["latency_saved"] < high < 0.5
    assert saved["hit_frac"] > 0.95
    assert cell[GOVERNED]["latency_saved"] > saved["latency_saved"]
    wrong = measure(Cell("8b", ACCURACY, 0, 8), SIZE)
    assert wrong[ALWAYS]["hit_frac"] == 0
    assert wrong[ALWAYS]["discarded_policy_tokens"] > 0
    assert slowdown(wrong, ALWAYS) > 0.02 > slowdown(wrong, ALONE)


def test_the_result_names_the_worst_and_what_is_simulated(cells: list[dict[str, object]]) -> None:
    data = regimes_report.result(cells, SIZE, COMPARISON, quick=True)
    worst = data["worst_case"]
    assert worst["always"] == max(slowdown(cell, ALWAYS) for cell in cells)
    assert worst["governed"] == max(slowdown(cell, arm) for cell in cells for arm in (ALONE, GOVERNED))
    where = data["worst_cases"][ALWAYS]
    assert (where["concurrency"], where["varied"], where["value"]) == (8, ACCURACY, 0)
    assert where["ci"][0] <= where["slower"] <= where["ci"][1]
    assert data["simulator_error"] == pytest.approx(0.04)
    assert "simulated" in data["simulated"]
    assert "assumed, not measured" in data["parameters"]["hardware"]["8b"]["basis"]


def test_the_report_and_pictures_say_that_they_are_simulated(
    cells: list[dict[str, object]], tmp_path: Path
) -> None:
    data = regimes_report.result(cells, SIZE, COMPARISON, quick=True)
    regimes.write(data, tmp_path, tmp_path / "copy.json")
    text = (tmp_path / "regimes.json").read_text()
    assert text == (tmp_path / "copy.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(data))
    page = (tmp_path / "regimes.md").read_text()
    assert page.startswith("# Regimes, simulated")
    assert "Worst of always (paper)" in page
    assert "| paper | 2.50 s | 2.40 s | -4.0% |" in page
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"regimes-8b-latency.png", "regimes-8b-throughput.png"}
    for picture in pictures:
        assert f"![{picture}]({picture})" in page
        assert (tmp_path / picture).stat().st_size > 10_000


class StubService:
    """The simulator in place of a service with real engines: each request runs by itself."""

    def __init__(self, concurrency: int):
        self.concurrency = concurrency
        self.scopes: set[str] = set()
        self._requests: list[RolloutRequest] = []

    async def submit(self, request: RolloutRequest) -> list[str]:
        self._requests.append(request)
        number = len(self._requests) - 1
        return [f"{number}/{i}" for i in range(len(request.tasks) * request.n)]

    async def completed(self, ids: Sequence[str], *, trajectory: bool) -> AsyncGenerator[Rollout]:
        assert trajectory
        rollouts = await asyncio.to_thread(self._run, self._requests[int(ids[0].partition("/")[0])])
        for rollout_id, rollout in reversed(list(zip(ids, rollouts, strict=True))):
            yield rollout.model_copy(update={"id": rollout_id})

    def _run(self, request: RolloutRequest) -> list[Rollout]:
        assert request.speculation is not None
        settings = request.speculation.resolve(PRESETS["default"])
        self.scopes.add(settings.scope)
        plans = [
            replace(plan, task=task, seed=request.seed + i)
            for task in request.tasks
            for i, plan in enumerate(Workload(tasks=1, group=request.n, seed=derive(task), **SHORT).plans())
        ]
        return list(play(plans, settings, TINY.engines, self.concurrency, trajectories=True).rollouts)


SHORT: dict[str, Any] = {"turns": 4, "action_tokens": 25, "observation_tokens": 15, "tool_s": 0.4}
SMALL = RealSize(alone=3, loaded=8, groups=2)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    service = StubService(4)
    run = asyncio.run(record(service, 4, SMALL, Console(quiet=True)))  # type: ignore[arg-type]
    assert {f"1000/{preset}" for preset in COMPARED} < service.scopes
    return run


def test_the_same_rollouts_are_run_in_every_mode(recorded: Recorded) -> None:
    runs = {mode: [(r.task, r.seed) for r in rollouts] for mode, rollouts in recorded.runs.items()}
    assert list(runs) == list(COMPARED)
    assert all(run == runs["sequential"] for run in runs.values())
    assert len(set(runs["sequential"])) == SMALL.groups * 4
    calibrated = {r.task for r in (*recorded.calibration.alone, *recorded.calibration.paper)}
    assert len(calibrated) == SMALL.alone + SMALL.loaded
    assert not calibrated & {task for task, _ in runs["sequential"]}


def test_the_simulator_is_compared_with_what_was_recorded(
    cells: list[dict[str, object]], recorded: Recorded
) -> None:
    validation = validate(recorded)
    assert set(validation.compared) == set(COMPARED)
    assert validation.error < 0.05
    data = regimes_report.result(cells, SIZE, validation, quick=False)
    assert data["simulator_error"] == validation.error
    assert data["validation"]["modes"]["paper"]["rollouts"] == 8
    assert "The simulator beside real engines" in regimes_report.markdown(data, [])
    assert len(list(regimes_report.tables(data))) == 2


def test_too_few_rollouts_are_one_sentence(recorded: Recorded) -> None:
    with pytest.raises(ProcessError, match="too few to fit an engine to"):
        validate(replace(recorded, calibration=replace(recorded.calibration, alone=[])))


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = obsspec("bench", "regimes", "--quick", "--runs", tmp_path / "file")
    assert_one_sentence(result, "--runs", "cannot make a folder there", status=2)
    result = obsspec("bench", "regimes", "--quick", "--json", tmp_path / "none" / "file.json")
    assert_one_sentence(result, "--json", "name a file in a folder that exists", status=2)
