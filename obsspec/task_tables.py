"""What `obsspec tasks` prints of tasks: rows and tables for Rich, from loaded tasks and their problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from tasks.dockerfile import (
    DockerfileError,
    base_image,
    global_args,
    global_variables,
    parse,
    platform_args,
    stages,
)
from tasks.harbor import Problem, check, printable
from tasks.sources import TaskSource
from tasks.task import Task, TaskError

SAMPLE = 20
"""Tasks that are taken of a source without end where no number is given."""


def selected(source: TaskSource, limit: int | None) -> list[str]:
    """The first ids of a source: all of one that ends, unless `limit` is given."""
    ends = hasattr(source, "__len__")
    return list(islice(source.ids(), limit if limit is not None or ends else SAMPLE))


@dataclass(frozen=True)
class Checked:
    """A task and its problems; it is valid with warnings."""

    task: str
    problems: tuple[Problem, ...]

    @property
    def valid(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    def row(self) -> dict[str, Any]:
        problems = [{"severity": p.severity, "where": p.where, "what": p.what} for p in self.problems]
        errors = [f"{p.where} {p.what}".strip() for p in self.problems if p.severity == "error"]
        ran = {"built": False, "verified": False, "reward": None, "refused": errors[0] if errors else None}
        return {"task": self.task, "valid": self.valid, **ran, "problems": problems}


def checked(source: TaskSource, ids: Iterable[str]) -> Iterator[Checked]:
    """The problems of each task, also of one that has no directory."""
    for task_id in ids:
        try:
            problems = check(source.path(task_id))
        except TaskError as error:
            problems = [Problem("error", "", str(error))]
        yield Checked(task_id, tuple(problems))


def summary(results: Sequence[Checked]) -> str:
    valid = sum(result.valid for result in results)
    warned = sum(any(p.severity == "warning" for p in result.problems) for result in results)
    count = f"{len(results)} task{'' if len(results) == 1 else 's'}"
    return f"{count}: {valid} valid, {len(results) - valid} with errors, {warned} with warnings"


def listed(source: TaskSource, ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A row a task; one that cannot be used has `error` instead of the rest."""
    for task_id in ids:
        try:
            task = source.load(task_id)
        except TaskError as error:
            yield {"task": task_id, "error": str(error)}
            continue
        yield {
            "task": task_id,
            "family": task.family,
            "instruction": task.instruction,
            "agent_timeout_s": task.agent_timeout_s,
            "verifier_timeout_s": task.verifier_timeout_s,
            "memory_mb": task.memory_mb,
            "environment": base(task),
            "solution": task.solution is not None,
        }


def list_table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("Task", min_width=max((len(row["task"]) for row in rows), default=0))
    table.add_column("Instruction", ratio=1)
    for name in ("Agent", "Memory", "From"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        task = Text(printable(row["task"]))
        if "error" in row:
            table.add_row(task, Text(printable(row["error"]), style="red"), "", "", "")
            continue
        memory = f"{row['memory_mb']} MB" if row["memory_mb"] else ""
        first = Text(row["instruction"].splitlines()[0], no_wrap=True, overflow="ellipsis")
        table.add_row(task, first, f"{row['agent_timeout_s']:g} s", memory, Text(row["environment"]))
    return table


def base(task: Task) -> str:
    """The image that the environment starts from, as the task names it."""
    if task.docker_image is not None:
        return task.docker_image
    try:
        instructions = parse(task.dockerfile.read_text(encoding="utf-8"))
        variables = global_variables(global_args(instructions), {}, platform_args())
        return base_image(stages(instructions)[-1].from_, variables).image
    except DockerfileError:
        return "(see check)"


def details(task: Task) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(task):
        facts.add_row(Text(name, style="bold"), Text(printable(value)))
    files = Table.grid(padding=(0, 2))
    for path, size in _files(task.path):
        files.add_row(Text(printable(path)), Text(f"{size:,} B", justify="right"))
    heading = Text(task.id, style="bold underline")
    return Group(heading, "", Markdown(task.instruction), "", facts, "", Text("Files", style="bold"), files)


def _facts(task: Task) -> Iterator[tuple[str, str]]:
    yield "Folder", str(task.path)
    yield "Family", task.family
    yield (
        "Time",
        (
            f"agent {task.agent_timeout_s:g} s, verifier {task.verifier_timeout_s:g} s, "
            f"build {task.build_timeout_s:g} s"
        ),
    )
    sizes = ("memory", task.memory_mb, " MB"), ("storage", task.storage_mb, " MB"), ("CPUs", task.cpus, "")
    named = [f"{name} {value:g}{unit}" for name, value, unit in sizes if value is not None]
    yield "Limits", ", ".join(named) or "none named"
    yield "Internet", "allowed" if task.allow_internet else "not allowed"
    yield "From", base(task)
    users = ("agent", task.agent_user), ("verifier", task.verifier_user)
    if any(user for _, user in users):
        yield "Users", ", ".join(f"{name} {user}" for name, user in users if user)
    if task.workdir is not None:
        yield "Work folder", task.workdir
    for name, values in (("environment", task.environment_env), ("verifier", task.verifier_env)):
        if values:
            yield f"Variables ({name})", ", ".join(f"{key}={value}" for key, value in values.items())
    if task.healthcheck is not None:
        yield "Health check", f"{task.healthcheck.command} (every {task.healthcheck.interval_s:g} s)"
    yield "Solution", "solution/solve.sh" if task.solution else "none"
    if task.metadata:
        yield "Metadata", ", ".join(f"{key}={value}" for key, value in task.metadata.items())


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix(), path.lstat().st_size
