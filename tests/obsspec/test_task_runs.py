"""`obsspec tasks build`, `run` and `determinism` as a user runs them, in 80 columns and without a network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.obsspec.command import assert_one_sentence, obsspec
from tests.tasks.harbor_tasks import make
from tests.tasks.layers import shared_layers
from tests.tasks.test_trials import TASK

LONG = "a reason that is longer than a line of a terminal has columns so that it would be cut"
REASON = f"RUN echo {LONG} >&2; exit 7"
KEYS = {"task", "built", "verified", "reward", "refused", "agent", "note"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task that is solved, one with a long name and no solution, and one that cannot be built."""
    make(tmp_path / "tasks" / "good", TASK)
    make(tmp_path / "tasks" / "a-task-whose-name-is-longer-than-most", {**TASK, "solution/solve.sh": None})
    make(tmp_path / "tasks" / "unbuilt", {**TASK, "environment/Dockerfile": f"FROM debian:12\n{REASON}\n"})
    return tmp_path / "tasks"


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    store = shared_layers(tmp_path_factory)
    return ["--set", f"store={store}", "--set", "build.network=false"]


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_run_prints_a_table_and_writes_a_row_a_task(
    folder: Path, settings: list[str], tmp_path: Path
) -> None:
    result = obsspec("tasks", "run", folder, *settings, "--json", tmp_path / "rows.json")
    assert (result.returncode, result.stderr) == (1, "")
    lines = [line.rstrip() for line in result.stdout.splitlines() if line.strip()]
    table = [line.split() for line in lines if line.startswith("  ")]
    assert [row[:2] for row in table if len(row) > 2] == [
        ["Task", "Reward"],
        ["a-task-whose-name-is-long", "0"],
        ["good", "1"],
        ["unbuilt", "refused"],
    ]
    assert all(len(line) <= 80 for line in lines if line.startswith("  "))
    assert lines[-4].startswith(f"refused {folder}/unbuilt/environment/Dockerfile line 2: RUN echo a reason")
    assert f" failed with exit code 7: {LONG} (without a network: the task allows none" in lines[-4]
    assert lines[-3] == (
        "note a-task-whose-name-is-longer-than-most: it has no solution/solve.sh: nothing was done"
    )
    assert lines[-2].startswith("note ubuntu:22.04 is served by this host's own system (")
    assert lines[-2].endswith("): 2 tasks")
    assert lines[-1] == "3 tasks: 2 built, 2 verified, 1 refused, mean reward 0.500 (noop 1, solution 1)."
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["task"], row["built"], row["verified"], row["reward"]) for row in rows] == [
        ("a-task-whose-name-is-longer-than-most", True, True, 0.0),
        ("good", True, True, 1.0),
        ("unbuilt", False, False, None),
    ]
    assert all(set(row) >= KEYS for row in rows)
    assert [bool(row["refused"]) for row in rows] == [False, False, True]


def test_run_of_tasks_that_all_work(folder: Path, settings: list[str]) -> None:
    result = obsspec("tasks", "run", folder / "good", *settings)
    assert (result.returncode, result.stderr) == (0, "")
    assert "1 task: 1 built, 1 verified, 0 refused, mean reward 1.000 (solution 1)." in result.stdout


def test_build_prints_what_was_built(folder: Path, settings: list[str], tmp_path: Path) -> None:
    result = obsspec("tasks", "build", folder, *settings, "--json", tmp_path / "rows.json")
    assert result.returncode == 1
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("  ") and line.strip()]
    assert [line[1] for line in lines] == ["Built", "yes", "yes", "refused"]
    assert "3 tasks: 2 built, 1 refused." in result.stdout
    assert [row["built"] for row in json.loads((tmp_path / "rows.json").read_text())] == [True, True, False]


def test_many_built_in_tasks_have_a_row_a_family(settings: list[str], tmp_path: Path) -> None:
    arguments = ["tasks", "run", "families", "--limit", 30, "--agent", "noop", "--cache", tmp_path / "cache"]
    result = obsspec(*arguments, *settings, "-j", 4)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("  ") and line.strip()]
    assert rows[0][:3] == ["Family", "Tasks", "Verified"]
    assert sum(int(row[1]) for row in rows[1:] if len(row) > 2) == 30
    assert "30 tasks: 30 built, 30 verified, 0 refused, mean reward 0.000 (noop 30)." in result.stdout


def test_determinism(settings: list[str], tmp_path: Path) -> None:
    arguments = ["tasks", "determinism", "family:csv_edit", "--limit", 2, "--pause", 0]
    result = obsspec(*arguments, *settings, "--cache", tmp_path / "cache", "--json", tmp_path / "found.json")
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["identical_frac"] == 1.0
    assert found["differences"] == []
    assert found["observations"] == found["identical"] > 0
    assert (
        f"{found['identical']} of {found['observations']} observations are identical (100.0%)."
        in result.stdout
    )


def test_determinism_of_tasks_without_experts_is_an_error(folder: Path, settings: list[str]) -> None:
    result = obsspec("tasks", "determinism", folder / "good", *settings)
    assert_one_sentence(result, "not every task could be compared: see above", status=2)
    assert "error good is no task of a built-in family, so it has no expert" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "parts", "status"),
    [
        (["run", "none"], ["there is no none: name a folder of tasks"], 2),
        (
            ["run", "families", "--agent", "expret"],
            ["there is no agent 'expret': take expert, solution, noop"],
            2,
        ),
        (["run", "families", "--set", "memory=1"], ["memory"], 2),
        (["build", "families", "--json", "/none/rows.json"], ["/none/rows.json: name a file in a folder"], 2),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], parts: list[str], status: int, tmp_path: Path
) -> None:
    assert_one_sentence(obsspec("tasks", *arguments, cwd=tmp_path), *parts, status=status)


def test_ctrl_c_ends_cleanly(tmp_path: Path, settings: list[str]) -> None:
    began = tmp_path / "tasks" / "slow" / "tests"
    make(
        tmp_path / "tasks" / "slow",
        {**TASK, "environment/Dockerfile": "FROM debian:12\nRUN : interrupted; sleep 60\n"},
    )
    assert began.is_dir()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "tasks", "run", str(tmp_path / "tasks"), *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode not in (0, -signal.SIGINT)
    assert "Traceback" not in errors
    store = Path(next(each for each in settings if each.startswith("store=")).removeprefix("store="))
    assert not [path for path in store.rglob("staging/*") if path.is_dir()]


INTERRUPTED = """
from obsspec.cli import main
from tasks.sandbox.namespace import NamespaceSandbox

run = NamespaceSandbox.run

async def told(self, argv, *arguments, **options):
    if "interrupted" in argv[-1]:
        print("begun", flush=True)
    return await run(self, argv, *arguments, **options)

NamespaceSandbox.run = told
main()
"""
