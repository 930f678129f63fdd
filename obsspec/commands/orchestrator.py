"""`obsspec orchestrator`: the rollout service."""

from __future__ import annotations

from obsspec.commands.options import ConfigFile, Overrides


def orchestrator(config: ConfigFile, overrides: Overrides = None) -> None:
    """Start the rollout service alone; its engines must be running."""
    from obsspec.config import load_config
    from obsspec.errors import ProcessError
    from obsspec.processes import ports

    service = ports.assign(load_config(config, overrides or ())).orchestrator
    from orchestrator.app import ServeError, serve

    try:
        serve(service, ready=lambda url: print(f"Listening: {url}/docs", flush=True))
    except ServeError as error:
        raise ProcessError(f"the orchestrator {error}") from error
