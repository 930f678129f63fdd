"""What a hostile program tries to use up or hold up.

It runs as the agent of the built-in tasks, and as root of an image; all of it fails closed. Afterwards the
sandbox still works or is cleanly gone, and the host is as it was (the fixture `untouched`).
"""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from tasks.observation import canonical
from tasks.sandbox import runtime as runtimes
from tasks.sandbox.base import ExecResult, SandboxError, SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tests.tasks.conftest import root_image
from tests.tasks.escaping import ends, has_begun, python, works

BOMBS = {
    "shell": "b() { b | b & }; b; sleep 30",
    "sessions": """python3 -c '
import os
while True:
    try: os.fork() or os.setsid()
    except OSError: pass'""",
    "never still": """python3 -c '
import os
while True:
    if os.fork(): os._exit(0)
    os.setsid()' & sleep 30""",
    "threads": """python3 -c '
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(30,)).start()
    except RuntimeError: pass'""",
}


def number_of_tasks(world: NamespaceSandbox) -> int:
    namespace, count = os.readlink(f"/proc/{world.first_pid}/ns/pid"), 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "ns/pid") == namespace:
                count += len(os.listdir(process / "task"))
    return count


@pytest.mark.parametrize("bomb", BOMBS)
async def test_fork_bombs_are_contained(bomb: str, world: NamespaceSandbox) -> None:
    async with asyncio.timeout(30):
        exploding = asyncio.ensure_future(world.exec(BOMBS[bomb], 1.0))
        await asyncio.sleep(0.7)
        assert number_of_tasks(world) <= world.limits.processes + 20
        await exploding
        await world.end_processes()
    await works(world)
    assert number_of_tasks(world) <= 3


async def test_a_bomb_of_many_users_is_contained(untouched: None) -> None:
    """Root inside may become anyone, and each user has a limit of its own: a group bounds them all."""
    limits = SandboxLimits(processes=32, command_timeout_s=10)
    async with NamespaceSandbox(SandboxSpec("world", image=await root_image()), limits) as world:
        if not Path("/sys/fs/cgroup").is_dir() or not (world._box and world._box.groups._folders):
            pytest.skip("this host lets us make no control group")
        code = """
for user in range(1000, 1400):
    try:
        if not os.fork():
            os.setuid(user)
            for _ in range(10): os.fork()
            time.sleep(60)
    except OSError: pass
time.sleep(60)
"""
        bombing = asyncio.ensure_future(python(world, code, 1.5))
        await asyncio.sleep(1.0)
        assert 20 < number_of_tasks(world) <= 32 + 20
        assert (await bombing).timed_out
        await works(world)


async def test_a_full_sandbox_works_once_there_is_room(world: NamespaceSandbox) -> None:
    filled = await world.exec(
        "for d in /tmp /dev/shm /var/tmp /run/lock ~ /work /run /; do cat /dev/zero > $d/full; done 2>&1;"
        "for d in /tmp /dev/shm /var/tmp ~; do for i in $(seq 3000); do : > $d/n$i || break; done; done 2>&1",
        8,
    )
    assert b"No space left" in filled.stdout
    error = await ends(world.write("/tmp/more", b"x" * 100_000))
    assert "No space left" in str(error)
    assert (await world.exec("echo works")).stdout == b"works\n"
    folders = "/tmp/* /dev/shm/* /var/tmp/* /run/lock/* ~/* /work/* /run/full /full"
    result = await world.exec(f"rm -f {folders}; echo room > /tmp/x && cat /tmp/x")
    assert result.stdout == b"room\n"
    await works(world)


async def test_memory_is_bounded_whatever_holds_it(world: NamespaceSandbox) -> None:
    if not (world._box and world._box.groups.bound_memory):
        pytest.skip("this host lets us make no control group: only the limit of each process holds")
    code = """
held = []
while True:
    fd = os.memfd_create("x")
    os.write(fd, bytes(4 << 20))
    held.append(fd)
    if len(held) == 500: os.write(1, b"unbounded")
"""
    assert (await python(world, code)).exit_code == 137
    await works(world)


async def test_output_of_any_kind_is_only_output(world: NamespaceSandbox) -> None:
    every = bytes(range(256))
    escapes = b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x1bP+q\x1b\\\r\x08\x9b31m done 0 /tmp\0"
    await world.write("/tmp/data", every + escapes)
    result = await world.exec("cat /tmp/data; cat /tmp/data >&2; (exit 7)")
    assert (result.stdout, result.stderr, result.exit_code) == (every + escapes,) * 2 + (7,)
    text = canonical(result)
    assert "\x1b" not in text
    assert text.endswith("\n(exit_code=7)")
    text.encode()
    result = await world.exec("head -c 50000000 /dev/urandom >&2; echo end")
    assert (result.stdout, len(result.stderr), result.truncated) == (b"end\n", 65536, True)


@pytest.mark.parametrize("name", ["KILL", "STOP"])
async def test_helpers_cannot_be_held_up(name: str, world: NamespaceSandbox, tmp_path: Path) -> None:
    """A loop that kills or stops all that it can, while the host works in the sandbox."""
    (tmp_path / "file").write_text("x")
    await world.write("/tmp/kept", b"kept")
    code = f"""
open("/tmp/begun", "w").close()
while True:
    try: os.kill(-1, signal.SIG{name})
    except OSError: pass
"""
    raging = asyncio.ensure_future(python(world, code, 60))
    await has_begun(world, "/tmp/begun")
    for _ in range(10):
        assert await world.read("/tmp/kept") == b"kept"
        await world.upload(tmp_path, "/tmp/up")
        await world.snapshot()
        if name == "KILL":
            assert isinstance(await ends(world.write("/tmp/new", b"new"), 5), (SandboxError, type(None)))
            assert isinstance(await ends(world.run(["sleep", "0.1"], 5), 10), (SandboxError, ExecResult))
            assert isinstance(await ends(world.exec("sleep 0.1"), 10), (SandboxError, ExecResult))
    if name == "STOP":
        assert isinstance(await ends(world.run(["sleep", "0.1"], 0.3)), (SandboxError, ExecResult))
    await world.end_processes()
    assert (await raging).exit_code == 137
    await works(world)


async def test_a_stopped_sandbox_ends_what_still_works_in_it(untouched: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(30_000_000))
    sandbox = NamespaceSandbox(SandboxSpec("busy"))
    await sandbox.start()
    await sandbox.exec("head -c 60000000 /dev/zero > /work/big; mkfifo fifo")
    names = ("read", "upload", "snapshot", "write", "exec", "run")
    busy = [
        *(
            asyncio.ensure_future(sandbox.read("/work/big")),
            asyncio.ensure_future(sandbox.upload(tmp_path, "/work/up")),
        ),
        *(
            asyncio.ensure_future(sandbox.snapshot()),
            asyncio.ensure_future(sandbox.write("/work/fifo", b"x")),
        ),
        *(
            asyncio.ensure_future(sandbox.exec("sleep 60")),
            asyncio.ensure_future(sandbox.run(["sleep", "60"], 60)),
        ),
    ]
    await asyncio.sleep(0.02)
    await sandbox.stop()
    async with asyncio.timeout(10):
        results = dict(zip(names, await asyncio.gather(*busy, return_exceptions=True), strict=True))
    for name, result in results.items():
        assert not isinstance(result, BaseException) or isinstance(
            result, SandboxError | FileNotFoundError
        ), (name, result)
    assert stat.S_ISDIR(os.stat(runtimes.runtime().store).st_mode)
