"""Nothing a command does reaches the host, its network or another sandbox."""

from __future__ import annotations

import asyncio
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.sandbox import bubblewrap
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox, SandboxSpec

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/usr/bin/x",
        "/etc/x",
        "/etc/passwd",
        "/bin/x",
        "/dev/x",
        "/proc/x",
        "/home/x",
        "/run/x",
    ],
)
async def test_writes_outside_the_private_folders_fail(path: str, sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec(f"echo x > {path}")
    assert result.exit_code == 1
    assert result.stderr


async def test_the_private_folders_are_writable(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("for d in /work /tmp ~ /dev/shm; do echo x > $d/x && cat $d/x; done")
    assert result.stdout == b"x\n" * 4, result


async def test_the_folders_of_the_host_are_not_there(sandbox: NamespaceSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    for path in (
        secret,
        REPOSITORY,
        Path("/root"),
        Path("/var"),
        Path("/opt"),
        Path("/sys"),
        Path("/srv"),
        Path("/mnt"),
    ):
        assert (await sandbox.exec(f"ls {path}")).exit_code == 2, path
    listing = (await sandbox.exec("ls /; ls -A /home /tmp /work /etc")).stdout.decode()
    assert (
        set(listing.split("\n/")[0].split()) & {"root", "var", "opt", "srv", "mnt", "media", "boot", "sys"}
        == set()
    )
    assert "shadow" not in listing
    for folder in bubblewrap.HIDDEN:
        assert (await sandbox.exec(f"ls -A {folder}")).stdout == b""


async def test_only_the_processes_of_the_sandbox_are_there(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec(
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done; ls /proc/1/root/"
    )
    assert str(os.getpid()).encode() not in (await sandbox.exec("cd /proc && echo [0-9]*; cd")).stdout.split()
    assert b"python" not in result.stdout
    assert b"bwrap" not in result.stdout
    assert b"root\n" not in result.stdout
    assert (await sandbox.exec(f"kill -0 {os.getpid()}")).exit_code == 1
    assert (await sandbox.exec("kill -9 1; echo alive")).stdout == b"alive\n"


async def test_the_environment_of_the_host_does_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBSSPEC_SECRET", "sesame")
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        result = await sandbox.exec("env; cat /proc/*/environ; set")
        assert b"sesame" not in result.stdout
        assert b"HOME=/home/agent" in result.stdout


async def test_the_network_of_the_host_is_out_of_reach(sandbox: NamespaceSandbox, tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    abstract = await asyncio.start_unix_server(accept, "\0obsspec-test")
    port = server.sockets[0].getsockname()[1]
    async with server, abstract:
        assert (await sandbox.exec(f"echo > /dev/tcp/127.0.0.1/{port}")).exit_code == 1
        assert (await sandbox.exec("echo > /dev/tcp/10.0.0.1/80", 2)).exit_code == 1
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0obsspec-test')"
        assert (await sandbox.exec(f'python3 -c "{connect}"')).exit_code == 1
    assert not reached.is_set()
    interfaces = await sandbox.exec("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
    assert interfaces.stdout == b"lo\n"
    own = "from socket import *; s = create_server(('127.0.0.1', 8080)); "
    own += "create_connection(('127.0.0.1', 8080)); print('own loopback')"
    assert (await sandbox.exec(f'python3 -c "{own}"')).stdout == b"own loopback\n"


async def test_there_are_no_privileges_and_none_to_gain(sandbox: NamespaceSandbox) -> None:
    status = (await sandbox.exec("cat /proc/self/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split() == ["1000"] * 4
    for command in (
        "unshare -Ur true",
        "unshare -m true",
        "mount -t tmpfs x /tmp",
        "chroot / true",
        "hostname x",
    ):
        assert (await sandbox.exec(command)).exit_code != 0, command
    if os.geteuid() == 0:
        assert all(Path(f"/proc/{pid}").stat().st_uid == bubblewrap.HOST_UID for pid in processes_of(sandbox))


LIBC = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
PTRACE_ATTACH, PIDFD_GETFD, IO_URING_SETUP = 16, 438, 425
ADD_KEY = {"x86_64": 248, "aarch64": 217}[platform.machine()]


@pytest.mark.parametrize(
    "command",
    [
        "cat /proc/{}/environ",
        "ls /proc/{}/root/",
        "python3 -c \"open('/proc/{}/mem', 'r+b')\"",
        f'python3 -c "{LIBC} assert libc.syscall({PIDFD_GETFD}, os.pidfd_open({{}}), 0, 0) >= 0"',
        f'python3 -c "{LIBC} assert libc.ptrace({PTRACE_ATTACH}, {{}}, 0, 0) == 0"',
    ],
)
async def test_no_command_reaches_into_the_first_process(command: str, sandbox: NamespaceSandbox) -> None:
    first = await sandbox.exec(command.format("1"))
    assert first.stdout == b""
    assert first.exit_code != 0
    own = await sandbox.exec(f"sleep 9 & {command.format('$!')}")
    assert own.exit_code == 0, own


async def test_limits_of_other_processes_are_out_of_reach(sandbox: NamespaceSandbox) -> None:
    for pid in ("1", "$!"):
        result = await sandbox.exec(f"sleep 9 & prlimit --pid {pid} --nproc=1")
        assert result.stderr.endswith(b"Operation not permitted\n")
    assert (await sandbox.exec("ulimit -u 32; prlimit --nproc=16 bash -c 'ulimit -u'")).stdout == b"16\n"


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_ALG", "AF_PACKET", "AF_BLUETOOTH"])
async def test_sockets_that_no_namespace_bounds_are_refused(family: str, sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec(f"python3 -c 'import socket; socket.socket(socket.{family})'")
    assert result.stderr.endswith(b"Address family not supported by protocol\n")


@pytest.mark.parametrize("call", [f"{ADD_KEY}, b'user', b'x', b'y', 1, -3", f"{IO_URING_SETUP}, 8, 0"])
async def test_key_rings_and_io_uring_are_refused(call: str, sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec(f'python3 -c "{LIBC} print(libc.syscall({call}), ctypes.get_errno())"')
    assert result.stdout == b"-1 1\n"


async def test_sandboxes_do_not_see_each_other() -> None:
    async with NamespaceSandbox(SandboxSpec()) as one, NamespaceSandbox(SandboxSpec()) as other:
        await one.exec("for d in /work /tmp ~ /dev/shm; do echo secret > $d/mine; done; sleep 60 &")
        result = await other.exec("cat /work/* /tmp/* ~/* /dev/shm/*; pgrep sleep; ls /work")
        assert b"secret" not in result.stdout
        assert b"mine" not in result.stdout
        assert (await other.exec("pgrep -c sleep")).stdout == b"0\n"


async def test_reading_and_writing_files(sandbox: NamespaceSandbox) -> None:
    data = bytes(range(256)) * 300
    await sandbox.write("/work/new folder/it's", data, 0o750)
    assert await sandbox.read("/work/new folder/it's") == data
    assert (await sandbox.exec('stat -c %a "new folder/it\'s"')).stdout == b"750\n"
    with pytest.raises(SandboxError, match=r"could not write /usr/x: .*Read-only"):
        await sandbox.write("/usr/x", b"")


@pytest.mark.parametrize(
    "path",
    [
        "/work/link",
        "/work/folder/passwd",
        "/work/missing",
        "/work",
        "/work/fifo",
        "/work/../etc/passwd",
        "/dev/zero",
    ],
)
async def test_reading_follows_no_link_to_the_host(path: str, sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("ln -s /etc/passwd link; ln -s /etc folder; mkfifo fifo")
    with pytest.raises(FileNotFoundError, match=path):
        await sandbox.read(path)


async def test_nothing_is_left_of_a_stopped_sandbox(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("sleep 61 & setsid sleep 62 &")
    pids = processes_of(sandbox)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert len(pids) >= 4
    await sandbox.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert len(os.listdir("/proc/self/fd")) < descriptors
    for name in ("memory", "."):
        assert not list(Path("/sys/fs/cgroup", name).glob(f"**/obsspec-{os.getpid()}-*"))


async def test_descriptors_do_not_add_up() -> None:
    async def once() -> int:
        async with NamespaceSandbox(SandboxSpec()) as sandbox:
            await sandbox.exec("exit 3")
            await sandbox.exec("sleep 60", 0.05)
        return len(os.listdir("/proc/self/fd"))

    assert await once() == await once() == await once()


def processes_of(sandbox: NamespaceSandbox) -> list[int]:
    """Host PIDs of the processes in the sandbox's PID namespace."""
    driver = sandbox._driver
    assert driver is not None
    assert driver.init is not None
    inside = os.readlink(f"/proc/{driver.init.pid}/ns/pid")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/pid") == inside:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


SCRIPT = """
import asyncio
from tasks.sandbox.namespace import NamespaceSandbox, SandboxSpec

async def main():
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        assert (await sandbox.exec("id -un; touch x; (exit 5)")).exit_code == 5
        await sandbox.write("/work/y", b"text")
        assert await sandbox.read("/work/y") == b"text"
        assert (await sandbox.exec("for i in $(seq 200); do sleep 9 & done", 2)).stderr
        print(sandbox._driver.init.pid, flush=True)
        WAIT

asyncio.run(main())
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user of this machine may read (pytest's own are private)."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs all these tests already")
def test_an_ordinary_user_can_have_sandboxes(public_folder: Path) -> None:
    shutil.copytree(
        REPOSITORY / "tasks", public_folder / "tasks", ignore=shutil.ignore_patterns("__pycache__")
    )
    subprocess.run(["chmod", "-R", "a+rX", public_folder], check=True)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("the interpreter is not readable for other users")
    become = ["setpriv", "--reuid", "60123", "--regid", "60123", "--clear-groups"]
    environment = {"PYTHONPATH": str(public_folder), "PATH": os.environ["PATH"]}
    run = subprocess.run(
        [*become, python, "-c", SCRIPT.replace("WAIT", "")], env=environment, capture_output=True, timeout=60
    )
    assert run.returncode == 0, run.stderr.decode()


def test_a_killed_host_leaves_no_sandbox_behind() -> None:
    script = SCRIPT.replace("WAIT", "await asyncio.Event().wait()")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=REPOSITORY) as host:
        assert host.stdout is not None
        first = os.pidfd_open(int(host.stdout.readline()))
        host.send_signal(signal.SIGKILL)
        host.wait()
    try:
        # A pidfd is readable once its process is dead; the first of a namespace is the last of it to go.
        assert select.select([first], [], [], 10)[0]
    finally:
        os.close(first)


async def test_without_bubblewrap_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap._program.cache_clear()
    monkeypatch.setattr(
        bubblewrap.shutil, "which", lambda name, path: None if name == "bwrap" else f"/usr/bin/{name}"
    )
    try:
        with pytest.raises(SandboxError, match=r"bwrap was not found.*apt-get install bubblewrap"):
            await NamespaceSandbox(SandboxSpec()).start()
    finally:
        bubblewrap._program.cache_clear()


async def test_where_namespaces_are_forbidden_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, public_folder: Path
) -> None:
    refusing = public_folder / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    refusing.chmod(0o755)
    real = bubblewrap._program
    monkeypatch.setattr(bubblewrap, "_program", lambda name: str(refusing) if name == "bwrap" else real(name))
    with pytest.raises(
        SandboxError, match=r"No permissions.*version 0.8 or newer, and unprivileged user namespaces.*sysctl"
    ):
        await NamespaceSandbox(SandboxSpec()).start()
