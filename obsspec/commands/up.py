"""`obsspec up`: engines and rollout service on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import ConfigFile, Overrides


def up(
    config: ConfigFile,
    overrides: Overrides = None,
    runs: Annotated[Path, typer.Option(help="Logs go into a new folder there.")] = Path("runs"),
) -> None:
    """Start both engines and the rollout service, and stop them on Ctrl-C."""
    from rich.console import Console

    from obsspec.config import load_config
    from obsspec.processes.display import announced
    from obsspec.processes.run import new_folder, run

    console = Console(highlight=False, soft_wrap=True)
    checked = load_config(config, overrides or ())

    async def serve() -> None:
        folder = new_folder(runs)
        async with announced(checked, folder, console) as up:
            console.print(f"Ready: {up.service_url}/docs; logs in {folder}/logs. Ctrl-C stops everything.")
            await asyncio.Event().wait()

    if run(serve()):
        console.print("Stopped.")
