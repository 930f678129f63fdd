"""The branch API on SGLang's FastAPI application: what there is of it, and why not more."""

from __future__ import annotations

import importlib.metadata

from fastapi import FastAPI
from pydantic import BaseModel

REASON = (
    "the plugin has no scheduler half yet, so the engine cannot hold a branch in its prefix cache; "
    "the client emulates branches by ordinary requests and aborts"
)


class Capabilities(BaseModel):
    """Answer of `GET /branch`."""

    supported: bool
    """Whether this engine holds branches."""
    reason: str
    """Why not."""
    plugin: str
    """Version of obsspec."""
    sglang: str
    """Version of SGLang."""
    branches: list[str]
    """Ids of the branches that are open."""


class Refusal(BaseModel):
    """Answer of `POST /branch/open` where branches are unsupported."""

    error: str


def add_routes(app: FastAPI) -> None:
    """Add them one by one: a router included in the application breaks SGLang's metrics middleware."""
    app.add_api_route("/branch", list_branches, methods=["GET"])
    app.add_api_route("/branch/open", open_branch, methods=["POST"], status_code=501)


async def list_branches() -> Capabilities:
    """Capabilities of this engine, and its open branches."""
    return Capabilities(
        supported=False,
        reason=REASON,
        plugin=importlib.metadata.version("obsspec"),
        sglang=importlib.metadata.version("sglang"),
        branches=[],
    )


async def open_branch() -> Refusal:
    """Refused, with the reason."""
    return Refusal(error=REASON)
