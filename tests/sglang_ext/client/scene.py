"""One branch on one parent, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from sglang_ext.client import Branch, BranchClient, Chunk
from tests.sglang_ext.client.fake_engine import STOP, FakeEngine, continuation, logprobs, seed_of

PARENT, CANDIDATE = [3, 5, 8], [13, 21]
PARAMS: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.0, "stop_token_ids": [STOP]}
PARAMS["sampling_seed"] = seed_of(8, [*PARENT, *CANDIDATE], PARAMS)
WHOLE = continuation([*PARENT, *CANDIDATE], PARAMS)


async def opened(client: BranchClient, **options: Any) -> Branch:
    (branch,) = await client.open(PARENT, [CANDIDATE], PARAMS, **options)
    return branch


def end(engine: FakeEngine, state: str) -> None:
    """Each branch of the engine has ended so, whoever ended it."""
    for branch in engine.branches.values():
        branch.end(state, "pressure")


async def read(chunks: AsyncGenerator[Chunk]) -> list[Chunk]:
    async with aclosing(chunks):
        return [chunk async for chunk in chunks]


def tokens(chunks: Iterable[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def assert_whole(chunks: list[Chunk]) -> None:
    """Every token once, with its log-probability; the last chunk, and only it, has the finish."""
    assert tokens(chunks) == WHOLE
    assert [p for chunk in chunks for p in chunk.logprobs or ()] == logprobs(WHOLE)
    assert [chunk.finish for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {chunk.weight_version for chunk in chunks} == {"v3"}
