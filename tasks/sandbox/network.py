"""A way to the internet for one sandbox, and to nothing else: slirp4netns, a network stack in a process.

The host's services stay out of reach, on its loopback (slirp4netns refuses that) and on its other addresses
(routes to them lead nowhere); so do link-local addresses, where clouds give machines their credentials.
Nothing outside can open a connection to the sandbox.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
from collections.abc import Callable

import psutil

from tasks.sandbox.base import SandboxError

RESOLVER = "10.0.2.3"
"""Where a sandbox with a network finds its name server."""
_LINK_LOCAL = "169.254.0.0/16"
_PATIENCE_S = 10.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin:/sbin"
_NS_GET_USERNS = 0xB701
"""Request to a namespace: a descriptor of the user namespace that owns it."""


class Network:
    """A running slirp4netns."""

    def __init__(self, process: asyncio.subprocess.Process, exit_fd: int):
        self._process, self._exit_fd = process, exit_fd

    async def close(self) -> None:
        os.close(self._exit_fd)
        await self._process.wait()


def program() -> str | None:
    """Where slirp4netns is; None also where a sandbox could not be kept from the host."""
    slirp, *others = (shutil.which(name, path=_PATH) for name in ("slirp4netns", "ip", "nsenter"))
    return slirp if all(others) else None


async def _close_ways_to_host(pid: int, error: Callable[[str], SandboxError]) -> None:
    """In the sandbox's network, let routes to each address of this host, and to those that only this host
    should ask, lead nowhere. Raises SandboxError."""
    addresses = {
        f"{address.address}/32"
        for each in psutil.net_if_addrs().values()
        for address in each
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    } | {_LINK_LOCAL}
    whose = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    process = await asyncio.create_subprocess_exec(
        *("nsenter", f"--target={pid}", *whose, "--net", "ip", "-batch", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": _PATH},
    )
    routes = "".join(f"route add blackhole {address}\n" for address in sorted(addresses))
    _, complaint = await process.communicate(routes.encode())
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().replace("\n", "; ")
        raise error(f"could not be kept from this host's addresses: {last}")


def _namespaces(pid: int) -> tuple[list[str], list[int]]:
    """How slirp4netns is told where to go, and the descriptors that this takes."""
    if os.geteuid() == 0:  # to the network alone: in the user namespace it could not open /dev/net/tun
        return ["--enable-sandbox", "--netns-type=path", f"/proc/{pid}/ns/net"], []
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    if os.fstat(owner).st_ino == os.stat(f"/proc/{pid}/ns/user").st_ino:
        return ["--enable-sandbox", str(pid)], [network, owner]
    # With one user its programs are one namespace further down, where slirp4netns cannot confine itself.
    return (
        [f"--userns-path=/proc/self/fd/{owner}", "--netns-type=path", f"/proc/self/fd/{network}"],
        [network, owner],
    )


async def connect(pid: int, error: Callable[[str], SandboxError]) -> Network:
    """Give the sandbox of this first process a network. Raises SandboxError."""
    path = program()
    if path is None:
        raise error(
            "needs a network, and slirp4netns and ip were not found: apt-get install slirp4netns iproute2"
        )
    await _close_ways_to_host(pid, error)
    ready_read, ready_write = os.pipe()
    exit_read, exit_write = os.pipe()
    where, namespaces = _namespaces(pid)
    process = await asyncio.create_subprocess_exec(
        *(path, "--configure", "--mtu=65520", "--disable-host-loopback"),
        *(f"--ready-fd={ready_write}", f"--exit-fd={exit_read}", *where, "tap0"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(ready_write, exit_read, *namespaces),
    )
    for fd in (ready_write, exit_read, *namespaces):
        os.close(fd)
    connected = False
    try:
        async with asyncio.timeout(_PATIENCE_S):
            connected = await asyncio.to_thread(os.read, ready_read, 1) == b"1"
            if connected:
                return Network(process, exit_write)
            assert process.stderr is not None
            complaint = (await process.stderr.read()).decode(errors="replace").strip().replace("\n", "; ")
    except TimeoutError:
        complaint = "no answer"
    finally:
        os.close(ready_read)
        if not connected:
            os.close(exit_write)
    await process.wait()
    raise error(f"could not get a network: slirp4netns: {complaint}")
