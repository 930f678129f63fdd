"""`obsspec bench regimes`: where speculation pays, simulated; the simulator beside real engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import JsonFile, Overrides, require_writable


def regimes(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file.")] = Path("configs/tiny.yaml"),
    overrides: Overrides = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few regimes, and few real rollouts to compare with.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Report and pictures go into a new folder there.")] = Path(
        "runs"
    ),
    json: JsonFile = None,
) -> None:
    """Where speculation pays and where it does not: simulated regimes, and the simulator's error."""
    from rich.console import Console

    from obsspec.bench import regimes as job
    from obsspec.bench import regimes_report as report
    from obsspec.bench.regimes_real import Recorded, record, validate
    from obsspec.config import load_config
    from obsspec.processes.display import announced
    from obsspec.processes.run import new_folder, run
    from orchestrator.client import OrchestratorClient

    require_writable(json)
    console = Console(highlight=False, soft_wrap=True)
    checked = load_config(config, overrides or ())
    folder = new_folder(runs)
    recorded: list[Recorded] = []

    async def body() -> None:
        async with (
            announced(checked, folder, console) as up,
            OrchestratorClient(up.service_url) as client,
        ):
            size = job.REAL_QUICK if quick else job.REAL
            recorded.append(await record(client, checked.orchestrator.concurrency, size, console))

    if run(body()):
        console.print("Stopped.")
        raise typer.Exit(130)
    job.write_real(recorded[0].runs, folder)
    validation = validate(recorded[0])
    size = job.QUICK if quick else job.FULL
    data = report.result(job.sweep(size, console), size, validation, quick)
    job.write(data, folder, json)
    for table in report.tables(data):
        console.print(table)
    for note in report.notes(data):
        console.print(note)
    console.print(f"Report, pictures and figures of every regime: {folder}")
