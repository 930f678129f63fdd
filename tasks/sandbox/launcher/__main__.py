"""The launcher: one process, beside the one that uses sandboxes, in which they are made.

It takes requests on a socket that it inherits: one JSON object a message, with descriptors. Every request has
one answer, in any order; a program that was run has a second message, `exit`, when it has ended. When the
socket's other end is gone, so is the launcher, and with it every sandbox.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tasks.sandbox import seccomp
from tasks.sandbox.launcher import accounts, copying, duties, ending, inside, linux, places
from tasks.sandbox.launcher.box import Box, BoxSpec
from tasks.sandbox.launcher.inside import InsideError, Program
from tasks.sandbox.launcher.setup import leave_host

LARGEST_MESSAGE = 200_000
MOST_DESCRIPTORS = 16


class Launcher:
    def __init__(self, channel: socket.socket, store: str, shifted: list[str]):
        self._channel = channel
        self._id_map = leave_host(store, shifted)
        self._seccomp = seccomp.program()
        self._boxes: dict[int, Box] = {}
        self._starting: dict[int, int] = {}
        """Request that started a sandbox which does not run yet, by its number."""
        self._stopping: dict[int, list[int]] = {}
        """Requests to be answered when a sandbox is gone, by its number."""
        self._programs: dict[int, int] = {}
        """Request that started a program, by its host PID; negative for a duty."""
        self._visits: dict[int, int] = {}
        """Sandbox of a duty, by its host PID: it would not end with the other processes of that sandbox."""
        self._selector = selectors.DefaultSelector()
        self._wake_read, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        linux.be_subreaper()

    def run(self) -> None:
        """Until the other end of the socket is closed."""
        self._answer(0, users=self._id_map.has_users)
        self._selector.register(self._channel, selectors.EVENT_READ, self._receive)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._reap)
        while True:
            for key, _ in self._selector.select():
                if key.data() is False:
                    return

    def _receive(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, LARGEST_MESSAGE, MOST_DESCRIPTORS)
        except ConnectionError:
            return False
        if not data:
            return False
        for fd in fds:
            os.set_inheritable(fd, False)
        request = json.loads(data)
        number = request.pop("id")
        try:
            getattr(self, f"_do_{request.pop('op')}")(number, fds, **request)
        except (InsideError, ValueError) as error:
            self._answer(number, error=str(error))
        except OSError as error:  # no process or descriptor left, say: other sandboxes must not end with it
            self._answer(number, error=f"the host refuses it: {error.strerror}")
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _answer(self, request: int, **fields: Any) -> None:
        with suppress(OSError):
            self._channel.send(json.dumps({"id": request, **fields}).encode())

    def _do_start(self, request: int, fds: list[int], **values: Any) -> None:
        box = Box(BoxSpec.parse(values), cgroups=[os.dup(fd) for fd in fds])
        try:
            box.start(self._id_map, self._seccomp)
        except OSError as error:
            box.remove()
            return self._answer(request, error=f"{error.filename or 'the sandbox'}: {error.strerror}")
        self._boxes[box.spec.number], self._starting[box.spec.number] = box, request
        self._selector.register(box.ready, selectors.EVENT_READ, lambda: self._heard(box))
        return None

    def _heard(self, box: Box) -> bool:
        """The first process of a sandbox, or what should have become it, said something or is gone."""
        if box.ready < 0:  # it ended in the same moment, and was heard then
            return True
        try:
            said = box.hear()
        except OSError as error:
            said = error.strerror
        if said is not None:
            self._selector.unregister(box.ready)
            box.close_ready()
            request = self._starting.pop(box.spec.number)
            if said:
                self._answer(request, error=said)
                box.kill()
            else:
                self._answer(request, pid=box.first, first=True)
        return True

    def _do_stop(self, request: int, fds: list[int], number: int) -> None:
        if (box := self._boxes.get(number)) is None:
            return self._answer(request)
        self._stopping.setdefault(number, []).append(request)
        box.kill()
        return None

    def _do_run(self, request: int, fds: list[int], number: int, **values: Any) -> None:
        program = Program(**values, any_user=self._id_map.has_users, seccomp=self._seccomp)
        pid = inside.enter(self._box(number), lambda: program.become(fds))
        self._programs[pid] = request
        self._answer(request, pid=pid)

    def _do_extract(self, request: int, fds: list[int], number: int, target: str) -> None:
        users = self._id_map.has_users
        self._duty(request, number, lambda: duties.extract(fds[0], places.inside(target), users))

    def _do_read(self, request: int, fds: list[int], number: int, path: str, largest: int) -> None:
        self._duty(request, number, lambda: duties.read(places.inside(path), fds[0], largest))

    def _do_account(self, request: int, fds: list[int], number: int, user: str) -> None:
        def ids() -> tuple[int, int]:
            account = accounts.find(user)
            return account.uid, account.gid

        self._duty(request, number, ids)

    def _do_kill(self, request: int, fds: list[int], number: int, since: int, parent: int | None) -> None:
        above = ending.pid_inside(parent) if parent else None
        self._duty(request, number, lambda: ending.end_since(since, above))

    def _do_kill_all(self, request: int, fds: list[int], number: int) -> None:
        self._duty(request, number, ending.end_all)

    def _do_unpack(self, request: int, fds: list[int], target: str) -> None:
        """Unpack tar bytes into a new folder of the store, with the owners that they name."""
        folder, users = places.in_store(target), self._id_map.has_users

        def unpack() -> None:
            duties.extract(fds[0], staging := f"{folder}.{os.getpid()}", users)
            try:
                os.rename(staging, folder)
            except OSError:  # somebody else was first
                shutil.rmtree(staging)

        self._outside(request, unpack)

    def _do_snapshot(self, request: int, fds: list[int], number: int, target: str) -> None:
        box, folder = self._box(number), places.in_store(target)
        self._visits[self._outside(request, lambda: copying.copy(box, folder))] = number

    def _do_keep(self, request: int, fds: list[int], source: str, target: str) -> None:
        """Give a folder of the store its final name, unless that is taken."""
        old, new = places.in_store(source), places.in_store(target)

        def keep() -> None:
            os.makedirs(os.path.dirname(new), exist_ok=True)
            try:
                os.rename(old, new)
            except OSError:  # somebody else was first
                shutil.rmtree(old)

        self._outside(request, keep)

    def _do_remove(self, request: int, fds: list[int], targets: list[str]) -> None:
        """Remove folders of the store."""
        folders = [places.in_store(target) for target in targets]
        self._outside(request, lambda: os.execvp("rm", ["rm", "-rf", "--", *folders]))

    def _duty(self, request: int, number: int, action: Callable[[], Any]) -> None:
        pid = inside.visit(self._box(number), lambda: self._report(request, action))
        self._programs[pid], self._visits[pid] = -request, number

    def _box(self, number: int) -> Box:
        box = self._boxes.get(number)
        if box is None or box.first_fd < 0:
            raise InsideError("is gone: its first process ended")
        return box

    def _outside(self, request: int, action: Callable[[], Any]) -> int:
        """Do something among the users of sandboxes, but in none of them."""
        pid = os.fork()
        if pid == 0:
            try:
                self._report(request, action)
                os._exit(0)
            finally:
                os._exit(1)
        self._programs[pid] = -request
        return pid

    def _report(self, request: int, action: Callable[[], Any]) -> None:
        try:
            self._answer(request, result=action())
        except OSError as error:
            self._answer(request, error=f"{error.filename}: {error.strerror}")
        except Exception as error:
            self._answer(request, error=str(error) or type(error).__name__)

    def _reap(self) -> bool:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended(ended[0], os.waitstatus_to_exitcode(ended[1]))
        return True

    def _ended(self, pid: int, status: int) -> None:
        status = 128 - status if status < 0 else status
        self._visits.pop(pid, None)
        if (request := self._programs.pop(pid, None)) is not None:
            if request > 0:
                self._answer(request, exit=status)
            else:  # it has answered itself, unless it was killed or has become another program
                self._answer(-request, done=status)
            return
        for number, box in list(self._boxes.items()):
            if box.bwrap == pid:
                if box.ready >= 0:
                    self._heard(box)
                del self._boxes[number]
                for visitor in [pid for pid, visited in self._visits.items() if visited == number]:
                    os.kill(visitor, signal.SIGKILL)
                box.remove()
                for request in self._stopping.pop(number, ()):
                    self._answer(request)
                self._answer(0, gone=number)


def main() -> None:
    number, store, *shifted = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    try:
        launcher = Launcher(channel, store, shifted)
    except OSError as error:
        channel.send(json.dumps({"id": 0, "error": f"{error.filename}: {error.strerror}"}).encode())
        return
    except Exception as error:
        channel.send(json.dumps({"id": 0, "error": str(error)}).encode())
        return
    launcher.run()


if __name__ == "__main__":
    main()
