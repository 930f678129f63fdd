"""Seeds of everything random in a rollout, each a function of the rollout's seed and of what it is for."""

from __future__ import annotations

import hashlib


def derive(*parts: str | int) -> int:
    """A seed of 31 bits that depends on every part and on nothing else."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1
