"""The command that makes a sandbox: bubblewrap's arguments, and the environment inside.

What a sandbox sees is listed here and nothing else: the host's system folders read-only, generated
account files, a few devices, and private tmpfs of bounded size. No network, no host processes, no
further user namespaces. When the caller is root the host uid is dropped first, so that root in no
namespace is ever involved and the kernel's process limit binds.

Commands have no capability. PID 1 keeps one, the right to take it from them, because no process may trace,
write to, or take descriptors of one that has a capability more; it gives no power over anything else.
"""

from __future__ import annotations

import os
import shutil
from functools import cache

from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.programs import INIT, SHELL

UID = 1000
"""User and group of every process, inside."""
HOST_UID = 1_912_000_001
"""Unused host user that stands behind it when the caller is root; an ordinary caller keeps its own."""
WORK = "/work"
HOME = "/home/agent"

ETC = {
    "passwd": f"agent:x:{UID}:{UID}::{HOME}:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "group": f"agent:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Generated files below /etc."""

HIDDEN = ("/usr/src", "/usr/local/src")
"""Below the system folders, but where containers often keep their application, task directories included."""

_DATE = "2026-01-01T00:00:00+0000"
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "COLUMNS": "80",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@sandbox",
    "GIT_AUTHOR_DATE": _DATE,
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@sandbox",
    "GIT_COMMITTER_DATE": _DATE,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def environment(limits: SandboxLimits) -> dict[str, str]:
    """Environment of PID 1; the names that start with `__` are gone in the agent's shell."""
    return _ENVIRONMENT | {
        "__init": INIT,
        "__shell": SHELL,
        "__file_kb": str(limits.file_mb * 1024),
        "__memory_kb": str(limits.memory_mb * 1024),
        "__processes": str(limits.processes),
    }


def arguments(limits: SandboxLimits, etc_fds: dict[str, int], filter_fd: int) -> list[str]:
    """The whole command line; descriptors hold the text of each name in ETC, and the seccomp filter."""
    size = str(limits.file_mb * 1024 * 1024)

    def tmpfs(path: str, perms: str = "0755") -> list[str]:
        return ["--size", size, "--perms", perms, "--tmpfs", path]

    command = [
        *_drop_root(),
        *(_program("bwrap"), "--unshare-user", "--uid", str(UID), "--gid", str(UID), "--disable-userns"),
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1"),
        *("--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP", "--seccomp", str(filter_fd)),
        *_system_folders(),
        *("--perms", "0755", "--dir", "/etc"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--proc", "/proc", "--dev", "/dev"),
        *tmpfs("/dev/shm", "1777"),
        *tmpfs("/tmp", "1777"),
        *(*tmpfs(WORK), *tmpfs(HOME), *tmpfs("/tests"), *tmpfs("/logs")),
    ]
    for name, fd in etc_fds.items():
        command += ["--perms", "0644", "--file", str(fd), f"/etc/{name}"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    return [*command, "--", "bash", "-c", 'eval "$__init"', "init"]


@cache
def _program(name: str) -> str:
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/bin:/bin")
    if path is None:
        package = {"bwrap": "bubblewrap", "setpriv": "util-linux"}[name]
        raise SandboxError(
            f"{name} was not found, and sandboxes need it: install it, e.g. with apt-get install {package}"
        )
    return path


@cache
def _drop_root() -> list[str]:
    setpriv = _program("setpriv")  # which PID 1 needs too
    if os.geteuid() != 0:
        return []
    uid = str(HOST_UID)
    return [setpriv, "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs", "--"]


@cache
def _system_folders() -> list[str]:
    found = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            found += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            found += ["--ro-bind", path, path]
    for path in HIDDEN:
        if os.path.isdir(path):
            found += ["--size", "4096", "--perms", "0755", "--tmpfs", path, "--remount-ro", path]
    return found
