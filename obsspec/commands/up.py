"""`obsspec up`: engines and rollout service on this machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
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
    from obsspec.processes.display import starting
    from obsspec.processes.run import new_folder, run
    from obsspec.processes.stack import Stack

    console = Console(highlight=False, soft_wrap=True)
    checked = load_config(config, overrides or ())

    async def serve() -> None:
        folder = new_folder(runs)
        async with AsyncExitStack() as stack:
            with starting(console) as report:
                up = await stack.enter_async_context(Stack(checked, folder, report=report))
            console.print(f"Ready: {up.service_url}/docs; logs in {folder}/logs. Ctrl-C stops everything.")
            await asyncio.Event().wait()

    if run(serve()):
        console.print("Stopped.")
