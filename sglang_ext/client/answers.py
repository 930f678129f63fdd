"""What the engine answers, typed and immutable. Times in seconds, log-probabilities in nats."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from sglang_ext.states import BranchState

Finish = Literal["stop", "length"]
"""Why a generation ended: a stop token, which is part of it, or its limit."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens since the last chunk; the last one, and only it, has `finish`."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """One a token; None where they were not asked for."""
    finish: Finish | None = None
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """One open branch in a list."""

    id: str
    state: BranchState
    tokens: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine with the plugin can do."""

    supported: bool
    """Whether it holds branches."""
    reason: str | None
    """Why not."""
    plugin: str | None = None
    """Version of obsspec."""
    sglang: str | None = None
    epoch: str | None = None
    """Another one after each start of the engine."""
    seeds: bool = False
    """Whether `sampling_seed` is honoured."""
    batch_invariant: bool = False
    """Whether a token's numbers do not depend on what else is in the batch."""
    budget_tokens: int = 0
    held_tokens: int = 0
    branches: tuple[BranchInfo, ...] = ()

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Capabilities:
        """Raises KeyError, TypeError or ValueError for what is no such answer."""
        if not isinstance(answer["supported"], bool):
            raise ValueError("supported is no truth value")
        known = {f.name: answer[f.name] for f in fields(cls) if f.name in answer} | {
            "reason": answer.get("reason"),
            "branches": tuple(
                BranchInfo(b["id"], BranchState(b["state"]), b["tokens"], b["age_s"])
                for b in answer.get("branches", ())
            ),
        }
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Output:
    """A branch as it stands, with its tokens from the one that was asked for."""

    id: str
    state: BranchState
    tokens: int
    """All of them."""
    chunk: Chunk
    reason: str | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Tokens of the engine's KV cache: freed by this request, and as they stand after it."""

    freed: int
    available: int
    evictable: int
    protected: int

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Memory | None:
        """None where the engine has nothing to tell."""
        values = [answer.get(f.name) for f in fields(cls)]
        return None if None in values else cls(*cast(list[int], values))


@dataclass(frozen=True, slots=True)
class Dropped:
    tokens: int | None
    """Thrown away; None where the answer was lost and the next said that it is dropped."""
    run_s: float | None
    """From open to the end of the generation; None where it was still running."""
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class DroppedAll:
    branches: int
    memory: Memory | None
