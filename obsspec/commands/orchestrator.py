"""`obsspec orchestrator`: the rollout service."""

from __future__ import annotations

from obsspec.commands.options import ConfigFile, Overrides


def orchestrator(config: ConfigFile, overrides: Overrides = None) -> None:
    """Start the rollout service alone; its engines must be running."""
    from obsspec.config import load_config
    from obsspec.processes import ports

    service = ports.assign(load_config(config, overrides or ())).orchestrator
    ports.require_free("the orchestrator", service.host, service.port)
    from orchestrator.app import serve

    serve(service)
