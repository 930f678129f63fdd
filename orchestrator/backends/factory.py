"""Which engine stands behind a role is a line in the config."""

from __future__ import annotations

import importlib
from typing import cast

from orchestrator.backends.base import Backend, BackendError
from orchestrator.backends.scripted import Script, ScriptedBackend
from orchestrator.backends.sglang import SGLangBackend
from orchestrator.config import ScriptedConfig, SGLangConfig


def create(role: str, config: SGLangConfig | ScriptedConfig) -> Backend:
    """The backend for `role` (as in error messages). Raises BackendError for a script that is not there."""
    if isinstance(config, SGLangConfig):
        return SGLangBackend(
            role,
            config.url,
            timeout_s=config.timeout_s,
            connect_timeout_s=config.connect_timeout_s,
            stream_interval=config.stream_interval,
            branch_ttl_s=config.branch_ttl_s,
            api_key=config.api_key,
        )
    return ScriptedBackend(
        _script(config.script),
        tokens_per_s=config.tokens_per_s,
        prefill_s=config.prefill_s,
        chunk_tokens=config.chunk_tokens,
    )


def _script(address: str) -> Script:
    module, _, name = address.partition(":")
    try:
        return cast(Script, getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise BackendError(
            f"no script at {address!r} ({error}): write it as package.module:function"
        ) from error
