"""Layers of images, kept by what they were made from.

The name of a layer is a digest of the layer below, the instruction, and all that it reads: the same
Dockerfile and context give the same layers, whichever task they belong to. A layer is there whole or not at
all; what a build that was killed has left of one is removed by the next process that builds.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.environments.locks import file_lock, free_lock
from tasks.sandbox.base import SandboxError
from tasks.sandbox.runtime import Runtime

_STAGING = "staging"
_IN_USE_S = 3600.0
"""A layer that was used so lately may be in a sandbox that runs."""
_tidied: set[Path] = set()
"""Stores in which this process has looked for what killed builds left."""


def digest(*parts: object) -> str:
    """A short name for values whose `repr` says all of them."""
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()[:24]


@dataclass(frozen=True)
class LayerStore:
    runtime: Runtime

    def has(self, name: str) -> bool:
        """It counts as used then."""
        return self.use([self.folder(name)])

    def folder(self, name: str) -> str:
        """Of a finished layer, as an image names it."""
        return f"layers/{name}"

    def use(self, folders: Iterable[str]) -> bool:
        """Whether all these layers are there; if so they count as used now."""
        try:
            for folder in folders:
                os.utime(self.runtime.store / folder)
        except FileNotFoundError:
            return False
        return True

    async def clean(self, unused_s: float) -> int:
        """Remove the layers that nobody has used for so many seconds. Raises SandboxError."""
        oldest = time.time() - max(unused_s, _IN_USE_S)
        layers = self.runtime.store / "layers"
        names = os.listdir(layers) if layers.is_dir() else []
        old = [name for name in names if (layers / name).stat().st_mtime < oldest]
        for name in old:  # out of the way first: what is left of a removal is no layer
            going = f"{_STAGING}/{name}-{self.runtime.token()}"
            await self.runtime.duty("keep", name, source=self.folder(name), target=going)
            await self.runtime.duty("remove", going, targets=[going])
        return len(old)

    @asynccontextmanager
    async def making(self, name: str) -> AsyncIterator[str]:
        """A folder of the store to make a layer in, which is kept if nothing fails. If somebody else has
        finished the same layer before, theirs is kept. Raises SandboxError."""
        lock = self.runtime.store / "building"
        await self._tidy(lock)
        async with file_lock(lock):
            staging = f"{_STAGING}/{name}-{self.runtime.token()}"
            try:
                yield staging
                await self.runtime.duty("keep", name, source=staging, target=self.folder(name))
            finally:
                with suppress(SandboxError):
                    await self.runtime.duty("remove", staging, targets=[staging])

    async def _tidy(self, lock: Path) -> None:
        """Whoever makes a layer holds the lock: where it is free, all that is begun is of dead processes."""
        store = self.runtime.store
        if store in _tidied:
            return
        _tidied.add(store)
        with free_lock(lock) as free:
            if free and (store / _STAGING).is_dir() and (left := os.listdir(store / _STAGING)):
                await self.runtime.duty("remove", _STAGING, targets=[f"{_STAGING}/{name}" for name in left])
