"""A process that does not outlive its parent, however the parent ends (`kill -9` included).

Run as a script, it becomes a command that dies with its parent: `lifetime.py PARENT_PID COMMAND…`.
Only the standard library, and as little of it as that takes, since every start waits for it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PARENT = "OBSSPEC_PARENT_PID"


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, its parent, ends; end now if it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def launcher() -> list[str]:
    """What to put before a command so that it dies with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid())]


def bind_descendants() -> None:
    """Have processes forked by this one die with it, and those of theirs with them.

    A spawned process cannot inherit that: it calls `follow_parent` first thing. A forked one that calls
    this again changes nothing.
    """
    if os.environ.get(_PARENT) != str(os.getpid()):
        os.environ[_PARENT] = str(os.getpid())
        os.register_at_fork(after_in_child=follow_parent)


def follow_parent() -> None:
    """In a child of a process that called `bind_descendants`: die with it."""
    die_with(int(os.environ[_PARENT]))
    os.environ[_PARENT] = str(os.getpid())


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
