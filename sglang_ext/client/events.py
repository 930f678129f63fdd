"""Server-sent events → chunks, incrementally; of `/generate` and of branches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any, cast

from sglang_ext.client.answers import Chunk, Finish
from sglang_ext.client.errors import BranchError, lost

_NAN = "NaN happened"
"""How SGLang reports logits that are no numbers: as a stop string that matched."""


async def payloads(body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The data of each event, however the network has cut them; an incomplete last one is no event.

    Lines end at a line feed alone: a JSON text may hold other characters that Python splits lines at.
    """
    rest = b""
    async for part in body:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def branch_chunk(event: dict[str, Any], where: str, sent: int) -> Chunk:
    """A chunk of a branch's stream, after `sent` tokens. Raises BranchError for an early end."""
    if "error" in event:
        raise lost(where, event["error"])
    logprobs = event["logprobs"]
    return Chunk(
        tuple(event["token_ids"]),
        None if logprobs is None else tuple(logprobs),
        finish_of(event["finish_reason"], where, sent),
        event["weight_version"],
    )


def finish_of(reason: dict[str, Any] | None, where: str, sent: int) -> Finish | None:
    """SGLang's finish reason. Raises BranchError for one that is a failure."""
    if reason is None:
        return None
    if reason["type"] == "abort":
        message = reason.get("message", "no reason given")
        raise BranchError(f"{where} aborted the request after {sent} tokens: {message}")
    if reason.get("matched") == _NAN:
        raise BranchError(f"{where} stopped after {sent} tokens: {reason['matched']}")
    if reason["type"] not in ("stop", "length"):
        raise ValueError(f"unknown finish reason {reason['type']!r}")
    return cast(Finish, reason["type"])


class GenerateReader:
    """Events of one `/generate` answer with log-probabilities; cumulative or incremental."""

    def __init__(self, where: str):
        self.sent = 0
        self.finished = False
        """Nothing more is generated for this request, whatever its reason."""
        self._where = where

    def read(self, event: dict[str, Any]) -> Chunk | None:
        """What is new in it, if anything. Raises BranchError for a failure."""
        if "error" in event:
            error = event["error"]
            raise BranchError(f"{self._where} refused: {error.get('message', error)}")
        meta = event["meta_info"]
        self.finished = meta["finish_reason"] is not None
        finish = finish_of(meta["finish_reason"], self._where, self.sent)
        triples = meta.get("output_token_logprobs") or []
        if len(triples) >= meta["completion_tokens"]:  # cumulative, else only what is new
            triples = triples[self.sent :]
        self.sent += len(triples)
        if not triples and finish is None:
            return None
        logprobs, ids = tuple(t[0] for t in triples), tuple(t[1] for t in triples)
        return Chunk(ids, logprobs, finish, meta.get("weight_version"))
