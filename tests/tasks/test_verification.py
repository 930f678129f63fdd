"""Verification: what counts as a verdict, who runs the tests, and that a verifier that cannot run is no 0."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.config import BuildConfig, SandboxConfig
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task
from tasks.verifier import runner
from tasks.worlds import Worlds
from tests.tasks.layers import shared_layers

LOGS = "/logs/verifier"
root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandboxes may have one user")
Equipment = Callable[[], Awaitable[bytes | None]]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "tests").mkdir()
    return Task("the/task", "the", "Do it.", tmp_path, verifier_timeout_s=20)


async def verified(
    task: Task,
    test_sh: str,
    before: str = "true",
    tools: Equipment | None = None,
    variables: dict[str, str] | None = None,
) -> float:
    """The reward of a task whose agent has run one command."""
    (task.tests / "test.sh").write_text(test_sh)
    spec = SandboxSpec(task.id, runner=tools, variables=variables or {})
    async with NamespaceSandbox(spec) as sandbox:
        await sandbox.exec(before)
        return await sandbox.verify(task)


async def stand_ins() -> bytes:
    """The programs, and a pytest of three lines."""
    buffer = io.BytesIO(runner.programs())
    main = b"import runpy, sys; del sys.argv[0]; sys.argv[:] = [a for a in sys.argv if a[0] != '-']; "
    main += b"runpy.run_path(sys.argv[0], run_name='__main__')"
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        for name, data in {"pytest/__main__.py": main, "pytest-8.4.1.dist-info/METADATA": b""}.items():
            info = tarfile.TarInfo(f"{runner.SITE}/{name}".lstrip("/"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


UVX = f"""\
#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx --python 3.12 --with pytest==8.4.1 pytest /tests/test_it.py -v
if [ $? -eq 0 ]; then echo 1 > {LOGS}/reward.txt; else echo 0 > {LOGS}/reward.txt; fi
"""


@pytest.mark.parametrize(
    ("script", "reward"),
    [
        (f"echo 1 > {LOGS}/reward.txt", 1.0),
        (f"echo 0.5 > {LOGS}/reward.txt; exit 1", 0.5),
        (f"""echo '{{"reward": 0.25}}' > {LOGS}/reward.json""", 0.25),
        (f"""echo 1 > {LOGS}/reward.txt; echo '{{"reward": 0}}' > {LOGS}/reward.json""", 0.0),
    ],
)
async def test_the_reward_is_what_the_tests_write(task: Task, script: str, reward: float) -> None:
    assert await verified(task, script) == reward


@pytest.mark.parametrize(
    "script",
    [
        "true",
        f"echo nan > {LOGS}/reward.txt",
        f"echo inf > {LOGS}/reward.txt",
        f"echo -1 > {LOGS}/reward.txt",
        f"echo 2 > {LOGS}/reward.txt",
        f"echo > {LOGS}/reward.txt",
        f"""echo 1 > {LOGS}/reward.txt; echo '{{"reward": "x"}}' > {LOGS}/reward.json""",
        f"mkdir {LOGS}/reward.txt",
        f"echo 1 > {LOGS}/reward.txt; kill -9 $$",
    ],
)
async def test_no_number_from_0_to_1_is_an_error(task: Task, script: str) -> None:
    with pytest.raises(
        SandboxError, match=r"the/task has no verdict: tests/test\.sh must write a number from 0"
    ):
        await verified(task, script)


async def test_the_error_says_how_it_ended(task: Task) -> None:
    with pytest.raises(SandboxError, match=r"\(exit code 3, last line: the reason\)$"):
        await verified(task, "echo said; echo the reason >&2; exit 3")


async def test_a_verifier_has_its_own_limit(task: Task) -> None:
    with pytest.raises(SandboxError, match=r"not verified within 0\.5 s: raise \[verifier\] timeout_sec"):
        await verified(replace(task, verifier_timeout_s=0.5), f"echo 1 > {LOGS}/reward.txt; sleep 30")


@root
@pytest.mark.parametrize("user", ["root", "agent", "1234", None])
async def test_the_verifier_is_the_user_that_the_task_names(task: Task, user: str | None) -> None:
    expected = {"root": "0", "agent": "1000", None: "1000"}.get(user, user)
    script = f"[ $(id -u) = {expected} ] && [ $PWD = /work ] && echo 1 > {LOGS}/reward.txt"
    assert await verified(replace(task, verifier_user=user), script) == 1.0


async def test_variables_of_the_verifier(task: Task) -> None:
    task = replace(task, verifier_env={"A": "as it is", "B": "${GIVEN}", "C": "${MISSING:-else}"})
    script = f'[ "$A/$B/$C" = "as it is/given/else" ] && echo 1 > {LOGS}/reward.txt'
    assert await verified(task, script, variables={"GIVEN": "given"}) == 1.0
    with pytest.raises(
        SandboxError, match=r"the/task cannot be verified: B = '\$\{GIVEN\}' needs the variable GIVEN"
    ):
        await verified(task, script)


async def test_what_agents_left_in_the_way_is_gone(task: Task) -> None:
    script = f"[ ! -e {runner.SITE}/mine.py ] && [ ! -e /tests/mine ] && uvx pytest /tests/test_it.py"
    script += f" && echo 1 > {LOGS}/reward.txt"
    (task.tests / "test_it.py").write_text("print('ran')")
    for before in (
        f"mkdir -p {runner.SITE} /tests; touch {runner.SITE}/mine.py /tests/mine; echo > {runner.FOLDER}/uvx",
        f"mkdir /tmp/mine; mkdir -p /opt; ln -s /tmp/mine {runner.FOLDER}; ln -s /tmp/mine /tests",
    ):
        (task.tests / "test.sh").write_text(script)
        spec = SandboxSpec(task.id, runner=stand_ins)
        async with NamespaceSandbox(spec) as sandbox:
            await sandbox.run(["sh", "-c", before], 10, user="root")
            assert await sandbox.verify(task) == 1.0


@pytest.mark.parametrize(
    ("content", "reward"), [("assert True", 1.0), ("assert False", 0.0), ("import nothing", 0.0)]
)
async def test_the_usual_test_sh_is_verified_without_a_network(
    task: Task, content: str, reward: float
) -> None:
    (task.tests / "test_it.py").write_text(content)
    assert await verified(task, UVX, tools=stand_ins) == reward


async def test_the_usual_test_sh_without_its_runner_is_an_error_and_not_0(task: Task) -> None:
    (task.tests / "test_it.py").write_text("assert True")
    script = UVX.replace("apt-get update\n", "").replace("apt-get install -y curl\n", "")
    with pytest.raises(
        SandboxError, match=r"because its test runner could not run \(/tests/test.sh: line \d+: uvx: com"
    ):
        await verified(task, script)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("PYTHONPATH= python3 -m pytest /tests/none.py", r"python3: No module named pytest"),
        ("pip install no-such-package", r"pip could not install no-such-package"),
        ("uv publish > /dev/null 2>&1", r"uv: no stand-in for: uv publish"),
    ],
)
async def test_whatever_the_runner_lacks_is_said(task: Task, script: str, why: str) -> None:
    script = f"if {script}; then echo 1 > {LOGS}/reward.txt; else echo 0 > {LOGS}/reward.txt; fi"
    with pytest.raises(
        SandboxError, match=rf"its test runner could not run \(.*{why}.*\): let the task's Dockerfile"
    ):
        await verified(task, script, tools=stand_ins)


@pytest.mark.parametrize(
    "script",
    [
        "/work/program",
        "python3 /work/missing.py",
        "bash -c '/app/run.sh: line 3: python3.9: command not found'",
        "jq . /work/x",
        "python3 -c 'import yaml.nothing'",
    ],
)
async def test_an_honest_failure_is_0(task: Task, script: str) -> None:
    script = f"if {script}; then echo 1 > {LOGS}/reward.txt; else echo 0 > {LOGS}/reward.txt; fi"
    assert await verified(task, script, tools=stand_ins) == 0.0


async def test_a_success_is_a_success_whatever_was_said_before(task: Task) -> None:
    assert await verified(task, f"uv --version; pytest --version; echo 1 > {LOGS}/reward.txt") == 1.0


async def test_worlds_give_the_stand_ins_to_tasks_that_fetch_a_runner(
    task: Task, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task.path / "environment").mkdir()
    (task.path / "environment/Dockerfile").write_text("FROM debian:12\nWORKDIR /app\n")
    (task.tests / "test.sh").write_text(f"apt-get install -y curl && echo 1 > {LOGS}/reward.txt")
    monkeypatch.setenv("PIP_RETRIES", "0")
    build = BuildConfig(network=False, env=["PIP_RETRIES"])
    config = SandboxConfig(store=shared_layers(tmp_path_factory), build=build)
    worlds = Worlds(config)
    prepared = await worlds.prepare(task)
    assert prepared.tools == runner.programs()
    assert (await Worlds(config.model_copy(update={"local_runner": False})).prepare(task)).tools is None
    sandbox = worlds.sandbox(task)
    await sandbox.start()
    assert await sandbox.verify(task) == 1.0
    await sandbox.stop()
    (task.tests / "test.sh").write_text("pip install pytest")
    with pytest.raises(
        SandboxError, match=r"the test runner of the/task cannot be installed: the Dockerfile of its"
    ):
        await worlds.prepare(task)
    (task.tests / "test.sh").unlink()
    with pytest.raises(SandboxError, match=r"test\.sh cannot be read: No such file"):
        await worlds.prepare(task)


@pytest.mark.parametrize("verifiable", [True, False])
@pytest.mark.parametrize("script", ["true", "kill -9 $$", "/tests/missing-runner; exit 127"])
async def test_what_only_the_agents_work_prevents_is_worth_0(
    task: Task, script: str, verifiable: bool
) -> None:
    """Else a policy could turn a reward of 0 into an error, which costs it nothing."""
    asked = []

    async def is_verifiable() -> bool:
        asked.append(task.id)
        return verifiable

    (task.tests / "test.sh").write_text(script)
    async with NamespaceSandbox(SandboxSpec(task.id, is_verifiable=is_verifiable)) as sandbox:
        if verifiable:
            assert await sandbox.verify(task) == 0.0
        else:
            with pytest.raises(SandboxError, match="the/task"):
                await sandbox.verify(task)
    assert asked == [task.id]


async def test_a_verdict_of_the_tests_asks_nothing_more(task: Task) -> None:
    async def is_verifiable() -> bool:
        raise AssertionError("not asked")

    (task.tests / "test.sh").write_text(f"echo 0 > {LOGS}/reward.txt")
    async with NamespaceSandbox(SandboxSpec(task.id, is_verifiable=is_verifiable)) as sandbox:
        assert await sandbox.verify(task) == 0.0
