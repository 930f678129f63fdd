"""The observation of a command: one canonical text, for the policy, the world model and comparison.

Equal results give equal texts, and a text never starts or ends with white space, so that a prediction
that went through `str.strip` compares with `==`. Time is linear in the size of the result.
"""

from __future__ import annotations

import re

from tasks.sandbox.base import ExecResult

LIMIT = 4000
"""Characters kept of a body by default."""
EMPTY = "(no output)"
CUT = "(output cut)"
"""Last line of a body that was longer than the limit."""
TIMED_OUT = "(timed out)\n(exit_code=124)"
"""The whole observation of a command that outlived its limit: how far it came is left to chance."""

# CSI sequences (colours, cursor moves), OSC strings (titles, links), other escapes, a stray escape character.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])?")


def canonical(result: ExecResult, limit: int = LIMIT) -> str:
    """Standard output, then standard error, then the exit code; see DESIGN.md.

    The body is cut after `limit` characters, and then says so in a last line of its own.
    """
    if result.timed_out:
        return TIMED_OUT
    parts = [_clean(result.stdout), _clean(result.stderr)]
    body = "\n".join(part for part in parts if part)
    if len(body) > limit or result.truncated:
        body = f"{body[:limit].rstrip()}\n{CUT}".lstrip()
    return f"{body or EMPTY}\n(exit_code={result.exit_code})"


def is_empty(text: str) -> bool:
    """Whether an observation (real or predicted) has the body `(no output)`."""
    return text.strip().startswith(f"{EMPTY}\n(exit_code=")


def _clean(data: bytes) -> str:
    return _ANSI.sub("", data.decode("utf-8", errors="replace")).strip()
