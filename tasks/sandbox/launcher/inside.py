"""How the launcher gets into a sandbox: to run a program as one of its users, or for a small duty as its
root.

Each runs in a process of its own that joins the sandbox's namespaces. From there no path leads to the host.
Until it has become the program, nothing inside may look into it, and it imports nothing: what Python would
find there is the sandbox's. Duties stay out of the PID namespace, so nothing inside sees them or can send
them a signal.
"""

from __future__ import annotations

import fcntl
import grp  # noqa: F401  (tarfile looks for it)
import os
import pwd  # noqa: F401
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tasks.sandbox.launcher import accounts, linux
from tasks.sandbox.launcher.accounts import AccountError
from tasks.sandbox.launcher.box import Box

CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 10, 13, 18, 27, 29, 31})
"""Of root inside: those that Docker gives, less the right to hand capabilities on (SETPCAP)."""

_ABOVE_NUMBERS = 256
"""No program's descriptor has a number as high."""


class InsideError(Exception):
    """One sentence for the caller."""


def enter(box: Box, action: Callable[[], None]) -> int:
    """Run `action` in a new process of the sandbox, in its control groups, and return its host PID. It
    becomes a child of the launcher, which is the subreaper. Raises InsideError, OSError."""
    said, say = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        os.close(said)
        os.close(say)
        raise
    if middle == 0:
        try:
            _join(box)
            pid = os.fork()
            if pid:
                os.write(say, str(pid).encode())
                os._exit(0)
            os.close(say)
            for fd in box.cgroups:  # not before: a full group would refuse the fork
                os.write(fd, b"0")
            linux.unshare(linux.CLONE_NEWCGROUP)  # seen from inside, groups have no names
            action()
        except OSError as error:
            os.write(say, f"! {error.strerror}".encode())
        finally:
            os._exit(1)
    os.close(say)
    os.waitpid(middle, 0)
    answer = os.read(said, 1024).decode()
    os.close(said)
    if not answer.isdigit():
        raise InsideError(f"cannot be entered{answer.replace('!', ':')}: is it gone?")
    return int(answer)


def visit(box: Box, action: Callable[[], None]) -> int:
    """Run `action` among the sandbox's files as its root, in a new process that is none of its own; returns
    the host PID. The status is 0 if the action ends."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _join(box)
            action()
            status = 0
        finally:
            os._exit(status)
    return pid


def _honour_setuid() -> None:
    """Let setuid programs of this sandbox (of a build, and so of nobody else) be what they say."""
    for folder in ("/", "/usr"):
        with suppress(OSError):  # /usr is no mount of its own over a base with one root
            linux.mount("none", folder, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NODEV)


def _join(box: Box) -> None:
    """Join all namespaces; in that of PIDs only our children will be."""
    linux.be_unreadable()
    sys.meta_path.clear()
    linux.setns(box.first_fd, linux.ALL_NAMESPACES)


@dataclass(frozen=True)
class Program:
    """A program to run inside."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: str
    """`name`, `uid`, and either with `:group`."""
    limits: dict[str, tuple[int, int]]
    """Soft and hard limit by the name of the resource."""
    numbers: list[int]
    """Which descriptors it has, in the order in which they were sent."""
    any_user: bool
    """Whether there are users to choose from."""
    seccomp: bytes
    new_privileges: bool = False
    """Whether programs may gain what their mode says (in a build)."""

    def become(self, fds: list[int]) -> None:
        """Never returns; what goes wrong is written to its descriptor 2, and the status is 126 or 127."""
        status = 126
        try:
            _arrange(fds, self.numbers)
            try:
                self._become()
            except FileNotFoundError as error:
                status = 127
                os.write(2, f"{self._culprit(error)}: not found in the sandbox\n".encode())
            except OSError as error:
                os.write(2, f"{self._culprit(error)}: {error.strerror}\n".encode())
            except (AccountError, ValueError) as error:
                os.write(2, f"{error}\n".encode())
        finally:
            os._exit(status)

    def _culprit(self, error: OSError) -> str:
        """The file; the search for a program ends with a path that nobody wrote."""
        return error.filename if isinstance(error.filename, str) else self.argv[0]

    def _become(self) -> None:
        env = dict(self.env)
        os.umask(0o022)
        os.setsid()
        gains = self.new_privileges and self.any_user
        if gains:
            _honour_setuid()
            linux.filter_calls(self.seccomp)  # now, while we may
        if not self.any_user:
            linux.bound_capabilities(frozenset())
        else:
            account = accounts.find(self.user)
            linux.bound_capabilities(CAPABILITIES if account.uid == 0 or gains else frozenset())
            env.setdefault("HOME", account.home)
            os.setgroups(account.groups)
            os.setresgid(account.gid, account.gid, account.gid)
            os.setresuid(account.uid, account.uid, account.uid)
        linux.be_unreadable()
        env.setdefault("HOME", "/")
        os.chdir(self.cwd)
        for name, wanted in self.limits.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            most = resource.getrlimit(kind)[1]  # which we may not raise
            bound = [value if most == resource.RLIM_INFINITY else min(value, most) for value in wanted]
            resource.setrlimit(kind, (bound[0], bound[1]))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not gains:
            linux.gain_nothing()
            linux.filter_calls(self.seccomp)
        os.execvpe(self.argv[0], self.argv, env)


def _arrange(fds: list[int], numbers: list[int]) -> None:
    """Give each descriptor its number, and close all others."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_NUMBERS) for fd in fds]
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)
    kept = sorted(numbers)
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for low, high in zip([-1, *kept], [*kept, highest], strict=True):
        if low + 1 < high:  # an empty range at 0 closes everything
            os.closerange(low + 1, high)
