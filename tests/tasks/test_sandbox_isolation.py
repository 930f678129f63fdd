"""Nothing a command does reaches the host, its network or another sandbox."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path

import pytest

from tasks.sandbox.base import SandboxError
from tasks.sandbox.launcher.identity import FIRST_HOST_ID
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec

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
@pytest.mark.skipif(
    os.geteuid() != 0, reason="an ordinary user's sandboxes have one user, who owns their files"
)
async def test_the_agent_writes_to_its_own_folders_alone(path: str, sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec(f"echo x > {path}")
    assert result.exit_code == 1
    assert result.stderr


async def test_the_private_folders_are_writable(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("for d in /work /tmp ~ /dev/shm; do echo x > $d/x && cat $d/x; done")
    assert result.stdout == b"x\n" * 4, result


async def test_the_folders_of_the_host_are_not_there(sandbox: NamespaceSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    for path in (secret, REPOSITORY):
        assert (await sandbox.exec(f"ls {path}")).exit_code == 2, path
    # Folders of the sandbox's own, with the names that every Linux has.
    for folder in (
        "boot",
        "media",
        "mnt",
        "opt",
        "srv",
        "sys",
        "tmp",
        "work",
        "usr/src",
        "usr/local/src",
        "var/tmp",
    ):
        assert (await sandbox.exec(f"ls -A /{folder}")).stdout == b"", folder
    assert (await sandbox.run(["ls", "-A", "/root"], 5, user="root")).stdout in (b"", b".bashrc\n.profile\n")
    assert (
        await sandbox.exec("ls /home; find /var/log /var/spool /var/mail /run -type f")
    ).stdout == b"agent\n"


async def test_the_accounts_of_the_host_are_not_there(sandbox: NamespaceSandbox) -> None:
    users = [line.split(":") for line in (await sandbox.read("/etc/passwd")).decode().splitlines()]
    assert {user[0] for user in users if 1000 <= int(user[2]) < 65534} == {"agent"}
    assert {user[1] for user in users} == {"x"}
    shadow = (await sandbox.read("/etc/shadow")).decode().splitlines()
    assert {line.split(":")[1] for line in shadow} == {"*"}


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
    assert fields["Seccomp"] == "2"
    assert fields["Uid"].split() == fields["Gid"].split() == ["1000"] * 4
    assert fields["Groups"].split() in (["1000"], [])
    for command in (
        "unshare -Ur true",
        "unshare -m true",
        "mount -t tmpfs x /tmp",
        "chroot / true",
        "hostname x",
    ):
        assert (await sandbox.exec(command)).exit_code != 0, command
    if os.geteuid() == 0:
        for pid in processes_of(sandbox):
            expected = FIRST_HOST_ID + (0 if pid == sandbox.first_pid else 1000)
            assert f"Uid:\t{expected}\t{expected}" in Path(f"/proc/{pid}/status").read_text()


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
        result = await other.exec("cat /work/* /tmp/* ~/* /dev/shm/*; pgrep -f '^sleep 60'; ls /work")
        assert b"secret" not in result.stdout
        assert b"mine" not in result.stdout
        assert (await other.exec("pgrep -cf '^sleep 60'")).stdout == b"0\n"
        assert (await one.exec("pgrep -cf '^sleep 60'")).stdout == b"1\n"


async def test_reading_and_writing_files(sandbox: NamespaceSandbox) -> None:
    data = bytes(range(256)) * 300
    await sandbox.write("/work/new folder/it's", data, 0o750)
    assert await sandbox.read("/work/new folder/it's") == data
    assert (await sandbox.exec('stat -c %a "new folder/it\'s"')).stdout == b"750\n"
    if os.geteuid() == 0:
        with pytest.raises(SandboxError, match=r"could not write /usr/x: .*Permission denied"):
            await sandbox.write("/usr/x", b"")


@pytest.mark.parametrize(
    "path", ["/work/missing", "/work", "/work/fifo", "/work/loop", "/dev/zero", "/work/full/x"]
)
async def test_only_files_are_read(path: str, sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("mkfifo fifo; ln -s loop loop; touch full")
    with pytest.raises(FileNotFoundError, match=path):
        await sandbox.read(path)


@pytest.mark.parametrize("path", ["/work/link", "/work/folder/passwd", "/work/../etc/passwd", "etc/passwd"])
async def test_links_are_followed_inside(path: str, sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("ln -s /etc/passwd link; ln -s /etc folder")
    assert await sandbox.read(path) == (await sandbox.exec("cat /etc/passwd")).stdout


async def test_nothing_is_left_of_a_stopped_sandbox(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("sleep 61 & setsid sleep 62 &")
    pids = processes_of(sandbox)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert len(pids) >= 3
    await sandbox.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert len(os.listdir("/proc/self/fd")) < descriptors
    for name in ("memory", "."):
        assert not list(Path("/sys/fs/cgroup", name).glob(f"**/obsspec-{os.getpid()}-*"))


def processes_of(sandbox: NamespaceSandbox) -> list[int]:
    """Host PIDs of the processes in the sandbox's PID namespace."""
    inside = os.readlink(f"/proc/{sandbox.first_pid}/ns/pid")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/pid") == inside:
                found.append(int(entry.name))
        except OSError:
            continue
    return found
