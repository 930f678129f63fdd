"""What `obsspec bench regimes` says: its JSON, its tables, and its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from obsspec.bench.regimes_cells import (
    ALONE,
    ALWAYS,
    ARMS,
    GOVERNED,
    LABELS,
    NAMES,
    SPECULATIVE,
    Size,
    slowdown,
)
from obsspec.bench.regimes_real import Validation
from obsspec.comparison import number, percent
from orchestrator.simulation.hardware import HARDWARE
from orchestrator.simulation.workload import Workload

Figures = dict[str, Any]

SIMULATED = (
    "All regimes are simulated: clock, engines, models and tools. Rollouts, predictors, branches and the "
    "governor are the code that serves, in virtual time. Tools print nothing before they end, so that no "
    "branch is dropped early."
)


def result(cells: Sequence[Figures], size: Size, validation: Validation, quick: bool) -> dict[str, Any]:
    """What --json writes; fractions of the sequential arm's."""
    worst = {arm: _worst(cells, arm) for arm in SPECULATIVE}
    governed = max((worst[ALONE], worst[GOVERNED]), key=lambda each: each["slower"])
    return {
        "worst_case": {"always": worst[ALWAYS]["slower"], "governed": governed["slower"]},
        "worst_cases": worst,
        "simulator_error": validation.error,
        "validation": validation.as_json(),
        "simulated": SIMULATED,
        "quick": quick,
        "parameters": {
            "arms": {arm: settings.model_dump(mode="json") for arm, settings in ARMS.items()},
            "workload": asdict(Workload(turns=size.turns)),
            "size": asdict(size),
            "hardware": {
                key: {
                    "name": HARDWARE[key].name,
                    "basis": HARDWARE[key].basis,
                    **asdict(HARDWARE[key].engines),
                }
                for key in size.hardware
            },
        },
        "cells": list(cells),
    }


def _worst(cells: Sequence[Figures], arm: str) -> Figures:
    """The cell in which agents lose most."""
    cell = max(cells, key=lambda each: slowdown(each, arm))
    low, high = cell[arm]["latency_saved_ci"]
    where = {key: cell[key] for key in ("hardware", "varied", "value", "concurrency", "rollouts")}
    return {"slower": slowdown(cell, arm), "ci": [-high, -low], **where}


def tables(data: dict[str, Any]) -> Iterator[Table]:
    for hardware in data["parameters"]["hardware"]:
        yield _hardware(data, hardware)
    yield _validation(data)


def notes(data: dict[str, Any]) -> list[str]:
    """Sentences for below the tables."""
    hardware = data["parameters"]["hardware"].values()
    lines = [data["simulated"], *(f"{each['name']}: {each['basis']}." for each in hardware)]
    for arm in SPECULATIVE:
        worst = data["worst_cases"][arm]
        lines.append(f"Worst of {NAMES[arm]}: {_slower(worst['slower'])} than sequential, at {place(worst)}.")
    return lines


def markdown(data: dict[str, Any], pictures: Sequence[str]) -> str:
    lines = ["# Regimes, simulated", "", *(f"- {note}" for note in notes(data)), ""]
    for table in map(_rows, data["parameters"]["hardware"], [data] * len(data["parameters"]["hardware"])):
        name, rows = table
        lines += [
            f"## {name}",
            "",
            f"| | {' | '.join(NAMES[arm] for arm in SPECULATIVE)} |",
            "|---|---|---|---|",
        ]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += [
        "## The simulator beside real engines",
        "",
        "| | real | simulated | error |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _validation_rows(data)),
        "",
    ]
    return "\n".join([*lines, *(f"![{name}]({name})" for name in pictures), ""])


def place(worst: Figures) -> str:
    """A cell in words."""
    return (
        f"{worst['concurrency']} concurrent rollouts, {LABELS[worst['varied']]} {worst['value']:g} "
        f"({HARDWARE[worst['hardware']].name})"
    )


def _hardware(data: dict[str, Any], key: str) -> Table:
    name, rows = _rows(key, data)
    cells = [cell for cell in data["cells"] if cell["hardware"] == key]
    out = Table(
        title=f"{name}: {len(cells)} simulated regimes",
        caption="Simulated. Against sequential rollouts of the same plans; intervals in the JSON.",
        caption_justify="left",
    )
    out.add_column("")
    for arm in SPECULATIVE:
        out.add_column(NAMES[arm], justify="right")
    for row in rows:
        out.add_row(*row)
    return out


def _rows(key: str, data: dict[str, Any]) -> tuple[str, list[tuple[str, ...]]]:
    cells = [cell for cell in data["cells"] if cell["hardware"] == key]

    def each(label: str, figure: Any) -> tuple[str, ...]:
        return label, *(figure(arm) for arm in SPECULATIVE)

    def mean(arm: str, figure: str) -> str:
        return percent(sum(cell[arm][figure] for cell in cells) / len(cells))

    def slower(arm: str, than: float) -> str:
        return f"{sum(slowdown(cell, arm) > than for cell in cells)} of {len(cells)}"

    return HARDWARE[key].name, [
        each("latency saved, mean over regimes", lambda arm: mean(arm, "latency_saved")),
        each("latency saved, best", lambda arm: percent(max(cell[arm]["latency_saved"] for cell in cells))),
        each("latency saved, worst", lambda arm: percent(min(cell[arm]["latency_saved"] for cell in cells))),
        each("regimes more than 1% slower", lambda arm: slower(arm, 0.01)),
        each("throughput gained, mean", lambda arm: mean(arm, "throughput_gained")),
        each("policy tokens thrown away, of kept", lambda arm: mean(arm, "discarded_over_kept")),
    ]


def _validation(data: dict[str, Any]) -> Table:
    out = Table(
        title="The simulator beside real engines: mean agent latency of the same rollouts",
        caption="Real engines and tools, simulated tool latency; replayed on engines fitted to other tasks.",
        caption_justify="left",
    )
    for name in ("", "real", "simulated", "error"):
        out.add_column(name, justify="right" if name else "left")
    for row in _validation_rows(data):
        out.add_row(*row)
    return out


def _validation_rows(data: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            number(each["real_s"], " s"),
            number(each["simulated_s"], " s"),
            f"{100 * each['error']:+.1f}%",
        )
        for name, each in data["validation"]["modes"].items()
    ]


def _slower(fraction: float) -> str:
    return f"{percent(abs(fraction))} {'slower' if fraction > 0 else 'faster'}"
