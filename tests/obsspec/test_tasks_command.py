"""`obsspec tasks list`, `show` and `check` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.obsspec.command import assert_one_sentence, obsspec
from tests.tasks.harbor_tasks import make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good task, one with a warning, and one with two errors."""
    make(tmp_path / "tasks" / "good")
    make(tmp_path / "tasks" / "odd", {"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n"})
    make(tmp_path / "tasks" / "bad", {"task.toml": 'version = "1.0"\nagent = 3\n', "instruction.md": None})
    return tmp_path / "tasks"


def test_check_names_each_problem_in_a_line(folder: Path, tmp_path: Path) -> None:
    result = obsspec("tasks", "check", folder, "--json", tmp_path / "rows.json")
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "error bad/task.toml:2 has agent = 3: it must be a table",
        "error bad/instruction.md is missing: a task needs it (see the Harbor task format)",
        "warning odd/tests/test.sh:1 has no #! line: bash runs it; write #!/bin/bash",
        "3 tasks: 2 valid, 1 with errors, 1 with warnings",
    ]
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["task"], row["valid"]) for row in rows] == [("bad", False), ("good", True), ("odd", True)]
    assert rows[0]["problems"][0] == {
        "severity": "error",
        "where": "task.toml:2",
        "what": "has agent = 3: it must be a table",
    }


def test_check_of_valid_tasks(folder: Path, tmp_path: Path) -> None:
    result = obsspec("tasks", "check", folder / "good")
    assert (result.returncode, result.stdout) == (0, "1 task: 1 valid, 0 with errors, 0 with warnings\n")
    result = obsspec("tasks", "check", "families", "--limit", 2, "--cache", tmp_path / "cache")
    assert (result.returncode, result.stdout[:7]) == (0, "2 tasks")


def test_a_row_without_a_task_is_a_problem(tmp_path: Path) -> None:
    index = tmp_path / "index.jsonl"
    index.write_text('{"id": "none"}\n')
    result = obsspec("tasks", "check", index)
    assert result.returncode == 1
    assert f"error none {index}:1: names no task" in result.stdout


def test_list_shows_broken_tasks_too(folder: Path, tmp_path: Path) -> None:
    result = obsspec("tasks", "list", folder, "--json", tmp_path / "rows.json")
    assert result.returncode == 0, result.stderr
    bad, good, odd = json.loads((tmp_path / "rows.json").read_text())
    assert bad == {"task": "bad", "error": f"{folder}/bad/task.toml:2 has agent = 3: it must be a table"}
    assert (good["environment"], good["agent_timeout_s"], good["solution"]) == ("ubuntu:24.04", 300.0, True)
    assert odd["task"] == "odd"
    for text in ("good", "ubuntu:24.04", "300 s", "2048 MB", "has agent = 3"):
        assert text in result.stdout


def test_show_one_task(folder: Path) -> None:
    result = obsspec("tasks", "show", folder, "good")
    assert result.returncode == 0, result.stderr
    for text in ("Make the file result.", "agent 300 s", "memory 2048 MB", "ubuntu:24.04", "tests/test.sh"):
        assert text in result.stdout
    assert obsspec("tasks", "show", folder / "good").stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "nowhere"), "there is no nowhere: name a folder of tasks"),
        (("list", "family:none"), "there is no family 'none'"),
        (("show", "tasks"), "tasks holds several tasks: name one, such as bad"),
        (("show", "tasks", "other"), "there is no task 'other' in tasks"),
        (("show", "tasks", "bad"), "tasks/bad/task.toml:2 has agent = 3"),
        (("check", "tasks", "--json", "no/rows.json"), "a folder that exists"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], says: str, folder: Path) -> None:
    assert_one_sentence(obsspec("tasks", *arguments, cwd=folder.parent), says, status=2)
