"""One sampled action: what came out of the engine, token by token, and the tool call in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from orchestrator.backends.base import BackendError, Chunk, FinishReason
from orchestrator.chat import ChatFormat
from orchestrator.schema import ToolCallRecord
from tasks.tools import ParseError, parse_action


@dataclass
class SampledAction:
    """Grows by chunks; complete once `finish` is set. One log-probability (nats) a token."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    weight_version: str | None = None
    first_s: float = field(default=0.0, compare=False)
    """Seconds from `read` to the first chunk."""
    first_tokens: int = field(default=0, compare=False)
    """Tokens of the first chunk."""

    async def read(self, chunks: AsyncGenerator[Chunk]) -> SampledAction:
        """Read to the end; closes the generator whatever happens. Raises BackendError."""
        clock = asyncio.get_running_loop().time
        start = clock()
        async with aclosing(chunks):
            async for chunk in chunks:
                if not self.token_ids:
                    self.first_s, self.first_tokens = clock() - start, len(chunk.token_ids)
                self.token_ids += chunk.token_ids
                self.logprobs += chunk.logprobs
                self.finish = chunk.finish
                self.weight_version = chunk.weight_version
        if self.finish is None or not self.token_ids:
            raise BackendError(f"the engine ended an answer after {len(self.token_ids)} tokens, unfinished")
        return self


@dataclass(frozen=True)
class ReadCall:
    """What an action says."""

    text: str
    """Without its end token."""
    ended: bool
    """By its end token."""
    call: ToolCallRecord | None
    complaint: str | None
    """What is wrong with it, in one sentence for the policy, where there is no call."""


def read_call(chat: ChatFormat, action: SampledAction) -> ReadCall:
    ended = action.token_ids[-1] == chat.end_id
    text = chat.action_text(action.token_ids)
    if action.finish is FinishReason.LENGTH and not ended:
        return ReadCall(text, ended, None, _CUT.format(len(action.token_ids)))
    parsed = parse_action(text)
    if isinstance(parsed, ParseError):
        return ReadCall(text, ended, None, parsed.message)
    call = ToolCallRecord(name=parsed.name, command=parsed.command, timeout_s=parsed.timeout_s)
    return ReadCall(text, ended, call, None)


_CUT = "Error: the message was cut at {} tokens; write one short sentence and one tool call."
