"""Task directories: what is written reads back, and each defect gets a sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.families.base import Expert, GeneratedTask, Step
from tasks.harbor import load_task, write_task
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.task import TaskError


def expert() -> Expert:
    yield Step("I make it.", "echo made > result")


TASK = GeneratedTask(
    family="making",
    seed=7,
    instruction="Make the file result.",
    files={"notes/a.txt": "größe\n", "run.sh": "#!/bin/bash\necho ran\n"},
    test_sh='[ "$(cat result)" = made ]\n[ -s setup.txt ]\n',
    expert=expert,
    setup_sh="date +%Z > setup.txt\n",
    executable=frozenset({"run.sh"}),
)


def test_a_written_task_reads_back(tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path)
    task = load_task(path)
    assert path == tmp_path / "making" / "7"
    assert (task.id, task.family, task.instruction) == ("making/7", "making", "Make the file result.")
    assert (task.agent_timeout_s, task.verifier_timeout_s, task.memory_mb) == (120.0, 30.0, 512)
    assert task.metadata["seed"] == 7
    assert task.setup == path / "environment" / "setup.sh"
    assert (task.files / "notes/a.txt").read_text() == "größe\n"
    assert (task.files / "run.sh").stat().st_mode & 0o777 == 0o755


def test_writing_again_replaces_the_whole(tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path)
    (path / "environment/files/stale").touch()
    assert write_task(dataclasses.replace(TASK, setup_sh=None, executable=frozenset()), tmp_path) == path
    assert not (path / "environment/files/stale").exists()
    assert load_task(path).setup is None
    assert [child.name for child in path.parent.iterdir()] == ["7"]


async def test_the_checks_decide_the_reward(tmp_path: Path) -> None:
    task = load_task(write_task(TASK, tmp_path))
    for command, reward in (("true", 0.0), ("echo wrong > result", 0.0), ("echo made > result", 1.0)):
        async with NamespaceSandbox.for_task(task) as sandbox:
            assert (await sandbox.exec("./run.sh && cat setup.txt")).stdout == b"ran\nUTC\n"
            await sandbox.exec(command)
            assert await sandbox.verify(task.tests, task.verifier_timeout_s) == reward


PLANT = "echo 1 > /logs/verifier/reward.txt; chmod 400 /logs/verifier/reward.txt"


@pytest.mark.parametrize(
    ("script", "reward"),
    [
        (PLANT, 0.0),
        (f"{PLANT}; chmod 500 /logs/verifier /logs", 0.0),
        ("mkdir -p /logs/verifier/reward.txt/x; chmod 0 /logs/verifier/reward.txt", 0.0),
        (
            f"setsid bash -c 'while :; do rm -f /logs/verifier/reward.txt; {PLANT}; done' > /dev/null 2>&1 &",
            0.0,
        ),
        ("echo 'echo 1 > /logs/verifier/reward.txt' | tee -a /tests/*.sh", 0.0),
        (": > /tests/check.sh", 0.0),
        (f"{PLANT}; for p in /proc/[0-9]*; do prlimit --pid ${{p#/proc/}} --nproc=1; done", 0.0),
        (f"{PLANT}; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || kill -9 ${{p#/proc/}}; done", None),
    ],
)
async def test_what_a_check_runs_of_the_agents_work_gives_no_reward(
    script: str, reward: float | None, tmp_path: Path
) -> None:
    generated = dataclasses.replace(TASK, test_sh="bash mine.sh\nfalse\n")
    task = load_task(write_task(generated, tmp_path))
    async with NamespaceSandbox.for_task(task) as sandbox:
        await sandbox.write("/work/mine.sh", script.encode())
        if reward is None:
            with pytest.raises(SandboxError, match="has no verdict"):
                await sandbox.verify(task.tests, task.verifier_timeout_s)
        else:
            assert await sandbox.verify(task.tests, task.verifier_timeout_s) == reward


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../x": ""}},
        {"files": {"/etc/x": ""}},
        {"executable": frozenset({"missing"})},
    ],
)
def test_a_task_that_cannot_be_written_leaves_nothing(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="making/7"):
        write_task(dataclasses.replace(TASK, **change), tmp_path)  # type: ignore[arg-type]
    assert list((tmp_path / "making").iterdir()) == []


def edit(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(text)


def append(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text((path / name).read_text() + text)


def remove(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).rename(path.parent / "elsewhere")


def folder(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (remove("task.toml"), r"task.toml is missing"),
        (remove("instruction.md"), r"instruction.md is missing"),
        (remove("tests/test.sh"), r"tests/test.sh is missing"),
        (remove("tests"), r"tests/test.sh is missing"),
        (remove("environment"), r"Dockerfile is missing"),
        (remove("environment/files"), r"files is missing"),
        (edit("instruction.md", " \n"), r"instruction.md is empty"),
        (folder("instruction.md"), r"instruction.md is a folder"),
        (folder("environment/setup.sh"), r"setup.sh is a folder"),
        (lambda path: (path / "instruction.md").write_bytes(b"\xff"), r"not UTF-8"),
        (edit("task.toml", "= 3"), r"task.toml is not valid TOML .*line 1"),
        (edit("task.toml", "agent = 3"), r"agent must be a table, not 3"),
        (
            edit("task.toml", '[agent]\ntimeout_sec = "60"'),
            r"agent.timeout_sec must be a number above 0, not '60'",
        ),
        (edit("task.toml", "[agent]\ntimeout_sec = true"), r"agent.timeout_sec must be a number above 0"),
        (
            edit("task.toml", "[verifier]\ntimeout_sec = 0"),
            r"verifier.timeout_sec must be a number above 0, not 0",
        ),
        (
            edit("task.toml", "[verifier]\ntimeout_sec = inf"),
            r"verifier.timeout_sec must be a number above 0",
        ),
        (edit("task.toml", "[environment]\nmemory_mb = []"), r"environment.memory_mb must be a number"),
        (edit("task.toml", '[environment]\nmemory = "much"'), r"environment.memory must be like"),
        (edit("task.toml", "[metadata]\nfamily = 3"), r"metadata.family must be a string"),
        (
            append("environment/Dockerfile", "RUN pip install numpy"),
            r"'RUN pip install numpy' is not supported yet",
        ),
        (edit("environment/Dockerfile", "FROM ubuntu:24.04"), r"'FROM ubuntu:24.04' is not supported yet"),
        (
            edit("environment/Dockerfile", "FROM debian:12-slim"),
            r"an instruction is missing: the only form is",
        ),
        (remove("environment/setup.sh"), r"'COPY setup.sh /tmp/setup.sh' is not supported yet"),
    ],
)
def test_each_defect_gets_a_sentence(change: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path)
    change(path)
    with pytest.raises(TaskError, match=says) as error:
        load_task(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is not a folder"):
        load_task(tmp_path / "nowhere")


def test_a_directory_made_elsewhere_needs_no_metadata(tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path / "tasks")
    (path / "task.toml").write_text('version = "1.0"\n[environment]\nmemory = "2G"\n')
    text = (path / "environment/Dockerfile").read_text()
    (path / "environment/Dockerfile").write_text(
        "# made by hand\n\n" + text.replace("WORKDIR ", "WORKDIR   ")
    )
    task = load_task(path)
    assert (task.id, task.family, task.memory_mb) == ("making/7", "making", 2048)
