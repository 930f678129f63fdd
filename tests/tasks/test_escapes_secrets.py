"""What a hostile program tries to reach services, secrets and verdicts.

It runs as the agent of the built-in tasks, and as root of an image; all of it fails closed. Afterwards the
sandbox still works or is cleanly gone, and the host is as it was (the fixture `untouched`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tasks.sandbox import network
from tasks.sandbox import runtime as runtimes
from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task
from tests.tasks.conftest import root_image
from tests.tasks.escaping import ends, python


@pytest_asyncio.fixture
async def services(canary_socket: Path) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Servers on the host's loopback, an abstract socket and a path: their port, and whether anyone came."""
    reached = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    abstract = await asyncio.start_unix_server(accept, "\0obsspec-escape")
    path = await asyncio.start_unix_server(accept, canary_socket)
    canary_socket.chmod(0o777)
    async with server, abstract, path:
        yield port, reached


@pytest.fixture
def canary_socket() -> Iterator[Path]:
    path = Path("/var/tmp", f"obsspec-canary-{os.getpid()}.socket")
    yield path
    path.unlink(missing_ok=True)


CONNECT = """
addresses = [(family, (host, {port})) for family, host in (
    (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::1"), (socket.AF_INET, "10.0.2.2"), (socket.AF_INET, "10.0.2.3"),
    (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET6, "fd00::2"),
    *((socket.AF_INET, host) for host in {hosts}))]
addresses += [(socket.AF_UNIX, "\\0obsspec-escape"), (socket.AF_UNIX, {path!r})]
for family, address in addresses:
    s = socket.socket(family)
    s.settimeout(0.5)
    try:
        s.connect(address)
        s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        if s.recv(1) is not None: print("answered", address)
    except OSError: pass
"""


def own_addresses() -> list[str]:
    found = {a.address for each in psutil.net_if_addrs().values() for a in each if a.family == socket.AF_INET}
    return sorted(found)


async def test_services_of_the_host_are_out_of_reach(
    world: NamespaceSandbox, services: tuple[int, asyncio.Event], canary_socket: Path
) -> None:
    port, reached = services
    code = CONNECT.format(port=port, path=str(canary_socket), hosts=own_addresses())
    await python(world, code)
    assert not reached.is_set()
    assert (await world.exec("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")).stdout == b"lo\n"


async def test_with_a_network_loopback_services_of_the_host_stay_out_of_reach(
    inside: str, untouched: None, services: tuple[int, asyncio.Event], canary_socket: Path
) -> None:
    if network.program() is None or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("it takes slirp4netns, and /dev/net/tun for this user")
    port, reached = services
    image = await root_image() if inside == "root" else None
    code = CONNECT.format(port=port, path=str(canary_socket), hosts=own_addresses())
    async with NamespaceSandbox(SandboxSpec("connected", image=image, network=True)) as world:
        assert b"tap0" in (await world.exec("cat /proc/net/dev")).stdout
        await python(world, code, 15)
        assert not reached.is_set()
        for host in (*own_addresses(), "169.254.169.254"):
            if not host.startswith("127."):  # no server of ours listens there; nothing at all answers
                attempt = f"import socket; print(socket.socket().connect_ex(({host!r}, 9)))"
                result = await world.exec(f'python3 -c "{attempt}"')
                assert result.stdout == f"{errno.EINVAL}\n".encode(), (host, result)
        await world.restore(await world.snapshot())
        assert b"tap0" in (await world.exec("cat /proc/net/dev")).stdout
        await python(world, code, 15)
        assert not reached.is_set()
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in mine]
    assert "slirp4netns\n" not in names


async def test_secrets_of_the_environment_are_nowhere(
    inside: str, untouched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBSSPEC_SECRET", "sesame")
    monkeypatch.setattr(runtimes, "_runtimes", {})  # a launcher that is started now
    image = await root_image() if inside == "root" else None
    async with NamespaceSandbox(SandboxSpec(image=image)) as world:
        await world.exec("sleep 60 &")
        result = await world.exec(
            "env; set; cat /proc/*/environ /proc/*/cmdline; strings /proc/self/mem 2>&1"
        )
        assert b"sesame" not in result.stdout
        assert b"PATH=" in result.stdout
        launcher = runtimes.runtime()._process
        assert launcher is not None
        assert b"sesame" not in Path(f"/proc/{launcher.pid}/environ").read_bytes()
    runtimes.runtime().close()


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """As the built-in families make them: tests run as root when nothing of the agent's runs any more."""
    (tmp_path / "environment/files").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/answer").write_text("the answer")
    (tmp_path / "tests/test.sh").write_text("sleep 0.2; echo 0 > /logs/verifier/reward.txt; sleep 0.2\n")
    return Task(
        "family/3",
        "family",
        "Do it.",
        tmp_path,
        verifier_user="root",
        verifier_timeout_s=10,
        settings={"verifier": {"end_processes": True}},
    )


REWRITE = (
    "until [ -e /tests/test.sh ]; do :; done; cat /tests/answer > /work/seen;"
    "while :; do echo 1 > /logs/verifier/reward.txt; done"
)
NEVER_STILL = """python3 -c '
import os
while True:
    if os.fork(): os._exit(0)
    try: open("/logs/verifier/reward.txt", "w").write("1")
    except OSError: pass' & disown"""


@pytest.mark.parametrize(
    "trick",
    [
        f"({REWRITE}) 2>/dev/null & disown",
        f"setsid -f bash -c '{REWRITE}' 2>/dev/null",
        f"trap '' TERM HUP INT; (setsid bash -c '{REWRITE}' 2>/dev/null &) &",
        NEVER_STILL,
        "echo 'echo 1 > /logs/verifier/reward.txt; exit' | tee ~/.bashrc ~/.profile ~/.bash_profile",
        "echo 'echo 1 > /logs/verifier/reward.txt; exit' > x; export BASH_ENV=/work/x ENV=/work/x",
        "for n in sleep echo bash sh cat; do cp /usr/bin/yes $n; done; export PATH=/work:$PATH; hash -r",
        "mkdir -p ~/.local/bin; cp /usr/bin/yes ~/.local/bin/sleep",
        "(exec > /logs/verifier/reward.txt; while :; do echo 1; done) & disown",
        "for i in $(seq 60); do sleep 60 & done",
        "cat /dev/zero > /work/full; cat /dev/zero > /tmp/full; cat /dev/zero > /dev/shm/full",
        "kill -STOP $$",
    ],
)
async def test_no_trick_reads_hidden_tests_or_changes_the_verdict(
    trick: str, task: Task, untouched: None
) -> None:
    limits = SandboxLimits(command_timeout_s=1.0, disk_mb=64)
    async with NamespaceSandbox.for_task(task, limits) as sandbox:
        await sandbox.exec(trick)
        result = await sandbox.exec("ls -d /tests /logs; cat /tests/*")
        assert b"answer" not in result.stdout
        reward = await ends(sandbox.verify(task))
        # A sandbox that the agent filled may have no room for the tests: that is an error, no reward.
        assert reward == 0.0 or (isinstance(reward, SandboxError) and "full" in trick), reward
        with pytest.raises(FileNotFoundError):
            await sandbox.read("/work/seen")


async def test_tests_that_run_beside_the_agents_processes_have_a_place_of_their_own(
    task: Task, untouched: None
) -> None:
    """Without `end_processes`, as Harbor's own tasks: what the agent leaves running may serve its tests."""
    shared = replace(task, settings={}, verifier_user="root")
    (task.tests / "test.sh").write_text("pgrep -f '^sleep 61' && echo 1 > /logs/verifier/reward.txt\n")
    async with NamespaceSandbox.for_task(shared) as sandbox:
        await sandbox.exec("sleep 61 & disown; mkdir -p /tests /logs/verifier; ln -s /work /tests/x")
        assert await sandbox.verify(shared) == 1.0
