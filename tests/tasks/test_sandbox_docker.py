"""The docker backend's own: its command lines, its failures, and what it leaves behind. A fake docker
answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.docker import DockerSandbox, DockerSpec, build, owner, pull, task_image
from tasks.sandbox.docker.stream import Kept, MarkedStream
from tasks.task import Task
from tests.tasks.backends import docker_image, fake_docker


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fake_docker(tmp_path / "docker", monkeypatch)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_text("FROM fake\n")
    (tmp_path / "tests").mkdir()
    return Task("family/3", "family", "Do it.", tmp_path, memory_mb=256, verifier_timeout_s=10)


def calls(state: Path, verb: str) -> list[list[str]]:
    found = [json.loads(line) for line in (state / "calls").read_text().splitlines()]
    return [call for call in found if call[0] == verb]


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


async def test_a_container_has_the_limits_and_nothing_more(state: Path) -> None:
    limits = SandboxLimits(memory_mb=300, cpus=1.5, processes=20, file_mb=2, disk_mb=100)
    async with DockerSandbox(DockerSpec("fake", "test", env={"A": "b c"}), limits):
        pass
    first, second = calls(state, "run")
    assert first[0:4] == ["run", "--detach", "--init", "--pull=never"]
    for option in (
        "--hostname=sandbox",
        "--network=none",
        "--security-opt=no-new-privileges",
        "--memory=300m",
        "--memory-swap=300m",
        "--cpus=1.5",
        "--pids-limit=28",
        "--ulimit=core=0",
        f"--ulimit=fsize={2 << 20}",
        "--storage-opt=size=100m",
        "--env=LANG=C.UTF-8",
        "--env=A=b c",
    ):
        assert option in first, option
    assert first[-4:] == ["fake", "sh", "-c", "sleep infinity"]
    assert not any(word.startswith(("--privileged", "--cap-add", "--volume", "--mount")) for word in first)
    # The daemon refused a bound of the disk; the second try went without, and so does the next container.
    assert [word for word in first if word not in second and "storage-opt" in word] == [
        "--storage-opt=size=100m"
    ]
    async with DockerSandbox(DockerSpec("fake", network=True)):
        pass
    assert "--network=bridge" in calls(state, "run")[2]
    assert not any("storage-opt" in word or "cpus" in word for word in calls(state, "run")[2])


async def test_what_the_image_says_goes_before_what_is_fixed(state: Path) -> None:
    config = json.loads((state / "images/fake.json").read_text())
    config["Env"], config["WorkingDir"] = ["LANG=de_DE.UTF-8"], "/tmp"
    (state / "images/fake.json").write_text(json.dumps(config))
    async with DockerSandbox(DockerSpec("fake")) as sandbox:
        assert (await sandbox.exec("echo $LANG $TERM; pwd")).stdout == b"de_DE.UTF-8 dumb\n/tmp\n"


async def test_the_container_is_roots_and_an_entry_point_the_users(state: Path) -> None:
    config = json.loads((state / "images/fake.json").read_text())
    config["User"], config["Entrypoint"] = "daemon", ["bash", "-c", 'exec "$@"', "entry"]
    (state / "images/fake.json").write_text(json.dumps(config))
    if os.geteuid() == 0:
        async with DockerSandbox(DockerSpec("fake")) as sandbox:
            result = await sandbox.exec(
                "until [ $(pgrep -c sleep) = 2 ]; do :; done; ps -C sleep -o user=; id -un"
            )
            assert result.stdout.split() == [b"root", b"daemon", b"daemon"]
    else:
        with pytest.raises(SandboxError):
            await DockerSandbox(DockerSpec("fake")).start()
    (run,) = [call for call in calls(state, "run") if "--storage-opt=size=256m" not in call]
    assert run[run.index("--entrypoint=") :] == ["--entrypoint=", "fake", "sh", "-c", "sleep infinity"]
    assert "--user=0" in run
    name = next(word for word in run if word.startswith("--name=")).removeprefix("--name=")
    entry = [*config["Entrypoint"], "sh", "-c", "sleep infinity"]
    assert calls(state, "exec")[0] == ["exec", "--detach", "--user=daemon", "--workdir=/work", name, *entry]


@pytest.mark.skipif(os.geteuid() != 0, reason="the fake docker of an ordinary user has one user")
async def test_commands_are_the_users_and_root_is_for_the_tests(state: Path) -> None:
    async with DockerSandbox(DockerSpec("fake", user="nobody", workdir="/tmp")) as sandbox:
        assert (await sandbox.exec("id -un")).stdout == b"nobody\n"
        assert (await sandbox.run(["id", "-un"], 5)).stdout == b"nobody\n"
        assert (await sandbox.run(["id", "-un"], 5, user="root")).stdout == b"root\n"
        await sandbox.write("own", b"")
        assert (await sandbox.exec("stat -c %U own; echo x > /dev/stdout")).stdout == b"nobody\nx\n"
        with pytest.raises(SandboxError, match="could not write /root/x: "):
            await sandbox.write("/root/x", b"")
        with pytest.raises(SandboxError, match="has no user nosuch"):
            await sandbox.upload(state / "bin", "/tmp/x", "nosuch")


async def test_when_nothing_more_can_run_inside_the_container_begins_anew(state: Path) -> None:
    async with DockerSandbox(DockerSpec("fake", "test")) as sandbox:
        await sandbox.exec("echo kept > file; sleep 70 &")
        (state / "fails-exec").write_text("OCI runtime exec failed: resource temporarily unavailable")
        result = await sandbox.exec("echo before; sleep 71", 0.3)
        assert (result.timed_out, result.stdout) == (True, b"before\n")
        assert len(calls(state, "restart")) == 1
        assert (await sandbox.exec("cat file; ps -e | grep -c '[s]leep 7'")).stdout == b"kept\n0\n"


async def test_a_container_that_is_gone_is_one_sentence(state: Path) -> None:
    async with DockerSandbox(DockerSpec("fake", "test")) as sandbox:
        docker("rm", *(path.name for path in (state / "containers").glob("obsspec-*") if path.is_dir()))
        for asking in (sandbox.exec("true"), sandbox.read("x"), sandbox.run(["true"], 1)):
            with pytest.raises(SandboxError, match=r"^the sandbox of test is gone.*No such container"):
                await asking


async def test_nothing_is_left_behind(state: Path) -> None:
    async with DockerSandbox(DockerSpec("fake")) as sandbox:
        first = await sandbox.snapshot()
        await sandbox.restore(first)
        await sandbox.snapshot()
        assert len(list((state / "images").glob("obsspec-snapshot*.json"))) == 2
        assert len(list((state / "containers").glob("*.json"))) == 1
    assert [path.name for path in (state / "images").glob("*.json")] == ["fake.json"]
    assert list((state / "containers").iterdir()) == []


async def test_a_cancelled_start_leaves_nothing_behind(state: Path) -> None:
    for steps in range(1, 400, 57):
        sandbox = DockerSandbox(DockerSpec("fake"))
        starting = asyncio.ensure_future(sandbox.start())
        for _ in range(steps):
            await asyncio.sleep(0.001)
        starting.cancel()
        await asyncio.wait([starting])
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        if not starting.cancelled() and starting.exception() is None:
            break
    stopped = {path.stem for path in (state / "containers").glob("*.json")}
    assert len(stopped) == (0 if starting.cancelled() else 1)
    await sandbox.stop()


async def test_a_snapshot_without_the_volumes_is_refused(state: Path) -> None:
    config = json.loads((state / "images/fake.json").read_text())
    (state / "images/fake.json").write_text(json.dumps({**config, "Volumes": {"/data": {}}}))
    async with DockerSandbox(DockerSpec("fake", "test")) as sandbox:
        with pytest.raises(SandboxError, match=r"of test has volumes \(/data\), which no snapshot holds"):
            await sandbox.snapshot()


async def test_leftovers_of_dead_processes_are_removed_and_those_of_others_not(state: Path) -> None:
    machine, boot, namespace, pid, _ = owner.owner().split("/")
    owners = {
        "dead": f"{machine}/{boot}/{namespace}/{pid}/1",
        "before-boot": f"{machine}/other/{namespace}/1/1",
        "own": owner.owner(),
        "elsewhere": f"other/{boot}/{namespace}/{pid}/1",
        "in-another-container": f"{machine}/{boot}/pid:[1]/{pid}/1",
        "unreadable": "what",
    }
    for name, label in owners.items():
        docker("run", "--detach", f"--name={name}", f"--label=obsspec.owner={label}", "fake", "sleep", "60")
        docker("commit", name, f"image-{name}")
    async with DockerSandbox(DockerSpec("fake")):
        pass
    left = {"own", "elsewhere", "in-another-container", "unreadable"}
    assert {path.stem for path in (state / "containers").glob("*.json")} == left
    assert {path.stem for path in (state / "images").glob("image-*.json")} == {
        f"image-{name}" for name in left
    }
    docker("rm", *left)


async def test_a_task_is_verified_in_the_container(state: Path, task: Task) -> None:
    (task.tests / "expected").write_text("answer")
    (task.tests / "test.sh").write_text(
        'cmp /tests/expected "$PWD/answer" && [ "$(stat -c %U /tests/expected)" = root ] && [ -z "$mine" ]\n'
        "[ $? = 0 ]; echo $((1 - $?)) > /logs/verifier/reward.txt; sleep 60 &\n"
    )
    async with DockerSandbox.for_task(task) as sandbox:
        assert sandbox.limits.memory_mb == 256
        hidden = await sandbox.exec("export mine=1; cat /tests/*; ls /tests /logs")
        assert b"answer" not in hidden.stdout
        assert await sandbox.verify(task) == 0.0
        await sandbox.exec("printf answer > answer; (sleep 0.1; echo 1 > /logs/verifier/reward.txt) &")
        assert await sandbox.verify(task) == 1.0
        (task.tests / "test.sh").write_text("echo the reason; exit 3")
        with pytest.raises(SandboxError, match=r"family/3 has no verdict: .*last line: the reason"):
            await sandbox.verify(task)
        (task.tests / "test.sh").write_text("ln -s /root/x /logs/verifier/reward.txt; mkdir /root/x")
        with pytest.raises(SandboxError, match="family/3 has no verdict"):
            await sandbox.verify(task)


async def test_the_image_of_a_task_is_built_once_for_its_content(state: Path, task: Task) -> None:
    first = await task_image(task)
    assert first == await task_image(task)
    (build_call,) = calls(state, "build")
    folder = str(task.path / "environment")
    wanted = [
        "build",
        "--network=default",
        f"--file={folder}/Dockerfile",
        f"--tag={first}",
        "--force-rm",
        folder,
    ]
    assert build_call == wanted
    (task.path / "environment/more").write_text("x")
    assert await task_image(task) != first
    await build(task.path, task.dockerfile, "own", network=False)
    assert "--network=none" in calls(state, "build")[-1]


async def test_a_build_that_fails_gives_the_daemons_reason(state: Path, task: Task) -> None:
    task.dockerfile.write_text("FROM nothing\n")
    with pytest.raises(
        SandboxError, match=r"docker build of .*Dockerfile failed: pull access denied for nothing"
    ):
        await task_image(task)
    (state / "fails-pull").write_text("Error response from daemon: manifest unknown.")
    with pytest.raises(SandboxError, match=r"docker pull of nosuch failed: manifest unknown$"):
        await pull("nosuch")
    with pytest.raises(SandboxError, match=r"docker has no image nosuch: build or pull it first"):
        await DockerSandbox(DockerSpec("nosuch")).start()


async def test_no_docker_and_no_daemon_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"^there is no program `docker` here: install Docker or use"):
        await DockerSandbox(DockerSpec("fake")).start()
    complaint = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
    (tmp_path / "docker").write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(
        SandboxError, match=r"^docker has no daemon to ask \(Cannot connect .*\): start one or use"
    ):
        await DockerSandbox(DockerSpec("fake")).start()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096])
async def test_marks_are_found_however_the_stream_is_cut(size: int) -> None:
    token = "0123456789abcdef" * 2
    mark = b"\0%s " % token.encode()
    body = b"\0" + b"x" * 100 + mark[:-1] + b"\0\0" + mark[:20] + b"\0" * 40
    data = body + mark + b"done 0 /a b\0rest" + mark + b"\0"
    reader, kept, rest = asyncio.StreamReader(), Kept(10_000), Kept(2)
    stream = MarkedStream(reader)

    async def feed() -> None:
        for start in range(0, len(data), size):
            reader.feed_data(data[start : start + size])
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding = asyncio.ensure_future(feed())
    first = await stream.until((token, "other"), kept)
    second = await stream.until((token,), rest)
    assert first is not None
    assert (bytes(kept.data), first.text) == (body, "done 0 /a b")
    assert second is not None
    assert (bytes(rest.data), rest.truncated, second.text) == (b"re", True, "")
    assert await stream.until((token,), rest) is None
    await feeding


async def test_a_fork_bomb_in_a_real_container_is_contained() -> None:
    image = await docker_image()
    async with DockerSandbox(DockerSpec(image, workdir="/tmp"), SandboxLimits(processes=30)) as sandbox:
        await sandbox.exec("echo kept > file")
        result = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 30", 1.5)
        assert result.timed_out or b"fork" in result.stderr
        await sandbox.exec("exit")
        assert (await sandbox.exec("cat file")).stdout == b"kept\n"


async def test_root_is_root_in_a_real_container_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {await docker_image()}\nUSER nobody\nWORKDIR /tmp\n")
    await build(tmp_path, tmp_path / "Dockerfile", "obsspec-test-user")
    try:
        async with DockerSandbox(DockerSpec("obsspec-test-user", "test")) as sandbox:
            assert (await sandbox.exec("id -un; sleep 60 & sleep 61", 0.3)).stdout == b"nobody\n"
            assert (await sandbox.exec("ps -e 2>/dev/null | grep -c sleep.6")).stdout == b"0\n"
            given = await sandbox.run(["chown", "nobody", "/root"], 5, user="root")
            assert given.exit_code == 0, given
    finally:
        docker("rmi", "obsspec-test-user")


async def test_a_real_container_is_closed_in() -> None:
    image = await docker_image()
    limits = SandboxLimits(memory_mb=64, command_timeout_s=20)
    async with DockerSandbox(DockerSpec(image, workdir="/tmp"), limits) as sandbox:
        result = await sandbox.exec(
            "ls /sys/class/net; hostname; mount -t tmpfs x /mnt; mknod x b 8 0 && cat x"
        )
        assert result.stdout == b"lo\nsandbox\n"
        assert result.exit_code != 0
        result = await sandbox.exec("head -c 200000000 /dev/zero | tail -c 150000000 | wc -c")
        assert b"150000000" not in result.stdout
        assert (await sandbox.exec("grep -c NoNewPrivs:.1 /proc/self/status")).stdout == b"1\n"
        assert (
            os.fsencode(os.path.abspath(__file__)) not in (await sandbox.exec("find / -name '*.py'")).stdout
        )
