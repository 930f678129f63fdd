"""What a branch continues and how, and what came of it: all that is needed to ask for the rest again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sglang_ext.client.answers import Chunk, Finish


@dataclass(frozen=True, slots=True)
class Continuation:
    parent: tuple[int, ...]
    """One for all siblings."""
    candidate: tuple[int, ...]
    sampling_params: Mapping[str, Any]
    """One for all siblings."""
    extra_key: str | None
    return_logprob: bool


@dataclass(slots=True)
class Received:
    """Tokens of a continuation from the first on, as far as they are known here."""

    of: Continuation
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    weight_version: str | None = None
    _finish: Finish | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def add(self, at: int, chunk: Chunk) -> None:
        """A chunk that begins with token number `at`; one beyond a gap tells nothing."""
        known = len(self) - at
        if known < 0:
            return
        self.token_ids += chunk.token_ids[known:]
        self.logprobs += (chunk.logprobs or ())[known:]
        self.weight_version = chunk.weight_version or self.weight_version
        self._finish = self._finish or chunk.finish

    @property
    def finish(self) -> Finish | None:
        """Why nothing is left to generate, whether the engine has said so yet or not; None: something is."""
        if self._finish is not None or not self.token_ids:
            return self._finish
        params = self.of.sampling_params
        if len(self) >= params["max_new_tokens"]:
            return "length"
        return "stop" if self.token_ids[-1] in (params.get("stop_token_ids") or ()) else None

    def since(self, start: int) -> Chunk:
        """What there is from token number `start` on."""
        logprobs = tuple(self.logprobs[start:]) if self.of.return_logprob else None
        return Chunk(tuple(self.token_ids[start:]), logprobs, self.finish, self.weight_version)

    def ids(self) -> list[int]:
        """Parent, candidate and tokens."""
        return [*self.of.parent, *self.of.candidate, *self.token_ids]

    def rest_params(self) -> dict[str, Any]:
        """Sampling parameters of what is left; positions, and so seeded sampling, stay what they were."""
        params = dict(self.of.sampling_params)
        for limit in ("max_new_tokens", "min_new_tokens"):
            if params.get(limit):
                params[limit] = max(0, params[limit] - len(self))
        return params
