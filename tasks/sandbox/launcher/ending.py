"""How processes inside are ended, or held for a moment, however they multiply or hide.

It is done from outside their PID namespace, where none of them can see or stop it; `/proc` is the sandbox's.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_PATIENCE_S = 1.0
"""How long processes are chosen one by one; one that forks and ends all the time is never caught that way."""
_PATIENCE_TO_THE_LAST_S = 20.0


@dataclass(frozen=True)
class _Process:
    pid: int
    """Inside."""
    fd: int
    """Its folder in /proc, which signals can be sent to: a PID may be another's by then."""
    state: str
    """Among them T and t: stopped, Z and X: ended."""
    parent: int
    began: int
    """In clock ticks since boot."""

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.fd, number)


def end_since(ticks: int, parent: int | None) -> None:
    """Kill `parent` and what it started at or after `ticks` (clock ticks since boot), orphans among it
    included.

    Processes from before are spared, with what they start. If that is never done, everything inside is
    killed.
    """
    deadline = time.monotonic() + _PATIENCE_S
    if parent is not None:
        _send(parent, signal.SIGSTOP)
    while time.monotonic() < deadline:
        found = {process.pid: process for process in _processes()}
        wanted = [
            process
            for process in found.values()
            if process.pid not in (1, parent)  # the parent last of all, so that its children still have it
            and process.state not in "ZX"
            and _is_of(process, parent, ticks, found)
        ]
        for process in wanted:
            process.send(signal.SIGKILL)
        for process in found.values():
            os.close(process.fd)
        if not wanted:
            if parent is not None:
                _send(parent, signal.SIGKILL)
            return
    end_all()


def end_all() -> None:
    """Kill everything inside but the first process, and wait until it is gone. Raises OSError."""
    deadline = time.monotonic() + _PATIENCE_TO_THE_LAST_S
    while time.monotonic() < deadline:
        for process in _processes():
            if process.pid != 1:
                process.send(signal.SIGKILL)
            os.close(process.fd)
        if not _kill_from_inside():
            return
        time.sleep(0.001)
    raise TimeoutError(errno.ETIMEDOUT, "it does not end", "a process inside")


def _kill_from_inside() -> bool:
    """Kill all at once, so that nobody can fork in between; whether there was anyone."""
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            os._exit(1)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):  # by one of them
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) != 1


def hold(say: int, go: int) -> None:
    """Stop all that runs, write a byte to `say`, and let it run on when `go` can be read."""
    held: dict[int, _Process] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found = list(_processes())
        moving = [process for process in found if process.pid != 1 and process.state not in "TtZX"]
        for process in moving:
            process.send(signal.SIGSTOP)
            held.setdefault(process.pid, process)
        for process in found:
            if held.get(process.pid) is not process:
                os.close(process.fd)
        if not moving:
            break
    os.write(say, b"0")
    os.read(go, 1)
    for process in held.values():
        process.send(signal.SIGCONT)


def pid_inside(pid: int) -> int | None:
    """The PID, in its own namespace, of a process by its host PID; to be asked outside."""
    with suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def _send(pid: int, number: int) -> None:
    with suppress(FileNotFoundError, ProcessLookupError):
        fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fd = os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # The name of its program, in parentheses, may hold anything.
            fields = _content("stat", fd).rpartition(b") ")[2].split()
        except OSError:
            os.close(fd)
            continue
        yield _Process(int(name), fd, fields[0].decode(), int(fields[1]), int(fields[19]))


def _content(name: str, folder: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _is_of(process: _Process, parent: int | None, ticks: int, found: dict[int, _Process]) -> bool:
    """Whether `parent` started it since, or one that has ended; what the host has started it did not."""
    above: _Process | None = process
    while above is not None and above.pid != 1:
        if above.began < ticks:
            return False
        if above.parent in (parent, 0):
            return above.parent == parent
        above = found.get(above.parent)
    return True
