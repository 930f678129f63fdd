"""One sampled action: what came out of the engine, token by token."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from orchestrator.backends.base import BackendError, Chunk, FinishReason


@dataclass
class SampledAction:
    """Grows by chunks; complete once `finish` is set. One log-probability (nats) a token."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    weight_version: str | None = None

    async def read(self, chunks: AsyncGenerator[Chunk]) -> SampledAction:
        """Read to the end; closes the generator whatever happens. Raises BackendError."""
        async with aclosing(chunks):
            async for chunk in chunks:
                self.token_ids += chunk.token_ids
                self.logprobs += chunk.logprobs
                self.finish = chunk.finish
                self.weight_version = chunk.weight_version
        if self.finish is None or not self.token_ids:
            raise BackendError(f"the engine ended an answer after {len(self.token_ids)} tokens, unfinished")
        return self
