"""`obsspec tasks build|run|determinism`: tasks at work, with scripted agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from obsspec.commands.options import CACHE, Cache, JsonFile, Limit, Source, require_writable

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="YAML file whose orchestrator.sandbox says how sandboxes are made."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One setting of the sandboxes, e.g. network=true."),
]
Concurrency = Annotated[int, typer.Option("--concurrency", "-j", min=1, help="Tasks at a time.")]


def build(
    source: Source,
    limit: Limit = None,
    concurrency: Concurrency = 2,
    config: Config = None,
    settings: Set = None,
    cache: Cache = CACHE,
    json: JsonFile = None,
) -> None:
    """Build the environments of tasks; exit status 1 where one cannot be built."""
    from obsspec.task_runs import run_trials

    require_writable(json)
    rows = run_trials(source, cache, limit, concurrency, config, settings or [], None, True, json)
    if not all(row.built for row in rows):
        raise typer.Exit(1)


def run(
    source: Source,
    agent: Annotated[
        str | None,
        typer.Option(help="expert, solution or noop; by default the one that can solve each task."),
    ] = None,
    limit: Limit = None,
    concurrency: Concurrency = 2,
    config: Config = None,
    settings: Set = None,
    cache: Cache = CACHE,
    json: JsonFile = None,
) -> None:
    """Let a scripted agent work on tasks and verify them; exit status 1 where one was not verified."""
    from obsspec.task_runs import agent_named, run_trials

    require_writable(json)
    rows = run_trials(
        source, cache, limit, concurrency, config, settings or [], agent_named(agent), False, json
    )
    if not all(row.verified for row in rows):
        raise typer.Exit(1)


def determinism(
    source: Annotated[
        str, typer.Argument(metavar="[SOURCE]", help="As for `list`; tasks with an expert.")
    ] = "families",
    limit: Annotated[int, typer.Option(min=1, help="Tasks; of families, taken in turn.")] = 95,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between the two runs of a task.")] = 1.1,
    config: Config = None,
    settings: Set = None,
    cache: Cache = CACHE,
    json: JsonFile = None,
) -> None:
    """Run each expert twice, and list the commands whose observations differ, and how."""
    from obsspec.task_runs import run_determinism

    require_writable(json)
    run_determinism(source, cache, limit, pause, config, settings or [], json)


def clean(
    days: Annotated[
        float, typer.Option(min=0, help="Keep what was used since, and in the last hour.")
    ] = 14.0,
    config: Config = None,
    settings: Set = None,
) -> None:
    """Remove layers of environments that nothing has used for some days; they are built again when needed."""
    import asyncio

    from obsspec.task_runs import sandbox_config
    from tasks.environments import Builder

    removed = asyncio.run(Builder(sandbox_config(config, settings or [])).clean(days * 86_400))
    typer.echo(f"Removed {removed} layer{'' if removed == 1 else 's'}.")
