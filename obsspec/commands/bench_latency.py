"""`obsspec bench latency`: what speculation saves, measured on the same tasks and seeds in every arm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import JsonFile, Overrides, require_writable


def latency(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file.")] = Path("configs/tiny.yaml"),
    overrides: Overrides = None,
    quick: Annotated[bool, typer.Option("--quick", help="One group, to see that it works.")] = False,
    runs: Annotated[
        Path, typer.Option(help="Report, pictures and rollouts go into a new folder there.")
    ] = Path("runs"),
    json: JsonFile = None,
) -> None:
    """What speculation saves: sequential, `paper`, default and oracle on the same tasks and seeds."""
    from rich.console import Console

    from obsspec.bench import latency as job
    from obsspec.config import load_config
    from obsspec.processes.display import announced
    from obsspec.processes.run import new_folder, run
    from orchestrator.client import OrchestratorClient

    require_writable(json)
    console = Console(highlight=False, soft_wrap=True)
    checked = load_config(config, overrides or ())

    async def body() -> None:
        folder = new_folder(runs)
        async with (
            announced(checked, folder, console) as up,
            OrchestratorClient(up.service_url) as client,
        ):
            results = await job.measure(client, job.QUICK if quick else job.FULL, console)
            policy = next(engine for engine in (await client.ready()).engines if engine.name == "policy")
        data = job.result(results, policy.branches or "unknown", quick)
        for table in job.write(results, data, folder, json):
            console.print(table)
        console.print(f"Report, pictures and rollouts: {folder}")

    if run(body()):
        console.print("Stopped.")
        raise typer.Exit(130)
