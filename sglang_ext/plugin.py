"""SGLang plugin (entry point group `sglang.srt.plugins`): branches, as routes on the server's own port.

SGLang calls `register` once in each process that it spawns, and swallows what goes wrong. So every hook
is checked against the installed SGLang first; where one does not fit, none is used, the engine serves as
a stock one, and `GET /branch` says why. Nobody may rely on branches before `GET /branch` has answered.
"""

from __future__ import annotations

import importlib.metadata
import logging

from sglang_ext import hooks, sampling
from sglang_ext.compat import engines, scheduler, server
from sglang_ext.front.settings import Settings

logger = logging.getLogger(__name__)

HOOKS = (*server.HOOKS, *scheduler.HOOKS, *sampling.HOOKS)


def register() -> None:
    """Register every hook in every process: each half acts only where SGLang calls it."""
    installed = importlib.metadata.version("sglang")
    problems = hooks.check(HOOKS)
    if installed != engines.VERSION:
        problems.insert(0, f"the plugin knows SGLang {engines.VERSION}, and this is {installed}")
    try:
        Settings.from_environment()
    except ValueError as error:
        problems.append(str(error))
    if not problems:
        hooks.register(HOOKS)
        return
    logger.error("obsspec plugin: no branches: %s", "; ".join(problems))
    server.refuse(problems[0])
    if not hooks.check(server.HOOKS[:1]):
        hooks.register(server.HOOKS[:1])
