"""`obsspec tasks`: what tasks there are, and whether they can be used."""

from __future__ import annotations

from typing import Annotated

import typer

from obsspec.commands import task_runs
from obsspec.commands.options import CACHE, Cache, JsonFile, Limit, Source, require_writable

app = typer.Typer(help="List, check, build and run tasks.", no_args_is_help=True)


@app.command("list")
def list_(source: Source, limit: Limit = None, cache: Cache = CACHE, json: JsonFile = None) -> None:
    """List the tasks of a source."""
    from json import dumps

    from rich.console import Console

    from obsspec.task_tables import list_table, listed, selected
    from tasks.sources import open_source

    require_writable(json)
    opened = open_source(source, cache)
    rows = list(listed(opened, selected(opened, limit)))
    Console().print(list_table(rows, opened.describe()))
    if json is not None:
        json.write_text(dumps(rows, indent=1) + "\n")


@app.command("show")
def show(
    source: Source,
    task: Annotated[str | None, typer.Argument(metavar="[ID]", help="As `list` names it.")] = None,
    cache: Cache = CACHE,
) -> None:
    """Show a task: its instruction, limits, environment and files."""
    from rich.console import Console

    from obsspec.task_tables import details, selected
    from tasks.sources import open_source
    from tasks.task import UnknownTask

    opened = open_source(source, cache)
    if task is None:
        first, *others = selected(opened, 2)
        if others:
            raise UnknownTask(f"{source} holds several tasks: name one, such as {first}")
        task = first
    Console(highlight=False).print(details(opened.load(task)))


@app.command("check")
def check(source: Source, limit: Limit = None, cache: Cache = CACHE, json: JsonFile = None) -> None:
    """Name every problem of every task, a line each; exit status 1 where one cannot be used."""
    from json import dumps

    from rich.console import Console
    from rich.text import Text

    from obsspec.task_tables import checked, selected, summary
    from tasks.harbor import printable
    from tasks.sources import open_source

    require_writable(json)
    opened = open_source(source, cache)
    console = Console(highlight=False, soft_wrap=True)
    results = []
    for result in checked(opened, selected(opened, limit)):
        results.append(result)
        for problem in result.problems:
            style = "red" if problem.severity == "error" else "yellow"
            where = "/".join(part for part in (printable(result.task), problem.where) if part)
            console.print(Text.assemble((problem.severity, style), f" {where} {problem.what}"))
    console.print(summary(results))
    if json is not None:
        json.write_text(dumps([result.row() for result in results], indent=1) + "\n")
    if not all(result.valid for result in results):
        raise typer.Exit(1)


app.command("build")(task_runs.build)
app.command("run")(task_runs.run)
app.command("determinism")(task_runs.determinism)
app.command("clean")(task_runs.clean)
