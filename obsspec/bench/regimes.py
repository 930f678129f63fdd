"""`obsspec bench regimes`: where speculation pays, in simulated regimes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from obsspec.bench import regimes_pictures
from obsspec.bench.progress import progress
from obsspec.bench.regimes_cells import ACCURACY, RATIO, SPEED, Cell, Size, measure
from obsspec.bench.regimes_real import RealSize
from obsspec.bench.regimes_report import markdown
from obsspec.processes.lifetime import die_with
from orchestrator.schema import Rollout
from orchestrator.simulation.hardware import HARDWARE

FULL = Size(
    hardware=("8b", "32b", "tiny"),
    concurrency=(1, 2, 4, 8, 16, 32, 64),
    maps={
        RATIO: (0.1, 0.2, 0.5, 1, 2, 5, 10),
        ACCURACY: (0, 0.2, 0.4, 0.6, 0.8, 1),
        SPEED: (1, 2, 5, 10, 30),
    },
    rollouts_per_slot=4,
    least_rollouts=64,
    turns=6,
)
QUICK = Size(
    hardware=("8b",),
    concurrency=(1, 8, 32),
    maps={RATIO: (0.1, 1, 10), ACCURACY: (0, 0.5, 1), SPEED: (1, 10)},
    rollouts_per_slot=1,
    least_rollouts=16,
    turns=4,
)
REAL = RealSize(alone=4, loaded=24, groups=10)
REAL_QUICK = RealSize(alone=2, loaded=6, groups=1, tool_s=0.2)


def sweep(size: Size, console: Console) -> list[dict[str, Any]]:
    """The figures of every cell, in order; one process a processor, none left behind."""
    cells = size.cells()
    figures: dict[Cell, dict[str, Any]] = {}
    with (
        ProcessPoolExecutor(_processors(), get_context("spawn"), _begin, (os.getpid(),)) as pool,
        progress(console) as bar,
    ):
        job = bar.add_task("simulated regimes", total=len(cells))
        # The longest first, so that no processor is left with them at the end.
        futures = {
            pool.submit(measure, cell, size): cell for cell in sorted(cells, key=lambda c: -c.concurrency)
        }
        try:
            for future in as_completed(futures):
                figures[futures[future]] = future.result()
                bar.advance(job)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [figures[cell] for cell in cells]


def write_real(runs: Mapping[str, Sequence[Rollout]], folder: Path) -> None:
    """rollouts.jsonl into `folder`: what was run on real engines."""
    lines = (rollout.model_dump_json() for rollouts in runs.values() for rollout in rollouts)
    (folder / "rollouts.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write(data: dict[str, Any], folder: Path, copy: Path | None) -> None:
    """regimes.json, regimes.md and pictures into `folder`; the JSON also to `copy`."""
    text = json.dumps(data, indent=1) + "\n"
    (folder / "regimes.json").write_text(text)
    if copy is not None:
        copy.write_text(text)
    (folder / "regimes.md").write_text(markdown(data, list(_draw(data["cells"], folder))))


def _draw(cells: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """The pictures' names."""
    names = []
    for key in dict.fromkeys(cell["hardware"] for cell in cells):
        of = [cell for cell in cells if cell["hardware"] == key]
        for kind, draw in (
            ("latency", regimes_pictures.draw_latency),
            ("throughput", regimes_pictures.draw_throughput),
        ):
            names.append(f"regimes-{key}-{kind}.png")
            draw(of, HARDWARE[key].name, folder / names[-1])
    return names


def _begin(parent: int) -> None:
    """In a process of the pool: Ctrl-C is the parent's, and so is its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)


def _processors() -> int:
    return len(os.sched_getaffinity(0))
