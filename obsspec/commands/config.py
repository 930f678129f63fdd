"""`obsspec config`: look at a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import Overrides

app = typer.Typer(help="Look at a configuration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `check` a subcommand."""


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="YAML file.")],
    overrides: Overrides = None,
    show: Annotated[bool, typer.Option("--show", help="Print it with every default filled in.")] = False,
) -> None:
    """Check a configuration, and say what is wrong with it."""
    from obsspec.config import load_config

    config = load_config(file, overrides or ())
    if show:
        import yaml

        print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
    else:
        print(f"{file} is valid.")
