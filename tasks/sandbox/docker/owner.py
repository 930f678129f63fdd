"""To whom containers and snapshots belong, and how those of dead processes are removed.

A label names the machine, its boot, the PID namespace, the process and when that began. What another machine
or another container owns is left alone: whether its process lives cannot be known here.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from tasks.sandbox.docker.client import call

LABEL = "obsspec.owner"


@cache
def owner() -> str:
    """Of this process."""
    return "/".join((_machine(), _boot(), _namespace(), str(os.getpid()), _began(os.getpid())))


def is_dead(label: str) -> bool:
    """Whether the process that a label names is known to have ended."""
    machine, boot, namespace, pid, began = (label.split("/") + [""] * 5)[:5]
    if machine != _machine() or not pid.isdigit():
        return False
    if boot != _boot():
        return True
    return namespace == _namespace() and _began(int(pid)) != began


async def remove_leftovers() -> None:
    """Remove containers and snapshots whose process has died. Raises SandboxError without a daemon."""
    listed = await call("ps", "--all", "--no-trunc", f"--filter=label={LABEL}", "--format={{.ID}}")
    if dead := await _dead("container", "{{.Id}}", listed.stdout.decode().split()):
        await call("rm", "--force", "--volumes", *dead)
    listed = await call("images", "--quiet", "--no-trunc", f"--filter=label={LABEL}")
    if dead := await _dead("image", "{{.Id}}", listed.stdout.decode().split()):
        await call("rmi", "--force", *dead)


async def _dead(kind: str, name: str, found: list[str]) -> list[str]:
    if not found:
        return []
    form = f'{name} {{{{index .Config.Labels "{LABEL}"}}}}'
    # Some may have gone meanwhile: what is said of the others counts.
    answer = await call(kind, "inspect", f"--format={form}", *sorted(set(found)))
    lines = [line.split(" ", 1) for line in answer.stdout.decode().splitlines()]
    return [line[0] for line in lines if len(line) == 2 and is_dead(line[1])]


def _machine() -> str:
    with suppress(OSError):
        return Path("/etc/machine-id").read_text().strip() + "." + socket.gethostname()
    return socket.gethostname()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _began(pid: int) -> str:
    """Clock ticks since boot; empty when there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()[19]
    return ""
