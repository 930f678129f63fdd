"""A trajectory: prompt ids followed by segments.

Token ids, logprobs and masks travel together in one `Segment` so that they cannot drift apart;
nothing is ever re-tokenised.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import model_validator

from orchestrator.schema.base import Frozen


class SegmentKind(StrEnum):
    ACTION = "action"
    OBSERVATION = "observation"
    SYNTHETIC = "synthetic"
    """Fixed text by the system, e.g. the answer to a malformed tool call; trained on by nobody."""


class Segment(Frozen):
    """A run of tokens of one origin; every list that is present has one entry a token."""

    kind: SegmentKind
    token_ids: list[int]
    logprobs: list[float] | None = None
    """Actions only: log-probability of each token under the policy that sampled it, in nats."""
    policy_mask: list[bool]
    """Tokens the policy is trained on: the sampled tokens of an action."""
    world_model_mask: list[bool]
    """Tokens the world model is trained on: an observation's body and its closing tag."""
    weight_version: str | None = None
    """Version of the policy weights that sampled an action."""

    @model_validator(mode="after")
    def _same_lengths(self) -> Segment:
        n = len(self.token_ids)
        for name in ("logprobs", "policy_mask", "world_model_mask"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries for {n} token ids")
        if (self.kind is SegmentKind.ACTION) != (self.logprobs is not None):
            raise ValueError("logprobs belong to actions, and only to actions")
        return self


class Trajectory(Frozen):
    """Prompt ids followed by segments, in the order the model saw them."""

    prompt_ids: list[int]
    segments: list[Segment]
