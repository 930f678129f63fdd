"""Which users exist inside sandboxes, and who stands behind them on the host.

Root gives a range of 65,536 ids that nobody else uses. An ordinary user gives the range that `/etc/subuid`
and `/etc/subgid` grant (through `newuidmap`), or, without one, only itself: then a sandbox has one user.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.sandbox.launcher import linux

FIRST_HOST_ID = 1_912_000_000
"""Where the range of root's sandboxes begins, among ids that no distribution hands out."""
COUNT = 65_536


@dataclass(frozen=True)
class IdMap:
    """Lines of a `uid_map` and a `gid_map`: id inside, id outside, how many."""

    users: tuple[tuple[int, int, int], ...]
    groups: tuple[tuple[int, int, int], ...]

    @property
    def has_users(self) -> bool:
        """Whether there is more than one user inside."""
        return sum(count for _, _, count in self.users) > 1


def choose() -> IdMap:
    """The widest map that this process may have."""
    if os.geteuid() == 0:
        line = ((0, FIRST_HOST_ID, COUNT),)
        return IdMap(line, line)
    users, groups = _granted("/etc/subuid", os.getuid()), _granted("/etc/subgid", os.getgid())
    if users and groups and shutil.which("newuidmap") and shutil.which("newgidmap"):
        return IdMap(users, groups)
    return IdMap(((0, os.getuid(), 1),), ((0, os.getgid(), 1),))


def new_user_namespace(id_map: IdMap) -> int:
    """Descriptor of a user namespace with this map, owned by the caller. Raises OSError."""
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go_write)
            linux.unshare(linux.CLONE_NEWUSER)
            os.write(ready_write, b"0")
            os.read(go_read, 1)
        except OSError as error:
            os.write(ready_write, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(ready_write)
    os.close(go_read)
    try:
        if failure := int(os.read(ready_read, 16) or b"0"):
            raise OSError(failure, os.strerror(failure), "a new user namespace")
        write_map(pid, id_map)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(go_write)
        os.close(ready_read)
        os.waitpid(pid, 0)


def write_map(pid: int, id_map: IdMap) -> None:
    """Give the user namespace that process `pid` has just made its ids."""
    if id_map.has_users and os.geteuid() != 0:
        for program, lines in (("newuidmap", id_map.users), ("newgidmap", id_map.groups)):
            numbers = [str(number) for line in lines for number in line]
            run = subprocess.run([program, str(pid), *numbers], capture_output=True)
            if run.returncode != 0:
                raise OSError(run.returncode, run.stderr.decode(errors="replace").strip(), program)
        return
    if not id_map.has_users:
        Path(f"/proc/{pid}/setgroups").write_text("deny")
    for name, lines in (("uid_map", id_map.users), ("gid_map", id_map.groups)):
        Path(f"/proc/{pid}/{name}").write_text("".join(f"{a} {b} {n}\n" for a, b, n in lines))


def same_inside(id_map: IdMap) -> IdMap:
    """The map of a user namespace below one that has `id_map`, with the same ids."""

    def flat(lines: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        return tuple((inside, inside, count) for inside, _, count in lines)

    return IdMap(flat(id_map.users), flat(id_map.groups))


def _granted(
    file: str, own: int, names: Callable[[], str] = getpass.getuser
) -> tuple[tuple[int, int, int], ...]:
    """Own id as 0, then the first granted range of 65,535 ids at least; empty without one."""
    try:
        lines = Path(file).read_text().splitlines()
        user = names()
    except (OSError, KeyError):
        return ()
    for line in lines:
        name, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if name in (user, str(os.getuid())) and count.strip().isdigit() and int(count) >= COUNT - 1:
            return ((0, own, 1), (1, int(first), COUNT - 1))
    return ()
