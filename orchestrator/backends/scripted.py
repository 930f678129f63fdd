"""A scripted engine with set speeds, for tests and simulation: no model runs behind it.

It honours seeds as far as its script does: a script is a function of the ids and the parameters, and
the log-probabilities are made up from the token, its position and the seed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from itertools import islice

from orchestrator.backends.base import BackendError, Branch, Capabilities, Chunk, FinishReason, SamplingParams
from orchestrator.backends.emulated import BranchPool

Script = Callable[[Sequence[int], SamplingParams], Iterable[int]]
"""Ids of the context → ids of the continuation, read lazily; it may raise BackendError midway."""


class ScriptedBackend:
    """Answers `script(ids, params)` after `prefill_s` seconds, at `tokens_per_s`."""

    def __init__(
        self,
        script: Script,
        *,
        tokens_per_s: float = 100.0,
        prefill_s: float = 0.0,
        chunk_tokens: int = 1,
    ):
        self._script = script
        self._token_s = 1.0 / tokens_per_s
        self._prefill_s = prefill_s
        self._chunk_tokens = chunk_tokens
        self._version = "scripted"
        self.branches = BranchPool()
        """Branches that have not ended."""
        self.running = 0
        """Requests being generated, branches included."""

    async def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[Chunk]:
        self.running += 1
        try:
            clock = asyncio.get_running_loop().time
            due = clock() + self._prefill_s
            await asyncio.sleep(self._prefill_s)
            tokens = _until_stop(self._script(token_ids, params), params)
            position = len(token_ids)
            while chunk := list(islice(tokens, self._chunk_tokens)):
                due += len(chunk) * self._token_s  # a late timer delays no token after it
                await asyncio.sleep(due - clock())
                logprobs = tuple(_logprob(t, position + i, params.seed) for i, (t, _) in enumerate(chunk))
                position += len(chunk)
                yield Chunk(tuple(t for t, _ in chunk), logprobs, chunk[-1][1], self._version)
        finally:
            self.running -= 1

    async def open(
        self, parent: Sequence[int] | Branch, candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        return self.branches.open(parent, candidates, lambda ids: self.generate(ids, params))

    async def update_weights(self, path: str, version: str) -> None:
        await self.branches.lose_all()
        self._version = version

    async def capabilities(self) -> Capabilities:
        return Capabilities("scripted", "emulated", seeds=True, notes=("no model: a script with set speeds",))

    async def close(self) -> None:
        await self.branches.lose_all()


def _until_stop(tokens: Iterable[int], params: SamplingParams) -> Iterator[tuple[int, FinishReason | None]]:
    """Tokens, the last one with the reason: a stop token, the length limit, or the script's end."""
    held: int | None = None
    for count, token in enumerate(tokens, start=1):
        if held is not None:
            yield held, None
        held = token
        if count == params.max_new_tokens:  # a stop token too, as SGLang has it
            yield token, FinishReason.LENGTH
            return
        if token in params.stop_token_ids:
            break
    if held is None:
        raise BackendError("the scripted engine's script gave no token")
    yield held, FinishReason.STOP


def _logprob(token: int, position: int, seed: int | None) -> float:
    digest = hashlib.blake2b(f"{token} {position} {seed}".encode(), digest_size=4).digest()
    return -int.from_bytes(digest) / 2**32
