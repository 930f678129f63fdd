"""How the tests of escapes try things in a sandbox, and see that it still works."""

from __future__ import annotations

import asyncio
import platform
from contextlib import suppress

from tasks.sandbox.base import ExecResult, SandboxError
from tasks.sandbox.namespace import NamespaceSandbox

CALLS = {
    "x86_64": {
        "open_by_handle_at": 304,
        "name_to_handle_at": 303,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "kexec_load": 246,
        "init_module": 175,
        "finit_module": 313,
        "keyctl": 250,
        "unshare": 272,
        "ptrace": 101,
        "process_vm_readv": 310,
        "pivot_root": 155,
        "reboot": 169,
        "swapon": 167,
        "settimeofday": 164,
        "quotactl": 179,
    },
    "aarch64": {
        "open_by_handle_at": 265,
        "name_to_handle_at": 264,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "kexec_load": 104,
        "init_module": 105,
        "finit_module": 273,
        "keyctl": 219,
        "unshare": 97,
        "ptrace": 117,
        "process_vm_readv": 270,
        "pivot_root": 41,
        "reboot": 142,
        "swapon": 224,
        "settimeofday": 170,
        "quotactl": 60,
    },
}[platform.machine()] | {
    "io_uring_setup": 425,
    "open_tree": 428,
    "fsopen": 430,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
}

PRELUDE = (
    "import ctypes, os, signal, socket, sys, time\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    f"CALLS = {CALLS}\n"
    "def call(name, *arguments):\n"
    "    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]\n"
    "    result = libc.syscall(CALLS[name], *arguments)\n"
    "    return result if result >= 0 else -ctypes.get_errno()\n"
)


async def python(world: NamespaceSandbox, code: str, timeout_s: float = 10) -> ExecResult:
    """Run a program in the world, with `call(name, …)` for system calls."""
    return await world.run(["python3", "-c", PRELUDE + code], timeout_s)


async def works(world: NamespaceSandbox) -> None:
    result = await world.exec("ls /usr > /dev/null && echo works")
    assert (result.stdout, result.exit_code) == (b"works\n", 0), result
    await world.write("/tmp/probe", b"probe")
    assert await world.read("/tmp/probe") == b"probe"


async def ends(awaitable: object, limit_s: float = 15) -> object:
    """The result of an operation, or the SandboxError that it raised; it must not hang."""
    try:
        async with asyncio.timeout(limit_s):
            return await awaitable  # type: ignore[misc]
    except SandboxError as error:
        assert "\n" not in str(error)  # noqa: PT017  (an error is as good as a result)
        return error


async def bytes_of(world: NamespaceSandbox, path: str) -> bytes | None:
    try:
        return await world.read(path)
    except FileNotFoundError:
        return None


async def has_begun(world: NamespaceSandbox, path: str) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(FileNotFoundError):
                await world.read(path)
                return
            await asyncio.sleep(0.01)
