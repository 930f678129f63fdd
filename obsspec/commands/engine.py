"""`obsspec engine`: one SGLang server."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from obsspec.commands.options import ConfigFile, Overrides


class RoleName(StrEnum):
    POLICY = "policy"
    WORLD_MODEL = "world-model"


def engine(
    role: Annotated[RoleName, typer.Argument(help="Whose model to serve.")],
    config: ConfigFile,
    overrides: Overrides = None,
) -> None:
    """Start the SGLang server of one model, with the plugin, in place of this process."""
    from obsspec import engine as engines
    from obsspec.config import Role, load_config
    from obsspec.processes import ports

    name: Role = "policy" if role is RoleName.POLICY else "world_model"
    whole = ports.assign(load_config(config, overrides or ()))
    chosen = whole.engine(name)
    engines.check(name, chosen)
    command = engines.command(name, chosen, api_key=whole.api_key(name))
    print(f"Starting the {role} engine on {chosen.url}; stop it with Ctrl-C.", flush=True)
    os.execve(command.argv[0], command.argv, {**os.environ, **command.env})
