"""What an estimate says: its answer in a sentence, its tables, and what stands behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from obsspec.bench.arms import DEFAULT, ORACLE, PAPER
from obsspec.comparison import number, percent
from obsspec.estimate.figures import NOTHING, TOLERANCE
from obsspec.estimate.predictions import REPORTED_HIT_RATE
from obsspec.estimate.study import SPECULATIVE

_A_LITTLE, _MUCH = 0.02, 0.05
_RUNS = 20
"""Shown, of those that take longest."""


def answer(data: dict[str, Any]) -> str:
    """Will it help? In plain words, for these runs."""
    runs = "this run" if data["runs"] == 1 else f"these {data['runs']} runs"
    if not data["tool_turns"]:
        return f"No: the agents of {runs} call no tools, so that there is nothing to wait for."
    measured, reported = data["world_model"], at(data, REPORTED_HIT_RATE)[DEFAULT]
    saved = (measured[DEFAULT] if measured else reported)["saved_frac"]
    verdict = "Hardly" if saved < _A_LITTLE else "A little" if saved < _MUCH else "Yes"
    sentences = [
        f"{verdict}: at most {percent(data[ORACLE]['saved_frac'])} of the time of {runs} can be saved, "
        f"because {_reason(data['tool_over_generation'])}; at a hit rate of {percent(REPORTED_HIT_RATE)}, "
        f"which the authors report of their world model, it is {percent(reported['saved_frac'])} "
        f"({reported['saved_s_per_run']:.1f} s a run)."
    ]
    known = next((row[DEFAULT]["saved_frac"] for row in data["hit_rates"] if not row["hit_rate"]), 0.0)
    if known > NOTHING:
        sentences.append(
            f"With the default settings {percent(known)} needs no world model: the same commands printed the "
            "same before, in this run or in another."
        )
    if measured:
        sentences.append(
            f"The world model {measured['name']} predicts {percent(measured['exact_frac'])} of "
            f"{measured['compared']} observations exactly, and with that it is {percent(saved)}."
        )
    return " ".join(sentences)


def at(data: dict[str, Any], hit_rate: float) -> dict[str, Any]:
    """The figures at one of the hit rates."""
    return next(row for row in data["hit_rates"] if row["hit_rate"] == hit_rate)


def tables(data: dict[str, Any]) -> list[Table]:
    return [_rates(data), _traces(data), *([_kinds(data["world_model"])] if data["world_model"] else [])]


def notes(data: dict[str, Any]) -> Iterator[str]:
    """What the figures rest on, a sentence each."""
    premises = data["premises"]
    yield data["simulated"]
    for kind, counts in data["origins"].items():
        yield f"{kind.capitalize()}: {', '.join(f'{n} {origin}' for origin, n in counts.items())}."
    yield from data["assumptions"]
    yield f"A prediction is assumed to take {premises['prediction_time']}; the oracle's take no time."
    if data["savable_frac"] is not None:
        yield (
            f"In {percent(data['savable_frac'])} of the turns with tools there is something to save: the "
            "tool outlasts its prediction, and an action follows."
        )
    if premises["concurrency"] > 1:
        yield (
            f"{premises['concurrency']} runs at once: a token takes {percent(premises['crowding'])} longer "
            f"(assumed) for each other request, and a run {data['sequential_s_per_run']:.1f} s without "
            f"speculation in place of {data['seconds_per_run']:.1f} s."
        )
    if data["repeated_frac"] is not None:
        yield (
            f"{percent(data['repeated_frac'])} of the observations are those of another run after the same "
            "prompt and tool calls. `default` knows these, and what a command printed before in the same "
            "run, without a world model, and so saves beyond the hit rate."
        )
    yield from _break_even(data)
    if data["replay_error"] > TOLERANCE:
        yield (
            f"Replayed without speculation, a run differs from its own time by "
            f"{percent(data['replay_error'])}: do not rely on what is said of it."
        )
    if asked := data["world_model"]:
        yield (
            f"The world model took {asked['mean_s']:.2f} s a prediction ({asked['tokens_per_s']:.0f} tokens "
            f"a second), asked one at a time. {asked['cut']} predictions were cut at "
            f"{asked['max_prediction_tokens']} tokens; {asked['not_recorded']} tool calls have no recorded "
            "observation and count as misses."
        )


def _reason(tool_over_generation: float | None) -> str:
    if tool_over_generation is None:
        return "they generate nothing"
    if tool_over_generation < 1:
        return f"their tools take {tool_over_generation:.2f} of the time that generation takes"
    return f"only generation can be hidden, and tools take {tool_over_generation:.1f} times as long"


def _break_even(data: dict[str, Any]) -> Iterator[str]:
    for arm, rate in data["break_even"].items():
        if rate is not None:
            yield f"`{arm}` loses time below a hit rate of {percent(rate)}."
        elif min(row[arm]["saved_frac"] for row in data["hit_rates"]) > -NOTHING:
            yield f"`{arm}` loses time at no hit rate; what a miss costs is tokens."
        else:
            yield f"`{arm}` does not break even at any of these hit rates."


def _rates(data: dict[str, Any]) -> Table:
    out = Table(
        title=f"Time saved (simulated): {data['runs']} runs of {number(data['seconds_per_run'], ' s')}, "
        f"{data['turns']} turns, {data['tool_calls']} tool calls",
        caption="±: 95%, by which predictions hit. Waste: the policy's tokens thrown away for each second "
        "saved. *: reported by the authors.",
        caption_justify="left",
    )
    out.add_column("hit rate")
    for arm in SPECULATIVE:
        for name in ("saved", "a run", "waste"):
            out.add_column(f"{arm}\n{name}", justify="right", no_wrap=True)
    for row in data["hit_rates"]:
        reported = "*" if row["reported"] else ""
        out.add_row(f"{percent(row['hit_rate'])}{reported}", *_cells(row))
    if data["world_model"]:
        out.add_row("measured", *_cells(data["world_model"]))
    out.add_section()
    out.add_row("oracle", "", "", "", *_cell(data[ORACLE]))
    return out


def _cells(row: dict[str, Any]) -> list[str]:
    return [cell for arm in SPECULATIVE for cell in _cell(row[arm])]


def _cell(figures: dict[str, Any]) -> tuple[str, str, str]:
    interval, waste = figures["saved_frac_ci"], figures["discarded_tokens_per_saved_s"]
    within = f" ± {50 * (interval[1] - interval[0]):.1f}" if interval else ""
    return (
        f"{percent(figures['saved_frac'])}{within}",
        f"{figures['saved_s_per_run']:.1f} s",
        "n/a" if waste is None else f"{waste:.0f}",
    )


def _traces(data: dict[str, Any]) -> Table:
    shown = sorted(data["traces"], key=lambda trace: -trace["sequential_s"])[:_RUNS]
    left = len(data["traces"]) - len(shown)
    out = Table(
        title="Where the time of each run goes, and what can be saved of it (simulated)",
        caption=f"Saved at a hit rate of {percent(REPORTED_HIT_RATE)}, and by the oracle."
        + (f" The {_RUNS} longest runs; {left} more are in the JSON." if left else ""),
        caption_justify="left",
    )
    out.add_column("run", overflow="ellipsis")
    for name in ("turns", "policy", "tools", PAPER, DEFAULT, ORACLE):
        out.add_column(name, justify="right", no_wrap=True)
    for trace in shown:
        saved = at(trace, REPORTED_HIT_RATE)
        out.add_row(
            trace["name"],
            str(trace["turns"]),
            f"{trace['generation_s']:.1f} s",
            f"{trace['tool_s']:.1f} s",
            percent(saved[PAPER]),
            percent(saved[DEFAULT]),
            percent(trace[ORACLE]),
        )
    return out


def _kinds(world_model: dict[str, Any]) -> Table:
    out = Table(title=f"Exact predictions of {world_model['name']}")
    out.add_column("command", overflow="fold")
    for name in ("compared", "exact_frac", "without empty"):
        out.add_column(name, justify="right")
    kinds = world_model["by_command_kind"]
    for kind, row in [*list(kinds.items())[:_RUNS], ("all", world_model)]:
        if kind == "all":
            out.add_section()
        shown = percent(row["exact_frac"]), percent(row["exact_frac_nonempty"])
        out.add_row(kind, str(row["compared"]), *shown)
    return out
