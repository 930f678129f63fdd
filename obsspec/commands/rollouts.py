"""`obsspec rollouts`: write rollouts as ATIF trajectories, and look at trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Export rollouts, and look at trajectories (ATIF).", no_args_is_help=True)


@app.command("export")
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder; a .json a rollout is written there.")],
    ids: Annotated[list[str] | None, typer.Argument(help="Rollouts; none: all that have ended.")] = None,
    url: Annotated[str, typer.Option(help="The orchestrator's address.")] = "http://127.0.0.1:8900",
) -> None:
    """Write ended rollouts as ATIF trajectories, a file each."""
    import asyncio

    from rich.console import Console

    from obsspec import trajectories
    from orchestrator.client import OrchestratorClient

    trajectories.make_folder(out)

    async def body() -> int:
        async with OrchestratorClient(url) as client:
            return await trajectories.export(client, ids or (), out, console)

    console = Console(highlight=False, soft_wrap=True)
    written = asyncio.run(body())
    console.print(f"Wrote {written} trajectories to {out}.", markup=False)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A trajectory in ATIF, whoever recorded it.")],
) -> None:
    """Print a summary of a trajectory: agent, steps, tool calls, observations, tokens, and what is wrong."""
    from rich.console import Console

    from obsspec import trajectories
    from tasks import atif

    console = Console(highlight=False)
    for part in trajectories.summary(atif.read(file)):
        console.print(part)
