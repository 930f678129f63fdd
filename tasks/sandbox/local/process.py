"""Processes of the host, each the leader of a session, and how to end all that one of them started.

A process belongs to a sandbox when it descends from a leader that lives, is in the session of one, or has the
sandbox's folder as HOME: that finds what was started with `setsid` or outlived its parent. One that leaves
its session, its parent and its environment escapes; so does one of another user.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.sandbox.base import SandboxError

_START = 'ulimit -c 0 -f "$1" 2>/dev/null; cd -- "$2" && unset OLDPWD && shift 2 && exec "$@"'
"""Becomes the program: the PID stays, which the shell's control socket knows it by."""


@dataclass
class Process:
    """A program that was started here."""

    pid: int
    ended: asyncio.Future[int]
    """Exit status, 128 + number of the signal that killed it."""


def start(
    argv: Sequence[str], fds: Mapping[int, int], env: Mapping[str, str], cwd: str, file_mb: int
) -> Process:
    """Start a program in a session of its own; `fds` gives each of its descriptors one of ours."""
    bash = shutil.which("bash")
    if bash is None:
        raise SandboxError("a local sandbox takes bash: install it")
    pid = os.posix_spawn(
        bash,
        ["bash", "-c", _START, "bash", str(file_mb << 10), cwd, *argv],
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, number) for number, ours in fds.items()],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
    )
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    pidfd = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not ended.done():
            ended.set_result(status if status >= 0 else 128 - status)

    loop.add_reader(pidfd, reap)
    return Process(pid, ended)


@dataclass(frozen=True)
class _Status:
    state: str
    parent: int
    session: int
    began: int


def kill_since(
    ticks: int, leader: int | None, home: str, leaders: frozenset[int], spared: frozenset[int]
) -> None:
    """Kill `leader`, what it started at or after `ticks` (clock ticks since boot), and what else began after
    and belongs to the sandbox by one of its `leaders` or its folder; not the leaders `spared` and theirs."""
    if leader is not None:
        _send(leader, signal.SIGSTOP)  # it starts nothing more
    while True:
        found = {pid: status for pid in _pids() if (status := _status(pid)) is not None}
        wanted = []
        for pid, status in found.items():
            if pid == leader or status.state == "Z" or status.began < ticks:
                continue
            over = _leaders_over(pid, found)
            if over & spared:
                continue
            if leader in over or (status.began > ticks and (over & leaders or _has_home(pid, home))):
                wanted.append(pid)
        if not wanted:
            break
        for pid in wanted:
            _send(pid, signal.SIGKILL)
    if leader is not None:
        _send(leader, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _status(pid: int) -> _Status | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(") ")[2].split()
    return _Status(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _has_home(pid: int, home: str) -> bool:
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return b"\0HOME=%s\0" % os.fsencode(home) in environment


def _leaders_over(pid: int, found: Mapping[int, _Status]) -> set[int]:
    """Itself, what it descends from, and the leaders of all their sessions."""
    over: set[int] = set()
    while pid in found and pid not in over:
        over |= {pid, found[pid].session}
        pid = found[pid].parent
    return over
