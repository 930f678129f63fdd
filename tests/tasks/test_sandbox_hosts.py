"""The machine that sandboxes run on: what they need of it, who may run them, what they leave on it."""

from __future__ import annotations

import asyncio
import os
import pwd
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from tasks.sandbox import runtime as runtimes
from tasks.sandbox.base import SandboxError
from tasks.sandbox.launcher import identity
from tasks.sandbox.launcher.__main__ import Launcher
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.runtime import Runtime
from tasks.sandbox.spec import SandboxSpec

REPOSITORY = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")


@pytest_asyncio.fixture
async def own_runtime(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    """With a launcher that no other test has."""
    monkeypatch.setattr(runtimes, "_runtimes", {})
    own = runtimes.runtime()
    yield own
    own.close()


def process_of(own: Runtime) -> int:
    assert own._process is not None
    return own._process.pid


async def childless(pid: int) -> None:
    """Wait until a process has no children: one that has answered may still be on its way out."""
    async with asyncio.timeout(5):
        while Path(f"/proc/{pid}/task/{pid}/children").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_many_sandboxes_leave_nothing_behind(own_runtime: Runtime) -> None:
    async def use() -> None:
        async with NamespaceSandbox(SandboxSpec()) as sandbox:
            await sandbox.exec("exit 3")
            await sandbox.write("/work/x", b"")
            await sandbox.read("/work/x")

    def descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{process_of(own_runtime)}/fd"))

    def resident_kb() -> int:
        status = Path(f"/proc/{process_of(own_runtime)}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    for _ in range(10):
        await use()
    before, memory = descriptors(), resident_kb()
    for _ in range(6):
        await asyncio.gather(*(use() for _ in range(8)))
    assert descriptors() == before
    assert resident_kb() < memory + 1024
    assert own_runtime._pending == own_runtime._gone == {}
    await childless(process_of(own_runtime))
    assert "/tmp/boxes/" not in Path(f"/proc/{process_of(own_runtime)}/mountinfo").read_text()
    assert os.listdir(f"/proc/{process_of(own_runtime)}/root/tmp/boxes") == []


async def test_descriptors_of_a_busy_sandbox_do_not_add_up() -> None:
    async def once() -> int:
        async with NamespaceSandbox(SandboxSpec()) as sandbox:
            await sandbox.exec("exit 3")
            await sandbox.exec("sleep 60", 0.05)
            await sandbox.run(["sleep", "60"], 0.05)
            await sandbox.restore(await sandbox.snapshot())
        return len(os.listdir("/proc/self/fd"))

    assert await once() == await once() == await once()


async def test_many_sandboxes_at_once_have_their_own_descriptors() -> None:
    """The launcher then has more descriptors than programs have numbers."""
    sandboxes = [NamespaceSandbox(SandboxSpec(str(number))) for number in range(70)]
    try:
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        results = await asyncio.gather(
            *(
                one.run(["sh", "-c", "echo out$0; echo err$0 >&2; cat", one.spec.name], 20)
                for one in sandboxes
            )
        )
        for number, result in enumerate(results):
            assert (result.stdout, result.stderr) == (b"out%d\n" % number, b"err%d\n" % number)
    finally:
        await asyncio.gather(*(sandbox.stop() for sandbox in sandboxes))


@as_root
async def test_a_host_without_room_for_a_process_costs_no_sandbox(own_runtime: Runtime) -> None:
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        launcher = process_of(own_runtime)
        limits = resource.prlimit(launcher, resource.RLIMIT_NPROC)
        resource.prlimit(launcher, resource.RLIMIT_NPROC, (1, limits[1]))
        for operation in (sandbox.run(["true"], 5), sandbox.snapshot()):
            with pytest.raises(SandboxError, match="the host refuses it"):
                await operation
        resource.prlimit(launcher, resource.RLIMIT_NPROC, limits)
        assert (await sandbox.exec("echo still here")).stdout == b"still here\n"


async def test_a_launcher_that_dies_takes_its_sandboxes_along(own_runtime: Runtime) -> None:
    sandbox = NamespaceSandbox(SandboxSpec("orphan"))
    await sandbox.start()
    assert sandbox.first_pid is not None
    first = os.pidfd_open(sandbox.first_pid)
    command = asyncio.ensure_future(sandbox.exec("sleep 60"))
    await asyncio.sleep(0)
    os.kill(process_of(own_runtime), signal.SIGKILL)
    try:
        with pytest.raises(SandboxError, match="launcher of sandboxes has ended"):
            await command
        for operation in (sandbox.read("/etc/passwd"), sandbox.exec("true"), sandbox.snapshot()):
            with pytest.raises(SandboxError, match=r"launcher of sandboxes has ended|is not running|is gone"):
                await operation
        # A pidfd is readable once its process is dead; the first of a namespace is the last of it to go.
        assert select.select([first], [], [], 10)[0]
        await sandbox.stop()
    finally:
        os.close(first)
    async with NamespaceSandbox(SandboxSpec("next")) as another:
        assert (await another.exec("echo works")).stdout == b"works\n"


SCRIPT = """
import asyncio
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec

async def main():
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        assert (await sandbox.exec("(exit 5)")).exit_code == 5
        print(sandbox.first_pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_killed_host_leaves_no_sandbox_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, cwd=REPOSITORY) as host:
        assert host.stdout is not None
        first = os.pidfd_open(int(host.stdout.readline()))
        host.send_signal(signal.SIGKILL)
        host.wait()
    try:
        assert select.select([first], [], [], 10)[0]
    finally:
        os.close(first)


ORDINARY = """
import asyncio, os, sys
from pathlib import Path
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.runtime import default_store, runtime
from tasks.task import Task

async def main(path):
    settings = {"verifier": {"end_processes": True}}
    task = Task("family/1", "family", "", path, verifier_user="root", settings=settings)
    async with NamespaceSandbox.for_task(task) as sandbox:
        async def out(command, timeout=None):
            result = await sandbox.exec(command, timeout)
            assert result.exit_code == 0, result
            return result.stdout.decode().strip()

        assert await out("id -un; pwd; cat file made") == "agent\\n/work\\nfrom the task\\nby its setup"
        assert (await sandbox.exec("exit 5")).exit_code == 5
        assert (await sandbox.exec("sleep 60", 0.2)).timed_out
        assert (await sandbox.exec("for i in $(seq 100); do sleep 9 & done", 0.5)).stderr
        await sandbox.end_processes()
        assert await out("pgrep -cf '^sleep 9' || true") == "0"
        await sandbox.write("/work/a/y", b"text", 0o750)
        assert await sandbox.read("/work/a/y") == b"text"
        assert (await sandbox.run(["id", "-un"], 5, user="agent")).stdout == b"agent\\n"
        snapshot = await sandbox.snapshot()
        await sandbox.exec("rm -r a; echo other > file; mkdir made-later; cd made-later")
        await sandbox.restore(snapshot)
        assert await out("pwd; cat a/y file; stat -c %a a/y; ls -d made-later || true") == (
            "/work\\ntextfrom the task\\n750"
        )
        for trick in ("unshare -Ur true", "unshare -m true", "mount -t tmpfs x /tmp", "cat /proc/1/environ",
                      "ls /proc/1/root/", "chroot / true", "kill -9 1 && kill -0 1 && false"):
            assert (await sandbox.exec(trick)).exit_code != 0, trick
        assert "NoNewPrivs:\\t1" in await out("cat /proc/self/status")
        assert await out("awk '/^Cap/ {print $2}' /proc/self/status | sort -u") == "0" * 16
        print("USERS" if runtime().has_users else "ONE USER")
        # With one user inside, its root and /etc are its own: a copy that nobody else sees.
        paths = ("/x", "/etc/x", "/usr/bin/x")
        writes = [(await sandbox.exec(f"touch {path}")).exit_code == 0 for path in paths]
        one = not runtime().has_users
        assert writes == [one, one, False], writes
        assert not any(os.path.exists(path) for path in paths)
        assert await sandbox.verify(task) == 0.5
    assert not list(default_store().glob("snapshots/*"))
    runtime().close()

asyncio.run(main(Path(sys.argv[1])))
"""


NEEDED = ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "psutil")
"""Packages that other users find in no place of their own."""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user of this machine may read (pytest's own are private)."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run_as(user: int, group: int, folder: Path) -> str:
    """Output of ORDINARY, run by another user, whose home is below the folder."""
    python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("there is no interpreter of this version that other users may run")
    packages = [Path(spec.origin) for name in NEEDED if (spec := find_spec(name)) is not None and spec.origin]
    for path in (
        REPOSITORY / "tasks",
        *(path.parent if path.stem == "__init__" else path for path in packages),
    ):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder)
    task, home = folder / "task", folder / "home"
    for name, text in (
        ("environment/files/file", "from the task\n"),
        ("environment/setup.sh", "echo by its setup > made\n"),
        ("tests/test.sh", "[ -e a/y ] && ! pgrep -f '^sleep 6' && echo 0.5 > /logs/verifier/reward.txt\n"),
    ):
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    home.mkdir()
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    os.chown(home, user, group)
    run = subprocess.run(
        [
            *("setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups"),
            *(python, "-c", ORDINARY, str(task)),
        ],
        env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "HOME": str(home)},
        cwd="/",
        capture_output=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode().strip()


@as_root
def test_an_ordinary_user_can_have_sandboxes(public_folder: Path) -> None:
    assert run_as(60123, 60123, public_folder) == "ONE USER"


@as_root
def test_a_user_with_a_range_of_ids_has_sandboxes_with_users(public_folder: Path) -> None:
    names = [
        line.split(":")[0] for line in Path("/etc/subuid").read_text().splitlines() if line.count(":") == 2
    ]
    users = [entry for entry in pwd.getpwall() if entry.pw_name in names and entry.pw_uid]
    if not users or not shutil.which("newuidmap"):
        pytest.skip("it takes newuidmap (package uidmap) and a user that /etc/subuid and /etc/subgid name")
    assert run_as(users[0].pw_uid, users[0].pw_gid, public_folder) == "USERS"


@pytest.mark.parametrize(
    ("subuid", "expected"),
    [
        ("me:100000:65536\n", ((0, 7, 1), (1, 100000, 65535))),
        ("you:1:65536\nme:200000:70000", ((0, 7, 1), (1, 200000, 65535))),
        ("me:100000:100\n", ()),
        ("you:100000:65536\n", ()),
        ("me\nme:x:y\n\n", ()),
    ],
)
def test_the_granted_range_is_read(subuid: str, expected: object, tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text(subuid)
    assert identity._granted(str(tmp_path / "subuid"), 7, lambda: "me") == expected
    assert identity._granted(str(tmp_path / "missing"), 7, lambda: "me") == ()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one folder in which the launcher, which is another user, looks for programs; empty as yet."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # it has a /tmp of its own
        Path(name).chmod(0o755)
        monkeypatch.setattr(runtimes, "search_path", lambda: name)
        yield Path(name)


async def refused(own: Runtime) -> str:
    """What a sandbox says that cannot start; nothing runs afterwards."""
    with pytest.raises(SandboxError) as error:
        await NamespaceSandbox(SandboxSpec("here")).start()
    if own._socket is not None:
        await childless(process_of(own))
    return str(error.value)


async def test_without_bubblewrap_one_sentence_says_what_to_install(
    programs: Path, own_runtime: Runtime
) -> None:
    message = await refused(own_runtime)
    assert message.startswith(
        "the sandbox of here: bwrap: not found: it takes bubblewrap 0.8 or newer (apt-get install"
    )
    assert "\n" not in message


def test_a_sandbox_that_says_something_and_ends_in_the_same_moment_is_heard_once() -> None:
    """Both events come from one select, and the end may be looked at first: it closes what was to be read."""
    launcher, box = Launcher.__new__(Launcher), SimpleNamespace(ready=-1)
    assert launcher._heard(box) is True  # type: ignore[arg-type]


async def test_where_namespaces_are_forbidden_one_sentence_says_so(
    programs: Path, own_runtime: Runtime
) -> None:
    (programs / "bwrap").write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    (programs / "bwrap").chmod(0o755)
    message = await refused(own_runtime)
    assert "No permissions to create new namespace: it takes bubblewrap 0.8 or newer" in message
    assert "sysctl user.max_user_namespaces" in message
    assert "\n" not in message
