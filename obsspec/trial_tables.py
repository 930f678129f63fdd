"""What `obsspec tasks build|run|determinism` print: tables that fit 80 columns, and below them, in lines of
their own and in full, what cannot stand in a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.determinism import Comparison
from tasks.families import ALL_FAMILIES
from tasks.harbor import printable
from tasks.trials import Trial

_ROWS_OF_FAMILIES = 25
"""From here on built-in tasks have a row a family."""


def print_trials(console: Console, rows: Sequence[Trial], build_only: bool) -> None:
    if rows:
        console.print(
            _of_families(rows) if _all_built_in(rows) and not build_only else _of_tasks(rows, build_only)
        )
    for row in rows:
        if row.refused:
            _line(console, "refused", row.task, row.refused, "red")
    for row in rows:
        if row.note:
            _line(console, "note", row.task, row.note, "yellow")
    for base, count in Counter(row.base for row in rows if row.base and not _is_built_in(row)).items():
        _line(console, "note", "", f"{base}: {_tasks(count)}", "yellow")
    console.print(_summary(rows, build_only), highlight=False, soft_wrap=True)


def print_comparisons(console: Console, rows: Sequence[Comparison]) -> None:
    families: dict[str, list[Comparison]] = defaultdict(list)
    for row in rows:
        families[row.task.partition("/")[0]].append(row)
    table = _table("Family", ("Tasks", "Observations", "Identical"))
    for family, of in families.items():
        observations, identical = sum(row.observations for row in of), sum(row.identical for row in of)
        share = f"{identical / observations:.1%}" if observations else ""
        table.add_row(Text(printable(family)), str(len(of)), str(observations), share)
    console.print(table)
    for difference in (difference for row in rows for difference in row.differences):
        _line(console, "differs", difference.task, difference.command, "yellow")
        for line in difference.how.splitlines():
            console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    for row in rows:
        if row.error:
            _line(console, "error", row.task, row.error, "red")


def _line(console: Console, kind: str, task: str, text: str, style: str) -> None:
    about = "" if not task or task in text else f"{printable(task)}: "
    console.print(
        Text.assemble((kind, style), f" {about}{printable(' '.join(text.split()))}"), soft_wrap=True
    )


def _table(first: str, numbers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column(first, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _of_tasks(rows: Sequence[Trial], build_only: bool) -> Table:
    times = ("Build s",) if build_only else ("Build s", "Start s", "Agent s", "Verify s")
    table = _table("Task", ("Built" if build_only else "Reward", *times))
    for row in rows:
        verdict = Text("yes") if build_only else Text("" if row.reward is None else f"{row.reward:g}")
        if row.refused:
            verdict = Text("refused", style="red")
        seconds = [f"{second:.2f}" if second else "" for second in _times(row)[: len(times)]]
        table.add_row(Text(printable(row.task)), verdict, *seconds)
    return table


def _of_families(rows: Sequence[Trial]) -> Table:
    families: dict[str, list[Trial]] = defaultdict(list)
    for row in rows:
        families[row.task.partition("/")[0]].append(row)
    table = _table("Family", ("Tasks", "Verified", "Reward", "Start s", "Agent s", "Verify s"))
    for family, of in families.items():
        rewards = [row.reward for row in of if row.reward is not None]
        means = (f"{fmean(times):.2f}" for times in list(zip(*map(_times, of), strict=True))[1:])
        reward = f"{fmean(rewards):.3g}" if rewards else ""
        table.add_row(family, str(len(of)), str(len(rewards)), reward, *means)
    return table


def _times(row: Trial) -> tuple[float, ...]:
    return row.build_s, row.start_s, row.agent_s, row.verify_s


def _is_built_in(row: Trial) -> bool:
    return row.task.partition("/")[0] in ALL_FAMILIES


def _all_built_in(rows: Sequence[Trial]) -> bool:
    return len(rows) >= _ROWS_OF_FAMILIES and all(map(_is_built_in, rows))


def _summary(rows: Sequence[Trial], build_only: bool) -> str:
    return ", ".join(_parts(rows, build_only)) + "."


def _parts(rows: Sequence[Trial], build_only: bool) -> Iterator[str]:
    built = sum(row.built for row in rows)
    yield f"{_tasks(len(rows))}: {built} built"
    rewards = [row.reward for row in rows if row.reward is not None]
    if not build_only:
        yield f"{len(rewards)} verified"
    yield f"{sum(row.refused is not None for row in rows)} refused"
    if rewards:
        agents = Counter(row.agent for row in rows if row.reward is not None)
        by = ", ".join(f"{name} {count}" for name, count in agents.items())
        yield f"mean reward {fmean(rewards):.3f} ({by})"


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
