"""The local backend's own: it must be asked for, says what it cannot do, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tasks.sandbox.base import SandboxError
from tasks.sandbox.image import Base, Image
from tasks.sandbox.local import LocalSandbox
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "environment/files").mkdir(parents=True)
    (tmp_path / "environment/files/data").write_text("1")
    (tmp_path / "tests").mkdir()
    return Task("family/3", "family", "Do it.", tmp_path, verifier_timeout_s=10)


@pytest_asyncio.fixture
async def sandbox(task: Task) -> AsyncIterator[LocalSandbox]:
    async with LocalSandbox.for_task(task, trusted=True) as started:
        yield started


def test_it_must_be_asked_for_by_name(task: Task) -> None:
    for make in (lambda: LocalSandbox(SandboxSpec("x")), lambda: LocalSandbox.for_task(task)):
        with pytest.raises(SandboxError, match="would be local, which isolates nothing: say trusted=True"):
            make()


async def test_what_it_cannot_do_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="is local and has no image"):
        LocalSandbox(SandboxSpec("x", image=Image(Base(""))), trusted=True)
    with pytest.raises(SandboxError, match="is local and cannot run as root"):
        await sandbox.run(["true"], 1, user="root")
    with pytest.raises(SandboxError, match="is local and cannot give files to root"):
        await sandbox.upload(tmp_path, "x", "root")


async def test_commands_see_a_fixed_environment_and_no_other(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    result = await sandbox.exec("cat data; pwd; echo $HOME $SECRET $OLDPWD $TZ; umask")
    assert result.stdout.decode() == f"1{sandbox.folder}\n{sandbox.folder} UTC\n0022\n"


async def test_nothing_is_left_behind(task: Task) -> None:
    sandbox = LocalSandbox.for_task(task, trusted=True)
    await sandbox.start()
    await sandbox.exec("setsid sleep 61 & echo $!; sleep 62 & echo $!")
    pids = (await sandbox.exec("env -i setsid sleep 63 & echo $!; jobs -p")).stdout.split()
    snapshot = await sandbox.snapshot()
    before = len(os.listdir("/proc/self/fd"))
    await sandbox.stop()
    assert not os.path.exists(sandbox.folder)
    assert not os.path.exists(snapshot.name)
    assert len(pids) == 4
    for pid in pids:
        try:
            state = Path(f"/proc/{pid.decode()}/stat").read_text().rpartition(") ")[2][0]
        except FileNotFoundError:
            continue
        assert state == "Z"  # where nobody collects orphans
    assert len(os.listdir("/proc/self/fd")) < before


async def test_tests_that_ask_where_things_are_give_a_reward(sandbox: LocalSandbox, task: Task) -> None:
    (task.tests / "expected").write_text("1")
    (task.tests / "test.sh").write_text(
        'cmp data "${TESTS:-/tests}/expected" && [ "$mine$given" = x ]\n'
        'echo "0.$?5" > "${LOGS:-/logs}/verifier/reward.txt"\n'
    )
    await sandbox.exec("export mine=1; cd /")
    given = Task(**{**task.__dict__, "verifier_env": {"given": "x"}})
    assert await sandbox.verify(given) == 0.05
    (task.tests / "expected").write_text("2")
    assert await sandbox.verify(given) == 0.15


@pytest.mark.parametrize(
    "line", ["cat /tests/x", "echo 1 > /logs/verifier/reward.txt", "cd /work", "x='/work'"]
)
async def test_tests_that_name_fixed_folders_are_refused(
    line: str, sandbox: LocalSandbox, task: Task
) -> None:
    (task.tests / "test.sh").write_text(f"# first\n{line}\n")
    with pytest.raises(
        SandboxError, match=r"cannot be verified: line 2 of tests/test.sh names /(tests|logs|work),"
    ):
        await sandbox.verify(task)


async def test_words_that_only_look_like_those_folders_are_not(sandbox: LocalSandbox, task: Task) -> None:
    script = "ls ./tests src/logs /workshop /tests-2 2>/dev/null; echo 1 > $LOGS/verifier/reward.txt"
    (task.tests / "test.sh").write_text(script)
    assert await sandbox.verify(task) == 1.0


async def test_no_verdict_is_an_error(sandbox: LocalSandbox, task: Task) -> None:
    (task.tests / "test.sh").write_text("echo the reason; exit 3")
    with pytest.raises(SandboxError, match=r"family/3 has no verdict: .*exit code 3, last line: the reason"):
        await sandbox.verify(task)
    (task.tests / "test.sh").write_text("sleep 61")
    with pytest.raises(SandboxError, match=r"family/3 was not verified within 0.2 s"):
        await sandbox.verify(Task(**{**task.__dict__, "verifier_timeout_s": 0.2}))
