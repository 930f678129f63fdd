"""One sandbox as the launcher sees it: its root file system, its namespaces, its first process.

The root is an overlay: what is written goes to a tmpfs of bounded size (or, in a build, to a folder of the
store), over the layers of the image, over the base. Where the base is the host's own system, `/usr` is a
second overlay, over the host's `/usr`, because an overlay does not look through mounts.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.sandbox.launcher import identity, linux, places
from tasks.sandbox.launcher.identity import IdMap

FIRST_PROCESS = "trap '' CHLD; printf '\\0'; exec sleep 2147483647"
"""Does nothing for ever; the kernel shields it from signals from inside, and reaps orphans that nobody waits
for."""
_HIDDEN_IN_PROC = ("kcore", "keys", "key-users", "timer_list", "latency_stats", "sysrq-trigger", "kmsg")
_INODES_PER_MB = 256
"""Files have 4 kB on the average at least; small ones take memory beyond their size."""
_LONGEST_COMPLAINT = 64 * 1024
_MOST_OF_USER = {"max_user_namespaces": "0", "max_inotify_instances": "32"}
"""What the host bounds for each user: one sandbox may not take what all need."""
_CAPABILITY_OF_FIRST = "CAP_WAKE_ALARM"
"""Good for nothing but this: no process may trace or read one that has a capability more."""


@dataclass(frozen=True)
class BoxSpec:
    """What a sandbox is made of; names are of folders in the store, topmost layer first."""

    number: int
    layers: tuple[str, ...]
    base: str
    """Folder of the base: `root` and, over the host's system, `usr` in it; or `shifted:N`."""
    host_usr: bool
    upper: str | None
    """Folder of the store that takes what is written; None: a tmpfs."""
    disk_mb: int
    uid: int
    gid: int
    """The one user, where there is only one."""
    hostname: str

    @classmethod
    def parse(cls, values: dict[str, Any]) -> BoxSpec:
        return cls(**values | {"layers": tuple(values["layers"])})


@dataclass
class Box:
    spec: BoxSpec
    bwrap: int = 0
    first: int = 0
    """Host PID of the first process inside."""
    first_fd: int = -1
    """Its pidfd."""
    cgroups: list[int] = field(default_factory=list)
    """Descriptors of the files that take a process into the sandbox's control groups."""
    info: int = -1
    """Where bubblewrap says its child's PID."""
    ready: int = -1
    """Where bubblewrap complains, and the first process says that it runs."""
    said: bytes = b""
    """What was read there."""

    @property
    def folder(self) -> str:
        return places.box(self.spec.number)

    @property
    def upper(self) -> str:
        return places.in_store(self.spec.upper) if self.spec.upper else f"{self.folder}/upper"

    def start(self, id_map: IdMap, program: bytes) -> None:
        """Begin; `hear` when `ready` is readable. `program` is the seccomp filter. Raises OSError."""
        os.mkdir(self.folder)
        size = f"size={self.spec.disk_mb}m,nr_inodes={self.spec.disk_mb * _INODES_PER_MB},mode=755"
        linux.mount("tmpfs", self.folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, size)
        for part in self._parts():
            os.makedirs(f"{self.upper}/{part}", exist_ok=True)
            os.makedirs(f"{self._work}/{part}", exist_ok=True)
        os.mkdir(f"{self.folder}/merged")
        os.mkdir(f"{self.folder}/shm")
        os.chmod(f"{self.folder}/shm", 0o1777)
        self.ready, ready = os.pipe()
        os.set_blocking(self.ready, False)
        self.info, info = os.pipe()
        go_read, go_write = os.pipe()
        mapped, mapped_write = os.pipe()
        self.bwrap = os.fork()
        if self.bwrap == 0:
            _or_die(lambda: self._become_bwrap(id_map, program, go_read, mapped_write, ready, info), ready)
        for fd in (ready, info, mapped_write, go_read):
            os.close(fd)
        if id_map.has_users and os.read(mapped, 1):
            identity.write_map(self.bwrap, identity.same_inside(id_map))
        with suppress(BrokenPipeError):  # it ended before: `ready` says why
            os.write(go_write, b"\n")
        os.close(go_write)
        os.close(mapped)

    def hear(self) -> str | None:
        """What came out of the start: an empty string if it runs, why it does not, or None if that is open
        yet."""
        try:
            data = os.read(self.ready, 4096)
        except BlockingIOError:  # bubblewrap has ended, and the first process has not quite
            data = b""
        self.said += data
        if b"\0" in data:
            self.first = int(json.loads(os.read(self.info, 4096))["child-pid"])
            self.first_fd = os.pidfd_open(self.first)
            return ""
        if data and len(self.said) < _LONGEST_COMPLAINT:
            return None
        return self.said.decode(errors="replace").strip().replace("\n", "; ") or "no reason was given"

    def close_ready(self) -> None:
        for fd in (self.ready, self.info):
            os.close(fd)
        self.ready = self.info = -1

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.first_fd >= 0:
                signal.pidfd_send_signal(self.first_fd, signal.SIGKILL)
            else:
                os.kill(self.bwrap, signal.SIGKILL)

    def remove(self) -> None:
        """Free all that it had, once bubblewrap has ended."""
        for fd in (self.first_fd, self.ready, self.info, *self.cgroups):
            if fd >= 0:
                os.close(fd)
        self.first_fd = self.ready = self.info = -1
        self.cgroups = []
        if self.spec.upper:
            shutil.rmtree(self._work, ignore_errors=True)
        with suppress(OSError):
            linux.unmount(self.folder)
        with suppress(OSError):
            os.rmdir(self.folder)

    @property
    def _work(self) -> str:
        """The overlays' own folder, beside the upper one as they ask for."""
        return f"{self.upper}.work" if self.spec.upper else f"{self.folder}/work"

    def _parts(self) -> tuple[str, ...]:
        return ("root", "usr") if self.spec.host_usr else ("root",)

    def _become_bwrap(
        self, id_map: IdMap, program: bytes, go: int, mapped: int, ready: int, info: int
    ) -> None:
        linux.unshare(linux.CLONE_NEWNS | (linux.CLONE_NEWUSER if id_map.has_users else 0))
        os.write(mapped, b"\n")
        os.read(go, 1)
        os.dup2(ready, 2)
        if id_map.has_users:
            for name, most in _MOST_OF_USER.items():
                Path("/proc/sys/user", name).write_text(most)
        merged = f"{self.folder}/merged"
        self._mount_overlay("root", merged)
        if self.spec.host_usr:
            self._mount_overlay("usr", f"{merged}/usr")
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(ready, 1)
        filter_read, filter_write = os.pipe()
        os.write(filter_write, program)
        os.close(filter_write)
        kept = (info, filter_read)
        for fd in kept:
            os.set_inheritable(fd, True)
        os.chdir("/")
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise FileNotFoundError(errno.ENOENT, "not found", "bwrap")
        os.execve(bwrap, self._arguments(merged, id_map, *kept), {"PATH": os.defpath})

    def _mount_overlay(self, part: str, target: str) -> None:
        lower = [places.in_store(layer) for layer in self.spec.layers]
        base = self.spec.base
        shifted = base.startswith("shifted:")
        folders = [f"{layer}/{part}" for layer in lower if os.path.isdir(f"{layer}/{part}")]
        folders.append(f"{places.SHIFTED}/{int(base[8:])}" if shifted else f"{places.in_store(base)}/{part}")
        if part == "usr":
            folders.append(places.USR)
        os.chdir(places.HERE)  # relative names are shorter, and there is one page for all of them
        names = ":".join(os.path.relpath(folder, places.HERE) for folder in folders)
        options = f"lowerdir={names},upperdir={self.upper}/{part},workdir={self._work}/{part},userxattr"
        linux.mount("overlay", target, "overlay", 0, options + (",volatile" if self.spec.upper else ""))

    def _arguments(self, merged: str, id_map: IdMap, info: int, program: int) -> list[str]:
        spec = self.spec
        one_user = ["--unshare-user", "--uid", str(spec.uid), "--gid", str(spec.gid), "--disable-userns"]
        command = [
            *("bwrap", *([] if id_map.has_users else one_user)),
            *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *("--hostname", spec.hostname, "--die-with-parent", "--new-session", "--as-pid-1"),
            *("--cap-drop", "ALL", "--cap-add", _CAPABILITY_OF_FIRST),
            *("--seccomp", str(program), "--info-fd", str(info)),
            *("--bind", merged, "/", "--proc", "/proc", "--dev", "/dev"),
            *("--bind", f"{self.folder}/shm", "/dev/shm"),
        ]
        for name in _HIDDEN_IN_PROC:
            if Path("/proc", name).exists():
                command += ["--ro-bind", "/dev/null", f"/proc/{name}"]
        return [*command, "--remount-ro", "/dev", "--chdir", "/", "--", "bash", "-c", FIRST_PROCESS]


def _or_die(action: Any, complaint: int) -> None:
    """Run `action`, which should never return, in a child that must never go on."""
    try:
        action()
    except OSError as error:
        os.write(complaint, f"{error.filename or 'a call of the system'}: {error.strerror}".encode())
    except BaseException as error:
        os.write(complaint, str(error).encode())
    finally:
        os._exit(1)
