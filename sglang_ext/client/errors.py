"""What can go wrong between a client and an engine: each message is one sentence with the address."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from sglang_ext.states import BranchState


class BranchError(RuntimeError):
    """The engine could not serve a request; by itself: it answered with a failure of no kind below."""


class InvalidRequest(BranchError):
    """400: the engine does not take such a request."""


class OverBudget(BranchError):
    """429: open branches claim too much of the cache."""


class Unsupported(BranchError):
    """501, or no such route: the engine cannot hold branches."""


class Unavailable(BranchError):
    """503, or the engine cannot be reached: it may be later."""


class ConnectionLost(Unavailable):
    """The connection broke: whether the engine has got the request is not known."""


class Silent(Unavailable):
    """The engine said nothing for too long; it may still work on the request."""


class UnknownBranch(BranchError):
    """404: there is no such branch."""


class Restarted(BranchError):
    """410: the engine has restarted since the branch was opened."""


class BranchEnded(BranchError):
    """409: the branch has ended, as `state` says."""

    def __init__(self, message: str, state: BranchState):
        super().__init__(message)
        self.state = state


_BY_CODE: dict[str, type[BranchError]] = {
    "invalid": InvalidRequest,
    "over_budget": OverBudget,
    "unsupported": Unsupported,
    "unavailable": Unavailable,
    "unknown": UnknownBranch,
    "restarted": Restarted,
}
_BY_STATUS: dict[int, type[BranchError]] = {
    400: InvalidRequest,
    422: InvalidRequest,
    429: OverBudget,
    501: Unsupported,
    503: Unavailable,
}
_ENDS = {BranchState.COMMITTED, BranchState.DROPPED, BranchState.EXPIRED, BranchState.LOST}


def refusal(where: str, path: str, status: int, body: str) -> BranchError:
    """The error for an answer with status 400 or above."""
    message = f"{where} refused with status {status}: {reason(body)}"
    code = _code(body)
    if code in _ENDS:
        return BranchEnded(message, BranchState(code))
    if code in _BY_CODE:
        return _BY_CODE[code](message)
    if status == 404 and path.startswith("/branch"):
        return Unsupported(f"{where} has no branch API: it runs without the obsspec plugin")
    return _BY_STATUS.get(status, BranchError)(message)


def lost(where: str, error: dict[str, Any]) -> BranchEnded:
    """The error in a stream whose branch the engine gave up."""
    return BranchEnded(f"{where} gave the branch up: {error['message']}", BranchState(error["code"]))


def reason(body: str) -> str:
    """The message in an error answer, in one line."""
    with suppress(ValueError, AttributeError):
        answer = json.loads(body)
        error = answer.get("error", answer)
        body = str(error.get("message", body) if isinstance(error, dict) else error)
    return " ".join(body.split())[:300] or "no reason given"


def _code(body: str) -> str:
    with suppress(ValueError, AttributeError, KeyError, TypeError):
        return str(json.loads(body)["error"]["code"])
    return ""
