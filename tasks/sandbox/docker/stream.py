"""One output of `docker exec`: what is between two marks, of which a bounded part is kept.

What is not wanted is read and discarded as it comes. Between commands nothing is read, so whatever writes
without end in the background waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

_LONGEST_TEXT = 16 * 1024
_CHUNK = 64 * 1024


@dataclass
class Kept:
    """What is kept of a command's output; `limit` 0: nothing, and nothing counts as cut."""

    limit: int = 0
    listener: Callable[[bytes], None] | None = None
    data: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def add(self, data: bytes) -> None:
        if not data or not self.limit:
            return
        room = self.limit - len(self.data)
        self.data += data[:room]
        if self.listener is not None and room > 0:
            self.listener(data[:room])
        self.truncated |= len(data) > room


@dataclass(frozen=True)
class Mark:
    token: str
    text: str


class MarkedStream:
    """A stream with marks in it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._waiting = b""
        """Read, and not yet passed on."""

    async def until(self, tokens: tuple[str, ...], kept: Kept) -> Mark | None:
        """Pass on what comes before the next mark with one of the tokens, and return that; None: no more
        comes."""
        starts = [b"\0%s " % token.encode() for token in tokens]
        while True:
            places = ((self._waiting.find(start), start) for start in starts)
            found = min(((at, start) for at, start in places if at >= 0), default=None)
            if found is not None:
                at, start = found
                kept.add(self._waiting[:at])
                self._waiting = self._waiting[at:]
                if (end := self._waiting.find(b"\0", len(start))) >= 0:
                    text = self._waiting[len(start) : end].decode(errors="surrogateescape")
                    self._waiting = self._waiting[end + 1 :]
                    return Mark(start[1:-1].decode(), text)
                if len(self._waiting) > _LONGEST_TEXT:  # not a mark
                    kept.add(self._waiting[: len(start)])
                    self._waiting = self._waiting[len(start) :]
                    continue
            else:
                held = _beginning_of_one(self._waiting, starts)
                kept.add(self._waiting[: len(self._waiting) - held])
                self._waiting = self._waiting[len(self._waiting) - held :]
            data = await self._reader.read(_CHUNK)
            if not data:
                kept.add(self._waiting)
                self._waiting = b""
                return None
            self._waiting += data


def _beginning_of_one(data: bytes, starts: list[bytes]) -> int:
    """Length of the end of `data` that may turn out to be the beginning of a mark."""
    at = data.find(b"\0", max(0, len(data) - max(map(len, starts)) + 1))
    while at >= 0:
        if any(start.startswith(data[at:]) for start in starts):
            return len(data) - at
        at = data.find(b"\0", at + 1)
    return 0
