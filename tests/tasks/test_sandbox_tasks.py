"""A task in a sandbox: its files, its setup script, its hidden tests and their verdict.

These are tasks as the built-in families make them: their tests run as root, beside nobody.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.task import Task

PASS = "echo 1 > /logs/verifier/reward.txt"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "environment/files/sub/empty").mkdir(parents=True)
    (tmp_path / "environment/files/run.sh").write_text("#!/bin/bash\necho ran\n")
    (tmp_path / "environment/files/run.sh").chmod(0o700)
    (tmp_path / "environment/files/sub/.hidden").write_bytes(b"\0\xff")
    (tmp_path / "environment/files/link").symlink_to("sub/.hidden")
    (tmp_path / "tests").mkdir()
    return Task(
        "family/3",
        "family",
        "Do it.",
        tmp_path,
        memory_mb=256,
        verifier_user="root",
        verifier_timeout_s=10,
        settings={"verifier": {"end_processes": True}},
    )


def verifier(task: Task, script: str, **changes: Any) -> Task:
    """The task with this test.sh."""
    (task.tests / "test.sh").write_text(script)
    return replace(task, **changes)


async def test_the_files_are_there_and_equal_each_time(task: Task) -> None:
    async with NamespaceSandbox.for_task(task) as sandbox:
        result = await sandbox.exec("./run.sh; find . -printf '%p %m %u %TY %l\\n'")
        assert result.stdout.decode().splitlines() == [
            "ran",
            ". 755 agent 2024 ",
            "./link 777 agent 2024 sub/.hidden",
            "./run.sh 755 agent 2024 ",
            "./sub 755 agent 2024 ",
            "./sub/.hidden 644 agent 2024 ",
            "./sub/empty 755 agent 2024 ",
        ]
        assert await sandbox.read("/work/sub/.hidden") == b"\0\xff"
        assert sandbox.limits.memory_mb == 256


async def test_files_that_cannot_be_copied_are_an_error(task: Task) -> None:
    (task.files / "big").write_bytes(b"x" * 3_000_000)
    with pytest.raises(SandboxError, match=r"family/3: .*: No space left on device"):
        await NamespaceSandbox.for_task(task, SandboxLimits(disk_mb=2)).start()


async def test_tests_that_cannot_be_read_are_an_error(task: Task) -> None:
    async with NamespaceSandbox.for_task(task) as sandbox:
        with pytest.raises(SandboxError, match=r"nowhere.* cannot be read: No such file"):
            await sandbox.verify(replace(task, path=task.path / "nowhere"))


async def test_the_setup_script_runs_once_in_the_work_folder(task: Task) -> None:
    (task.path / "environment/setup.sh").write_text("pwd >> log; it=lost\n")
    async with NamespaceSandbox.for_task(task) as sandbox:
        assert (await sandbox.exec("cat log; echo [$it]")).stdout == b"/work\n[]\n"


async def test_a_setup_script_that_fails_names_the_task_and_the_reason(task: Task) -> None:
    (task.path / "environment/setup.sh").write_text("echo fine\necho the reason >&2\nexit 4\n")
    sandbox = NamespaceSandbox.for_task(task)
    with pytest.raises(SandboxError, match=r"family/3 failed in .*setup.sh with exit code 4: the reason$"):
        await sandbox.start()
    with pytest.raises(SandboxError, match="is not running"):
        await sandbox.exec("true")


async def test_the_tests_are_hidden_until_the_agent_is_done(task: Task) -> None:
    hidden = verifier(task, f"grep -q answer /tests/expected && {PASS}")
    (task.tests / "expected").write_text("answer")
    async with NamespaceSandbox.for_task(task) as sandbox:
        result = await sandbox.exec(
            "cat /tests/* /tests/.* 2>/dev/null; ls -A /tests /logs; grep -r answer /proc/*/fd"
        )
        assert b"answer" not in result.stdout
        assert b"expected" not in result.stdout
        assert await sandbox.verify(hidden) == 1.0


async def test_what_the_agent_left_running_does_not_see_the_tests(task: Task) -> None:
    hidden = verifier(task, f"[ ! -e /work/seen ] && ! pgrep -f '^sleep 77' && {PASS}")
    async with NamespaceSandbox.for_task(task) as sandbox:
        watch = "until [ -e /tests/test.sh ]; do sleep 0.01; done; cp /tests/test.sh /work/seen"
        await sandbox.exec(f"({watch}) & setsid bash -c '{watch}' & sleep 77 &")
        assert await sandbox.verify(hidden) == 1.0


async def test_the_verifier_has_its_own_shell_and_limit(task: Task) -> None:
    hidden = verifier(
        task, f'sleep 0.5; [ "$PWD" = /work ] && [ -z "$mine" ] && [ "$(type -t ls)" = file ] && {PASS}'
    )
    async with NamespaceSandbox.for_task(task, SandboxLimits(command_timeout_s=0.2)) as sandbox:
        await sandbox.exec(
            "export mine=1; ls() { :; }; export -f ls; cd /tmp; bash() { exit 0; }; export -f bash"
        )
        assert await sandbox.verify(hidden) == 1.0


@pytest.mark.parametrize(
    "trick",
    [
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
        "mkdir -p /logs/verifier/reward.txt; chmod 0 /logs/verifier",
        "ln -s /work /logs/verifier; echo 1 > /work/reward.txt",
        "mkfifo /tests/test.sh; mkdir -p '/tests/a b/.c'; chmod 0 '/tests/a b/.c' '/tests/a b'",
        "ln -s /work/mine.sh /tests/test.sh; echo 'echo 1 > /logs/verifier/reward.txt' > /work/mine.sh",
        "chmod 0 /tests /logs /work",
        "mkdir /logs/verifier; cd /logs/verifier; echo 1 > reward.txt; chmod 400 reward.txt; chmod 0 .",
        "mkdir /logs/verifier; echo 1 > /logs/verifier/reward.txt; prlimit --pid 1 --nproc=1 --cpu=1",
        "(while :; do echo 1 > /logs/verifier/reward.txt; done) & disown",
        "head -c 70000000 /dev/zero > /work/full; head -c 70000000 /dev/zero > /tmp/full",
        "kill -9 $$",
        "while :; do :; done",
    ],
)
async def test_an_agent_cannot_give_itself_a_reward(trick: str, task: Task) -> None:
    hidden = verifier(task, "echo 0 > /logs/verifier/reward.txt")
    async with NamespaceSandbox.for_task(task) as sandbox:
        await sandbox.exec(trick, 0.5)
        assert await sandbox.verify(hidden) == 0.0


@pytest.mark.parametrize(
    ("script", "reward"),
    [
        ("echo 0.25 > /logs/verifier/reward.txt", 0.25),
        ("""echo '{"reward": 0.5, "more": 1}' > /logs/verifier/reward.json""", 0.5),
        ("echo 1 > /logs/verifier/reward.txt; exit 3", 1.0),
        ("echo 0 > /logs/verifier/reward.txt; sleep 60 &", 0.0),
    ],
)
async def test_the_verdict_is_the_reward_file(script: str, reward: float, task: Task) -> None:
    async with NamespaceSandbox.for_task(task) as sandbox:
        assert await sandbox.verify(verifier(task, script)) == reward


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "echo the reason >&2; exit 3",
        "exit 0; (",
        "echo good > /logs/verifier/reward.txt",
        "echo nan > /logs/verifier/reward.txt",
        "echo 1.5 > /logs/verifier/reward.txt",
        "echo '[1]' > /logs/verifier/reward.json",
        "echo '{}' > /logs/verifier/reward.json",
        """printf '{"reward": 1%0400d}' 0 > /logs/verifier/reward.json""",
        "printf '\\377' > /logs/verifier/reward.txt",
        "ln -s /work/run.sh /logs/verifier/reward.txt",
        "kill -9 0",
    ],
)
async def test_no_valid_verdict_is_an_error_and_not_a_reward(script: str, task: Task) -> None:
    async with NamespaceSandbox.for_task(task) as sandbox:
        with pytest.raises(SandboxError, match=r"family/3 has no verdict: tests/test.sh must write"):
            await sandbox.verify(verifier(task, script))


async def test_a_verifier_that_does_not_end_is_an_error(task: Task) -> None:
    async with NamespaceSandbox.for_task(task) as sandbox:
        with pytest.raises(SandboxError, match=r"family/3 was not verified within 0.3 s"):
            await sandbox.verify(verifier(task, f"{PASS}; sleep 60", verifier_timeout_s=0.3))
        assert (await sandbox.exec("pgrep -cf '^sleep 60'")).stdout == b"0\n"
