"""The inference protocol: generate, branch, update weights. Tokens in, tokens out.

A branch is a continuation generated on a prediction. It ends exactly once: committed or dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class BackendError(RuntimeError):
    """The engine could not serve a request: one sentence with the address and the reason."""


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True)
class SamplingParams:
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    """Same seed, same ids, same engine: same tokens, where the engine honours seeds."""


@dataclass(frozen=True)
class Chunk:
    """Tokens sampled since the last chunk, with one log-probability (nats) each."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: FinishReason | None = None
    weight_version: str | None = None


@dataclass(frozen=True)
class Capabilities:
    name: str
    branches: str
    """`native` (held in the engine's prefix cache) or `emulated` (an ordinary request and an abort)."""
    seeds: bool
    """True when the engine honours `SamplingParams.seed`."""
    notes: tuple[str, ...] = field(default_factory=tuple)


class Branch(Protocol):
    """A continuation of parent + candidate that runs in the engine, owned by one rollout."""

    def commit(self) -> AsyncIterator[Chunk]:
        """Every chunk from the first token: buffered ones at once, then live."""
        ...

    async def drop(self) -> int:
        """End the branch and free what it holds; returns the number of tokens thrown away."""
        ...


class Backend(Protocol):
    def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncIterator[Chunk]: ...

    async def open(
        self, parent: Sequence[int], candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        """Start one branch a candidate, each continuing parent + candidate."""
        ...

    async def update_weights(self, path: str, version: str) -> None: ...

    async def capabilities(self) -> Capabilities: ...

    async def close(self) -> None: ...
