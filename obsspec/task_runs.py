"""What `obsspec tasks build|run|determinism` do: run with a progress bar, print tables, write JSON."""

from __future__ import annotations

import asyncio
import json as json_
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from obsspec.task_tables import selected
from obsspec.trial_tables import print_comparisons, print_trials
from tasks.agents import AgentName
from tasks.config import SandboxConfig
from tasks.determinism import Comparison, compare
from tasks.harbor import printable
from tasks.sources import open_source
from tasks.task import TaskError
from tasks.trials import Trial, all_of
from tasks.worlds import Worlds


def agent_named(name: str | None) -> AgentName | None:
    """Raises TaskError for a name that no agent has."""
    if name is None or name in get_args(AgentName):
        return cast(AgentName | None, name)
    raise TaskError(f"there is no agent {name!r}: take {', '.join(get_args(AgentName))}")


def run_trials(
    source: str,
    cache: Path,
    limit: int | None,
    concurrency: int,
    config: Path | None,
    settings: Sequence[str],
    agent: AgentName | None,
    build_only: bool,
    json: Path | None,
) -> list[Trial]:
    opened = open_source(source, cache)
    ids = selected(opened, limit)
    worlds = Worlds(sandbox_config(config, settings))
    console = Console()

    def write(rows: Sequence[Trial]) -> None:
        """So that an end in between loses nothing."""
        if json is not None:
            json.write_text(json_.dumps([asdict(row) for row in rows], indent=1) + "\n")

    async def run() -> list[Trial]:
        with _progress(console) as bar:
            line = bar.add_task("", total=len(ids))
            rows = []

            def tell(text: str) -> None:
                bar.update(line, description=_one_line(text))

            async with aclosing(
                all_of(opened, ids, worlds, concurrency, agent, build_only, tell)
            ) as trials:  # closed on Ctrl-C too, so that its sandboxes end before the loop does
                async for row in trials:
                    rows.append(row)
                    write(rows)
                    bar.update(line, advance=1, description=_one_line(row.task))
        return rows

    found = {row.task: row for row in asyncio.run(run())}
    rows = [found[task_id] for task_id in ids]
    write(rows)
    print_trials(console, rows, build_only)
    return rows


def run_determinism(
    source: str,
    cache: Path,
    limit: int,
    pause_s: float,
    config: Path | None,
    settings: Sequence[str],
    json: Path | None,
) -> None:
    """Raises TaskError where a task could not be compared."""
    opened = open_source(source, cache)
    ids = selected(opened, limit)
    worlds = Worlds(sandbox_config(config, settings))
    console = Console()

    async def run() -> list[Comparison]:
        rows = []
        with _progress(console) as bar:
            line = bar.add_task("", total=len(ids))
            for task_id in ids:
                rows.append(await compare(opened, task_id, worlds, pause_s))
                bar.update(line, advance=1, description=_one_line(task_id))
        return rows

    rows = asyncio.run(run())
    result = _result(rows)
    if json is not None:
        json.write_text(json_.dumps(result, indent=1) + "\n")
    print_comparisons(console, rows)
    counts = f"{result['identical']} of {result['observations']} observations"
    console.print(f"{counts} are identical ({result['identical_frac']:.1%}).", highlight=False)
    if not result["observations"] or result["errors"]:
        raise TaskError("not every task could be compared: see above")


def _result(rows: Sequence[Comparison]) -> dict[str, Any]:
    observations, identical = sum(row.observations for row in rows), sum(row.identical for row in rows)
    differences = [
        asdict(difference) | {"how": difference.how} for row in rows for difference in row.differences
    ]
    return {
        "identical_frac": identical / observations if observations else 0.0,
        "observations": observations,
        "identical": identical,
        "tasks": len(rows),
        "differences": differences,
        "errors": [{"task": row.task, "error": row.error} for row in rows if row.error],
    }


def sandbox_config(file: Path | None, settings: Sequence[str]) -> SandboxConfig:
    """Of a configuration's orchestrator, or the default; with single settings changed. Raises ConfigError."""
    from obsspec.config import load_config, with_settings

    base = load_config(file, ()).orchestrator.sandbox if file is not None else SandboxConfig()
    return with_settings(base, settings)


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        transient=True,
        expand=True,
    )


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
