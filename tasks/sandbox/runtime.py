"""This process's side of the launcher (`tasks.sandbox.launcher`), which makes sandboxes.

There is one launcher for each process and store, started when the first sandbox is. When this process ends,
however it ends, the launcher and every sandbox end too.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.sandbox.base import SandboxError
from tasks.sandbox.launcher import identity
from tasks.sandbox.launcher.box import BoxSpec
from tasks.sandbox.launcher.identity import FIRST_HOST_ID

PATIENCE_S = 60.0
"""How long the launcher may take for one small duty on a busy host."""
SNAPSHOTS = "snapshots"
"""Folder of the store; a name in it begins with the PID of its owner."""
_LEFT_S = 3600.0
"""Age from which one without its owner is removed."""
_LARGEST_MESSAGE = 200_000
_HELP = (
    "it takes bubblewrap 0.8 or newer (apt-get install bubblewrap), Linux 6.6 or newer, and unprivileged "
    "user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)"
)


def default_store() -> Path:
    """Where bases, layers and snapshots are kept unless a configuration names a folder."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without an entry in passwd
        home = Path(tempfile.gettempdir(), f"cache-{os.getuid()}")
    return home / "obsspec" / "sandboxes"


def search_path() -> str:
    """Where bubblewrap, newuidmap and the like are looked for."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/bin", "/bin", "/usr/sbin"]).lstrip(os.pathsep)


@dataclass
class Program:
    """A program that runs in a sandbox."""

    pid: int
    """On the host."""
    ended: asyncio.Future[int]
    """Exit status, 128 + number of the signal that killed it."""


@dataclass
class _Pending:
    answer: asyncio.Future[dict[str, Any]]
    ended: asyncio.Future[int]


@dataclass
class Runtime:
    """Sandboxes of one store. Its methods belong to the running event loop; `shifted` are root file systems
    that belong to the host's root."""

    store: Path
    shifted: tuple[Path, ...] = ()
    has_users: bool = False
    """Whether sandboxes can have more than one user."""
    _socket: socket.socket | None = None
    _process: subprocess.Popen[bytes] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _gone: dict[int, asyncio.Event] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _starting: asyncio.Lock | None = None

    async def ready(self) -> None:
        """Start the launcher if it does not run. Raises SandboxError."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._attach(loop)
        assert self._starting is not None
        async with self._starting:
            if self._socket is None:
                await self._launch(loop)

    async def start(self, spec: BoxSpec, cgroups: list[int], name: str) -> int:
        """Start a sandbox and return the host PID of its first process. Raises SandboxError."""
        await self.ready()
        self._gone[spec.number] = asyncio.Event()
        try:
            answer = await self._request("start", name, cgroups, **asdict(spec))
        except SandboxError as error:
            self._gone.pop(spec.number, None)
            raise SandboxError(f"{error}: {_HELP}") from None
        return int(answer["pid"])

    async def stop(self, number: int, name: str) -> None:
        """End it and wait until nothing of it is left."""
        with suppress(SandboxError):
            await self._request("stop", name, number=number)
        self._gone.pop(number, None)

    def is_gone(self, number: int) -> bool:
        return number not in self._gone or self._gone[number].is_set()

    async def run(self, number: int, name: str, fds: dict[int, int], **program: Any) -> Program:
        """Start a program; `fds` gives each of its descriptors one of ours. Raises SandboxError."""
        request = self._send("run", list(fds.values()), number=number, numbers=list(fds), **program)
        pending = self._pending[request]
        answer = await self._answer(pending, name)
        return Program(int(answer["pid"]), pending.ended)

    async def duty(self, op: str, name: str, fds: list[int] | None = None, **fields: Any) -> Any:
        """A small duty of the launcher's: extract, read, kill, snapshot, ... Raises SandboxError."""
        answer = await self._request(op, name, fds or [], **fields)
        if answer.get("done", 0) != 0:
            raise SandboxError(f"{name}: the launcher could not {op} (status {answer['done']})")
        return answer.get("result")

    def token(self) -> str:
        """A name that nobody else uses in this store."""
        return f"{os.getpid()}-{secrets.token_hex(8)}"

    def next_number(self) -> int:
        return int(next(self._numbers))

    def close(self) -> None:
        """End the launcher and all its sandboxes."""
        self._end("was closed")
        process, self._process = self._process, None
        if process is not None:
            process.wait()

    async def _launch(self, loop: asyncio.AbstractEventLoop) -> None:
        prepare_store(self.store)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        root = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(  # noqa: ASYNC220  (it returns at once)
            [
                *(sys.executable, "-m", "tasks.sandbox.launcher"),
                *(str(theirs.fileno()), str(self.store), *map(str, self.shifted)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd="/",
            env={"PATH": search_path(), "PYTHONPATH": root, "LANG": "C.UTF-8"},
        )
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._pending[0] = hello = _Pending(loop.create_future(), loop.create_future())
        loop.add_reader(ours, self._receive)
        answer = await self._answer(hello, "sandboxes", "cannot be made on this machine", _HELP)
        self.has_users = bool(answer["users"])
        await self._remove_left()

    async def _remove_left(self) -> None:
        """Remove the snapshots of processes that were killed."""
        left = [
            f"{SNAPSHOTS}/{path.name}"
            for path in (self.store / SNAPSHOTS).glob("*-*")
            if path.stat().st_mtime < time.time() - _LEFT_S
            and not Path("/proc", path.name.split("-")[0]).exists()
        ]
        if left:
            await self.duty("remove", "snapshots", targets=left)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to another event loop; whatever the last one left is not ours any more."""
        self._pending, self._gone, self._starting = {}, {}, asyncio.Lock()
        if self._socket is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            loop.add_reader(self._socket, self._receive)
        self._loop = loop

    async def _request(
        self, op: str, name: str, fds: list[int] | None = None, **fields: Any
    ) -> dict[str, Any]:
        return await self._answer(self._pending[self._send(op, fds or [], **fields)], name)

    def _send(self, op: str, fds: list[int], **fields: Any) -> int:
        if self._socket is None or self._loop is None:
            raise SandboxError("the launcher of sandboxes has ended")
        request = self.next_number()
        data = json.dumps({"id": request, "op": op, **fields}).encode()
        if len(data) > _LARGEST_MESSAGE:
            raise SandboxError(f"a request of {len(data)} bytes is too long: shorten the environment")
        loop = self._loop
        self._pending[request] = _Pending(loop.create_future(), loop.create_future())
        try:
            socket.send_fds(self._socket, [data], fds)
        except BlockingIOError:
            del self._pending[request]
            raise SandboxError(
                "too many requests wait for the launcher: start fewer sandboxes at once"
            ) from None
        except OSError as error:
            del self._pending[request]
            raise SandboxError(f"the launcher of sandboxes has ended: {error.strerror}") from None
        return request

    async def _answer(
        self, pending: _Pending, name: str, prefix: str = "", suffix: str = ""
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await asyncio.shield(pending.answer)
        except TimeoutError:
            raise SandboxError(
                f"{name}: no answer within {PATIENCE_S:.0f} s: is the host overloaded?"
            ) from None
        if "error" in answer:
            parts = (prefix, answer["error"], suffix)
            raise SandboxError(f"{name}: " + ": ".join(part for part in parts if part))
        return answer

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_LARGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end("has ended")
            return
        message = json.loads(data)
        if (number := message.get("gone")) is not None:
            if number in self._gone:
                self._gone[number].set()
            return
        self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        request = message["id"]
        pending = self._pending.get(request)
        if pending is None:
            return
        if "exit" in message:
            del self._pending[request]
            if not pending.ended.done():
                pending.ended.set_result(message["exit"])
            return
        if not pending.answer.done():
            pending.answer.set_result(message)
        if "pid" not in message or "first" in message:
            del self._pending[request]

    def _end(self, why: str) -> None:
        """Whoever waits gets an error; the next sandbox starts a new launcher."""
        if self._socket is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._loop is not None and self._loop.is_closed():
            return
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_result({"error": f"the launcher of sandboxes {why}"})
            if not pending.ended.done():
                pending.ended.set_result(137)
        for event in self._gone.values():
            event.set()
        self._pending.clear()


@contextmanager
def memory_file(data: bytes = b"") -> Iterator[int]:
    """Descriptor of a nameless file in memory, at its beginning."""
    fd = os.memfd_create("obsspec", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def prepare_store(store: Path) -> None:
    """Make the folder; where root's sandboxes are others' users, it is theirs. Raises SandboxError."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0 and store.stat().st_uid != FIRST_HOST_ID:
            os.chown(store, FIRST_HOST_ID, FIRST_HOST_ID)
        store.chmod(0o700)
    except OSError as error:
        raise SandboxError(
            f"{store} cannot hold the sandboxes' layers ({error.strerror}): name another folder"
        ) from None


_runtimes: dict[tuple[Path, tuple[Path, ...]], Runtime] = {}


def runtime(store: Path | None = None, shifted: tuple[Path, ...] = ()) -> Runtime:
    """The one of this process for a store."""
    folder = (store or default_store()).resolve()
    if not identity.choose().has_users:  # files have other owners then
        folder = folder / "one-user"
    key = (folder, shifted)
    if key not in _runtimes:
        _runtimes[key] = Runtime(*key)
    return _runtimes[key]


@atexit.register
def _close_all() -> None:
    for one in _runtimes.values():
        one.close()
