"""SGLang plugin (entry point group `sglang.srt.plugins`): routes of the branch API on the server's own port.

It serves the routes and says that branches are not held in the engine: there is no scheduler half, and
a client emulates a branch by an ordinary request and an abort. SGLang swallows a plugin's failures, so
nobody may rely on it before `GET /branch` has answered.
"""

from __future__ import annotations

import importlib.metadata
import logging
import multiprocessing
import pkgutil
import sys
from collections.abc import Iterable

logger = logging.getLogger(__name__)

READY_HOOK = "sglang.srt.managers.tokenizer_manager.TokenizerManager.init_request_dispatcher"
"""Runs once in the front process, when its FastAPI application exists."""
HOOK_TARGETS = (READY_HOOK,)


def register() -> None:
    """Called by SGLang once in the front and once in each spawned scheduler; only the front has routes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if multiprocessing.parent_process() is not None:
        return
    missing = missing_targets(HOOK_TARGETS)
    if missing:
        logger.error(
            "obsspec plugin: SGLang %s has no %s; the branch routes are absent",
            importlib.metadata.version("sglang"),
            ", ".join(missing),
        )
        return
    HookRegistry.register(READY_HOOK, _add_routes, HookType.AFTER)


def missing_targets(targets: Iterable[str]) -> list[str]:
    """Those dotted names that this SGLang does not have as something to call."""
    return [target for target in targets if not _callable(target)]


def _callable(target: str) -> bool:
    try:
        return callable(pkgutil.resolve_name(target))
    except (ImportError, AttributeError):
        return False


def _add_routes(result: None, *args: object, **kwargs: object) -> None:
    from sglang_ext.routes import add_routes

    add_routes(sys.modules["sglang.srt.entrypoints.http_server"].app)
    # A warning, because that is the level at which engines log.
    logger.warning("obsspec plugin %s ready: GET /branch", importlib.metadata.version("obsspec"))
