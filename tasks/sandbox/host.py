"""The host's own system as the base of sandboxes, and the world of the built-in tasks on it.

Of the host a sandbox sees `/usr`, without sources that may be somebody's work, and a copy, made once, of
what the installed packages put into `/etc` and `/var` and everybody may read: nothing that people made
there. Home folders, mounts, services and accounts of people stay out.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tasks.sandbox.base import SandboxError
from tasks.sandbox.image import Base, Image, ImageConfig
from tasks.sandbox.network import RESOLVER
from tasks.sandbox.runtime import Runtime, memory_file
from tasks.sandbox.tree import Tree, packed

UID = 1000
WORK = "/work"
HOME = "/home/agent"
_VERSION = "3"
"""Of what this module makes; part of the names."""

_DATE = "2026-01-01T00:00:00+0000"
AGENT = ImageConfig(
    user="agent",
    workdir=WORK,
    env={
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TZ": "UTC",
        "GIT_AUTHOR_NAME": "agent",
        "GIT_AUTHOR_EMAIL": "agent@sandbox",
        "GIT_AUTHOR_DATE": _DATE,
        "GIT_COMMITTER_NAME": "agent",
        "GIT_COMMITTER_EMAIL": "agent@sandbox",
        "GIT_COMMITTER_DATE": _DATE,
        "GIT_CONFIG_NOSYSTEM": "1",
    },
)
"""How programs run in the world of the built-in tasks."""

_PACKAGES = Path("/var/lib/dpkg")
_MADE_BY_PACKAGES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ca-certificates.conf",
    "/etc/apt/trusted.gpg.d",
    "/etc/pip.conf",
    "/etc/xdg/pip",
    "/etc/shells",
    "/etc/java-*",
    "/var/lib/dpkg",
    "/var/lib/ucf",
    "/var/lib/pam",
    "/var/cache/debconf/config.dat",
    "/var/cache/debconf/templates.dat",
)
"""Not in any package's list of files; the names may be patterns."""
_PRIVATE = (
    "/etc/ssh",
    "/etc/sudoers",
    "/etc/cron",
    "/etc/docker",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/fstab",
)
"""In packages' lists, but what they hold says something of this host."""
_KEEP_NO_PACKAGES = """\
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb || true"; };
"""
"""As in Docker's images: apt-get leaves no packages and no indexes of them in a layer."""
_SOURCES = ("src", "local/src")
"""Below /usr, where containers often keep their application, task directories included."""
_FOLDERS = {
    "usr": 0o755,
    "proc": 0o555,
    "sys": 0o555,
    "dev": 0o755,
    "tmp": 0o1777,
    "run": 0o755,
    "run/lock": 0o1777,
    "home": 0o755,
    "root": 0o700,
    "mnt": 0o755,
    "media": 0o755,
    "opt": 0o755,
    "srv": 0o755,
    "boot": 0o755,
    "etc": 0o755,
    "var": 0o755,
    "var/tmp": 0o1777,
    "var/log": 0o755,
    "var/lib": 0o755,
    "var/cache": 0o755,
}
_LINKS = {
    "var/run": "/run",
    "var/lock": "/run/lock",
    "etc/localtime": "/usr/share/zoneinfo/Etc/UTC",
    "etc/mtab": "/proc/self/mounts",
}
NETWORK_FILES = {
    "hostname": "sandbox\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "resolv.conf": f"nameserver {RESOLVER}\n",
}
"""Below /etc of every base."""


Accounts = tuple[tuple[str, str], ...]
"""Files below /etc, name and text."""


async def host_base(runtime: Runtime) -> Base:
    """The base over the host's system, made if the store lacks it for its state. Raises SandboxError."""
    await runtime.ready()
    folder = f"bases/host-{_digest(_state())}"
    await ensure(runtime, folder, _write_base)
    return Base(folder)


async def agent_image(runtime: Runtime) -> Image:
    """The world of the built-in tasks: a user `agent`, a home, a folder `/work`. Raises SandboxError."""
    base = await host_base(runtime)
    accounts = _accounts((("agent", UID, HOME, "/bin/bash"),))
    folder = f"bases/agent-{_digest(accounts)}"
    await ensure(runtime, folder, lambda tar: _write_agent(tar, accounts))
    return Image(base, (folder,), AGENT, UID)


async def ensure(runtime: Runtime, folder: str, write: Callable[[Tree], None]) -> None:
    """Make a folder of the store, unless it is there: whole or not at all. Raises SandboxError."""
    if (runtime.store / folder).is_dir():
        return
    try:
        data = await asyncio.to_thread(packed, write)
    except OSError as error:
        raise SandboxError(
            f"{error.filename} cannot be read for a sandbox's base: {error.strerror}"
        ) from None
    with memory_file(data) as fd:
        await runtime.duty("unpack", folder, [fd], target=folder)


def _write_base(tree: Tree) -> None:
    for name, mode in _FOLDERS.items():
        tree.folder(f"root/{name}", mode)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            tree.link(f"root/{name}", os.readlink(f"/{name}"))
        elif os.path.isdir(f"/{name}"):
            raise SandboxError(
                f"/{name} is a folder of its own here: sandboxes over the host's system need it below /usr; "
                "name another base in the config (sandbox.bases)"
            )
    for name, target in _LINKS.items():
        tree.link(f"root/{name}", target)
    for name, text in (*NETWORK_FILES.items(), ("timezone", "Etc/UTC\n"), *_accounts(())):
        tree.text(f"root/etc/{name}", text, 0o640 if name.endswith("shadow") else 0o644)
    for name in ("dot.bashrc", "dot.profile"):
        tree.copy(f"/usr/share/base-files/{name}", f"root/root/{name.removeprefix('dot')}")
    tree.text("root/etc/apt/sources.list", _sources())
    tree.text("root/etc/apt/apt.conf.d/docker-clean", _KEEP_NO_PACKAGES)
    for path in _of_packages():
        tree.copy(path, f"root{path}")
    tree.folder("usr")
    for name in _SOURCES:
        tree.folder(f"usr/{name}", opaque=True)
    # As in most images: what pip installs is the image's own affair.
    for mark in Path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED"):
        tree.gone(str(mark).removeprefix("/"))


def _write_agent(tree: Tree, accounts: Accounts) -> None:
    for name, text in accounts:
        tree.text(f"root/etc/{name}", text, 0o640 if name.endswith("shadow") else 0o644)
    tree.folder("root/home")
    tree.folder(f"root{HOME}", owner=UID)
    tree.folder(f"root{WORK}", owner=UID)


def _of_packages() -> Iterator[str]:
    """Files below /etc and /var that packages brought or made, parents first."""
    found = {path for pattern in _MADE_BY_PACKAGES for path in _below(pattern)}
    for file in (_PACKAGES / "info").glob("*.list"):
        lines = file.read_text(errors="surrogateescape").splitlines()
        found |= {line for line in lines if line.startswith(("/etc/", "/var/"))}
    return iter(sorted(path for path in found if not path.startswith(_PRIVATE)))


def _sources() -> str:
    """The distribution's own package sources, one a line; others are this host's own affair."""
    found = []
    for file in sorted([*glob.glob("/etc/apt/sources.list.d/*.list"), "/etc/apt/sources.list"]):
        with suppress(OSError):
            found += [line for line in _lines(file) if line.startswith("deb ") and _is_distribution(line)]
    for file in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
        for stanza in Path(file).read_text(errors="replace").split("\n\n"):
            pairs = (
                line.split(":", 1) for line in stanza.splitlines() if ":" in line and line[0] not in "# "
            )
            values = {key.strip().lower(): value.strip() for key, value in pairs}
            if values.get("enabled", "yes") == "no" or not _is_distribution(values.get("uris", "")):
                continue
            key = f"[signed-by={values['signed-by']}] " if values.get("signed-by", "").startswith("/") else ""
            for suite in values.get("suites", "").split():
                found.append(f"deb {key}{values['uris'].split()[0]} {suite} {values.get('components', '')}")
    return "".join(f"{line}\n" for line in dict.fromkeys(found))


def _is_distribution(text: str) -> bool:
    return any(
        f"{name}.org/" in text or f"{name}.com/" in text or f"/{name}" in text
        for name in ("debian", "ubuntu")
    )


def _below(pattern: str) -> Iterator[str]:
    for top in glob.glob(pattern):
        yield top
        for folder, folders, files in os.walk(top):
            yield from (os.path.join(folder, name) for name in (*folders, *files))


def _accounts(people: tuple[tuple[str, int, str, str], ...]) -> Accounts:
    """The host's system accounts, without passwords, and these people: name, number, home, shell."""
    users = [line.split(":") for line in _lines("/etc/passwd")]
    groups = [line.split(":") for line in _lines("/etc/group")]
    users = [user for user in users if len(user) == 7 and _is_system(user[2])]
    groups = [[*group[:3], ""] for group in groups if len(group) == 4 and _is_system(group[2])]
    for name, number, home, shell in people:
        users.append([name, "x", str(number), str(number), "", home, shell])
        groups.append([name, "x", str(number), ""])
    lines = {
        "passwd": [":".join([user[0], "x", *user[2:]]) for user in users],
        "group": [":".join([group[0], "x", *group[2:]]) for group in groups],
        "shadow": [f"{user[0]}:*:19700:0:99999:7:::" for user in users],
        "gshadow": [f"{group[0]}:*::" for group in groups],
    }
    return tuple((name, "".join(f"{line}\n" for line in of)) for name, of in lines.items())


def _is_system(number: str) -> bool:
    return number.isdigit() and (int(number) < 1000 or int(number) == 65534)


def _lines(file: str) -> list[str]:
    return Path(file).read_text(errors="replace").splitlines()


def _state() -> object:
    """What tells one state of the host's packages from another."""
    paths = (_PACKAGES / "status", Path("/etc/ld.so.cache"), Path("/etc/alternatives"), Path("/etc/apt"))
    seen = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths if path.exists()]
    return _VERSION, _accounts(()), seen


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
