"""`obsspec demo`: the same tasks with and without observation speculation, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import JsonFile, Overrides, parse_latency, require_writable


def demo(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file.")] = Path("configs/tiny.yaml"),
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Held-out tasks; each is run both ways.")] = 45,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first task's rollouts.")] = 0,
    tool_latency: Annotated[
        str, typer.Option(metavar="MEAN[:SIGMA]|none", help="Simulated seconds added to each tool call.")
    ] = "1.0:0.6",
    runs: Annotated[Path, typer.Option(help="Report, picture and logs go into a new folder there.")] = Path(
        "runs"
    ),
    json: JsonFile = None,
) -> None:
    """Start everything, run held-out tasks sequentially and speculatively, compare, stop everything."""
    from rich.console import Console

    from obsspec import demo as job
    from obsspec.batch import held_out
    from obsspec.config import load_config
    from obsspec.processes.display import announced
    from obsspec.processes.run import new_folder, run
    from orchestrator.client import OrchestratorClient

    require_writable(json)
    console = Console(highlight=False, soft_wrap=True)
    plan = job.Plan(held_out(tasks), seed, parse_latency(tool_latency))
    checked = load_config(config, overrides or ())

    async def body() -> None:
        folder = new_folder(runs)
        async with (
            announced(checked, folder, console) as up,
            OrchestratorClient(up.service_url) as client,
        ):
            comparison = await job.compare(client, plan, console)
        job.write(comparison, folder, json)
        console.print(job.table(comparison))
        console.print(comparison.sampling)
        console.print(f"Report, picture and rollouts: {folder}")

    if run(body()):
        console.print("Stopped.")
        raise typer.Exit(130)
