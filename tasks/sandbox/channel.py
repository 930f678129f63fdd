"""The host's ends of a sandbox's three descriptors: a control socket and two output pipes.

The kernel stamps every message on the control socket with its sender's PID, so a command cannot
speak for the shell or for PID 1; what it says is discarded unread. An output keeps the first bytes of a
command and discards the rest as fast as it comes: memory is bounded, the writer never waits long. Between
commands nothing is read.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable

_CREDENTIALS = struct.Struct("3i")
_CHUNK = 64 * 1024
_LONGEST_MESSAGE = 16 * 1024
_MOST_MESSAGES = 16
"""Messages taken from one read; a sender that keeps to the protocol has one answer to give at a time."""


class Control:
    """Messages of one process, for `on_message`; heard from `open` on, and what it said before."""

    def __init__(self, on_message: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._on_message, self._on_end = on_message, on_end
        self._host, self.inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._host.setblocking(False)
        self._host.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._speaker = 0
        self._partial = b""
        """The message that the speaker began."""
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()

    def open(self, pid: int) -> None:
        """Hear the process of this host PID, which has its end by now, and nobody else."""
        self._speaker = pid
        self.inner.close()
        self._loop.add_reader(self._host, self._receive)

    def send(self, *fields: str, payload: bytes = b"") -> None:
        """Queue NUL-ended fields, then raw bytes; they leave whole, whatever becomes of the caller."""
        self._unsent += b"".join(field.encode(errors="surrogateescape") + b"\0" for field in fields) + payload
        self._flush()

    def close(self) -> None:
        self._end()
        self._host.close()
        self.inner.close()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._host.send(self._unsent)]
        except BlockingIOError:
            pass
        except ConnectionError:
            self._unsent.clear()
        if self._unsent:
            self._loop.add_writer(self._host, self._flush)
        else:
            self._loop.remove_writer(self._host)

    def _end(self) -> None:
        self._loop.remove_reader(self._host)
        self._loop.remove_writer(self._host)

    def _receive(self) -> None:
        try:
            data, ancillary, _, _ = self._host.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary = b"", []
        if not data:
            self._end()
            self._on_end()
            return
        pid = next(
            (_CREDENTIALS.unpack(value)[0] for _, kind, value in ancillary if kind == socket.SCM_CREDENTIALS),
            0,
        )
        if pid != self._speaker:
            return
        *messages, rest = (self._partial + data).split(b"\0")
        self._partial = rest if len(rest) < _LONGEST_MESSAGE else b""
        for message in messages[:_MOST_MESSAGES]:
            self._on_message(message.decode(errors="surrogateescape"))


class Output:
    """One output pipe: `begin`, let a command write to `inner`, `end`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._host, self.inner = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._host, False)
        self._kept = bytearray()
        self._truncated = False
        self._listener: Callable[[bytes], None] | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self, listener: Callable[[bytes], None] | None = None) -> None:
        """Forget what background processes wrote since the last command, and start keeping."""
        self._listener = None
        self._drain()
        self._kept.clear()
        self._listener = listener
        self._truncated = False
        self._loop.add_reader(self._host, self._read, _CHUNK)

    def end(self) -> tuple[bytes, bool]:
        """What was written up to now, and whether some of it was discarded."""
        if self._host >= 0:
            self._loop.remove_reader(self._host)
            self._drain()
        return bytes(self._kept), self._truncated

    def close_inner(self) -> None:
        if self.inner >= 0:
            os.close(self.inner)
            self.inner = -1

    def close(self) -> None:
        self._loop.remove_reader(self._host)
        os.close(self._host)
        self._host = -1
        self.close_inner()

    def _drain(self) -> None:
        """Read what is in the pipe at this moment, and no more: a background process may never stop."""
        waiting = struct.unpack("i", fcntl.ioctl(self._host, termios.FIONREAD, b"\0" * 4))[0]
        while waiting > 0 and (count := self._read(min(waiting, _CHUNK))):
            waiting -= count

    def _read(self, size: int) -> int:
        try:
            data = os.read(self._host, size)
        except BlockingIOError:
            return 0
        if not data:
            self._loop.remove_reader(self._host)
            return 0
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        if self._listener is not None and room > 0:
            self._listener(data[:room])
        self._truncated |= len(data) > room
        return len(data)
