"""Started sandboxes, and what they must leave of the host."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings

from tasks.sandbox.base import SandboxLimits
from tasks.sandbox.host import host_base
from tasks.sandbox.image import Image, ImageConfig
from tasks.sandbox.launcher import places
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.runtime import runtime
from tasks.sandbox.spec import SandboxSpec

settings.register_profile("tasks", deadline=None, derandomize=True)
settings.load_profile("tasks")


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[NamespaceSandbox]:
    async with NamespaceSandbox(SandboxSpec("test"), SandboxLimits(command_timeout_s=10)) as started:
        yield started


async def root_image() -> Image:
    """A world whose programs run as its root, as in most Dockerfiles."""
    return Image(await host_base(runtime()), (), ImageConfig(user="root", workdir="/root"))


@pytest.fixture(params=["agent", "root"])
def inside(request: pytest.FixtureRequest) -> str:
    """Who runs commands: the agent of the built-in tasks, or root in its own image."""
    if request.param == "root" and os.geteuid() != 0 and not runtime().has_users:
        pytest.skip("here a sandbox has one user only")
    return str(request.param)


@pytest_asyncio.fixture
async def world(inside: str, untouched: None) -> AsyncIterator[NamespaceSandbox]:
    """A sandbox for each kind of user, small, so that it is soon filled. Nothing of it is left afterwards."""
    image = await root_image() if inside == "root" else None
    limits = SandboxLimits(memory_mb=256, disk_mb=32, command_timeout_s=10)
    started = NamespaceSandbox(SandboxSpec("world", image=image), limits)
    async with started:
        namespace = os.readlink(f"/proc/{started.first_pid}/ns/pid")
        yield started
    async with asyncio.timeout(10):
        while any(namespace == _pid_namespace(path) for path in Path("/proc").glob("[0-9]*")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def untouched() -> AsyncIterator[None]:
    """Checks that the host is as it was: its mounts, its own files, control groups, the store."""
    before = _host()
    yield
    assert {name: (before[name], now) for name, now in _host().items() if now != before[name]} == {}
    for path in Path("/sys/fs/cgroup").glob(f"**/obsspec-{os.getpid()}-*/cgroup.procs"):
        assert path.read_text() == "", path


OWN_MOUNTS = (places.USR, places.STORE, places.BOXES, places.SHIFTED)
"""Where the launcher mounts, in a namespace of its own; other programs may mount elsewhere meanwhile."""


def _host() -> dict[str, object]:
    return {
        "mounts": [
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if " - overlay " in line or line.split()[4].startswith(OWN_MOUNTS)
        ],
        "limits": Path("/proc/self/limits").read_text(),
        "root": sorted(os.listdir("/")),
        "temporary": sorted(name for name in os.listdir("/tmp") if "escape" in name),
        "shared memory": sorted(name for name in os.listdir("/dev/shm") if "escape" in name),
        "devices": sorted(os.listdir("/dev")),
        "programs": (
            os.stat("/usr/bin").st_mtime_ns,
            os.stat("/usr").st_mtime_ns,
            os.stat("/usr/local").st_mtime_ns,
        ),
        "accounts": [
            hashlib.sha256(Path("/etc", name).read_bytes()).hexdigest() for name in ("passwd", "group")
        ],
        "host name": os.uname().nodename,
        "core pattern": Path("/proc/sys/kernel/core_pattern").read_text(),
        "snapshots": sorted(path.name for path in (runtime().store / "snapshots").glob(f"{os.getpid()}-*")),
    }


def _pid_namespace(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns/pid")
    except OSError:
        return None
