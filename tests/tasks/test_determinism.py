"""Determinism: an expert's commands, run twice in fresh sandboxes, show the same; what differs is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks import determinism
from tasks.determinism import Comparison, Difference, compare
from tasks.families import FAMILIES, GeneratedTask
from tasks.families.base import Expert, Step
from tasks.sources import open_source
from tasks.task import Task
from tasks.worlds import Worlds
from tests.tasks.harbor_tasks import make


def scripted(monkeypatch: pytest.MonkeyPatch, *commands: str) -> None:
    """Any task's expert runs these commands."""

    def expert() -> Expert:
        for command in commands:
            yield Step("Go on.", command)
        yield Step("Done.", None)

    def generated(task: Task) -> GeneratedTask:
        return replace(FAMILIES["csv_edit"].generate(0), expert=expert)

    monkeypatch.setattr(determinism, "generated", generated)


async def compared(tmp_path: Path, task_id: str = "csv_edit/0", pause_s: float = 0.0) -> Comparison:
    return await compare(open_source("families", tmp_path), task_id, Worlds(), pause_s)


@pytest.mark.parametrize("family", ["csv_edit", "git_history", "index_check", "log_count"])
async def test_experts_see_the_same_twice(family: str, tmp_path: Path) -> None:
    found = await compared(tmp_path, f"{family}/3")
    assert found.error is None
    assert found.observations > 0
    assert found.differences == ()
    assert found.identical == found.observations


async def test_what_differs_is_told_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(
        monkeypatch, "echo same", "echo head; cat /proc/sys/kernel/random/uuid; echo tail", "echo $$ $PWD"
    )
    found = await compared(tmp_path)
    assert (found.observations, found.identical, found.error) == (3, 2, None)
    (difference,) = found.differences
    assert difference.command == "echo head; cat /proc/sys/kernel/random/uuid; echo tail"
    first, second = difference.first.splitlines()[1], difference.second.splitlines()[1]
    assert first != second
    assert difference.how.splitlines() == [f"-{first}", f"+{second}"]


async def test_the_clock_moves_on_between_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "date +%s")
    assert (await compared(tmp_path, pause_s=1.1)).identical == 0


@pytest.mark.parametrize(
    "command",
    [
        "env | sort",
        "id; hostname; umask; locale; date +%Z; tty; stty size",
        "ps -ef | awk '{print $2, $3, $8}'",
        "sleep 5 & echo $!; sh -c 'echo $$'",
        "mkdir d; touch d/{a,b,c}; ls -laiU d | awk '{print $2, $NF}'; find d; echo d/*",
        'python3 -c \'print(hash("a"), {"a", "b", "c"})\'',
        "git init -q g && cd g && git commit -q --allow-empty -m m && git rev-parse HEAD; cd ..",
        "ls -l --time-style=full-iso",
        "df -h / | tail -1; free -m | head -1; nproc",
        "no-such-command; cat no-such-file; false",
    ],
)
async def test_the_world_is_the_same_each_time(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, command)
    found = await compared(tmp_path)
    assert [difference.how for difference in found.differences] == []
    assert found.observations == 1


async def test_a_task_without_an_expert_is_not_compared(tmp_path: Path) -> None:
    make(tmp_path / "other")
    found = await compare(open_source(str(tmp_path), tmp_path), "other", Worlds())
    assert found.error is not None
    assert "is no task of a built-in family, so it has no expert" in found.error


def test_how_two_observations_differ() -> None:
    assert Difference("t", "c", "a\nb\nc", "a\nx\nc").how == "-b\n+x"
    assert Difference("t", "c", "a", "a\nb").how == "+b"
