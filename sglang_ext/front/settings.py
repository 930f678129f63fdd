"""What an operator can set, by environment variables that begin with OBSSPEC_BRANCH_."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Settings:
    budget: float = 0.25
    """Part of the KV cache (up to 1), or tokens (above 1), that open branches may claim."""
    max_ttl_s: float = 600.0
    """Longest time to live that a client may ask for, in seconds."""
    grace_s: float = 5.0
    """How long a committed branch stays in the cache for the next turn, in seconds."""

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises ValueError, with the variable's name, for what is not a positive number."""
        given = {}
        for field in fields(cls):
            name = f"OBSSPEC_BRANCH_{field.name.upper()}"
            if (text := os.environ.get(name)) is not None:
                try:
                    given[field.name] = float(text)
                except ValueError:
                    given[field.name] = -1.0
                if not given[field.name] > 0:
                    raise ValueError(f"{name} must be a positive number, not {text!r}")
        return cls(**given)

    def budget_tokens(self, capacity: int) -> int:
        return int(self.budget * capacity if self.budget <= 1 else self.budget)
