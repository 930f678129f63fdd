"""`obsspec bench latency`: what speculation saves, in two reference regimes and on tools slow by nature.

In a regime every tool call waits a seeded log-normal time whose mean is a set multiple of the measured mean
generation time. The slow families have no simulated delay at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from obsspec.batch import held_out
from obsspec.bench import arms, latency_report
from obsspec.bench.arms import ARMS, Block, Runs
from obsspec.bench.figures import figures
from obsspec.bench.progress import progress
from orchestrator.client import OrchestratorClient
from orchestrator.schema import RolloutRequest, Speculation, ToolLatency
from tasks.families import EVAL_SEED, SLOW_FAMILIES

SIGMA = 0.6
REGIMES = {"tool_3.7x": 3.7, "tool_1x": 1.0}
"""Mean tool time as a multiple of the mean generation time."""
SLOW = "slow_families"
_SEED = 1000


@dataclass(frozen=True)
class Size:
    """How much is run."""

    tasks: int
    """Groups of a regime, a task each, the families in turn."""
    group: int
    """Rollouts of a task."""
    slow_tasks: int
    """Tasks of each slow family."""
    slow_group: int
    calibration: int
    """Rollouts that measure the generation time of a regime, before it."""


FULL = Size(tasks=15, group=8, slow_tasks=2, slow_group=8, calibration=16)
QUICK = Size(tasks=1, group=4, slow_tasks=0, slow_group=2, calibration=4)


async def measure(client: OrchestratorClient, size: Size, console: Console) -> dict[str, Runs]:
    """Rollouts by regime and arm, the slow families last. Raises ProcessError, OrchestratorError."""
    results: dict[str, Runs] = {}
    blocks = [Block(task, _SEED, size.group) for task in held_out(size.tasks)]
    slow = [
        Block(f"{family}/{EVAL_SEED + number}", _SEED, size.slow_group)
        for number in range(size.slow_tasks)
        for family in SLOW_FAMILIES
    ]
    with progress(console) as bar:
        for name, ratio in REGIMES.items():
            latency = await _tool_latency(client, ratio, size, console)
            results[name] = await arms.run(client, name, blocks, latency, _job(bar, name, blocks))
        if slow:
            results[SLOW] = await arms.run(client, SLOW, slow, "none", _job(bar, SLOW, slow))
    return results


async def _tool_latency(
    client: OrchestratorClient, ratio: float, size: Size, console: Console
) -> ToolLatency:
    """The simulated latency that makes tools take `ratio` times a generation, at the load that it gives."""
    latency: ToolLatency | None = None
    for _ in range(2):
        request = RolloutRequest(
            tasks=held_out(size.calibration),
            seed=0,
            speculation=Speculation(preset="sequential", scope="calibration"),
            tool_latency=latency or "none",
        )
        rollouts = [await client.wait(i) for i in await client.submit(request)]
        turns = [turn for rollout in rollouts for turn in rollout.turns]
        called = [turn for turn in turns if turn.prediction is not None]
        generation_s = sum(turn.generation_s for turn in turns) / max(1, len(turns))
        real_s = sum(turn.tool_s - turn.simulated_s for turn in called) / max(1, len(called))
        latency = ToolLatency(mean_s=max(0.001, ratio * generation_s - real_s), sigma=SIGMA)
    assert latency is not None
    console.print(
        f"A generation takes {generation_s * 1000:.0f} ms: a simulated tool latency of "
        f"{latency.mean_s * 1000:.0f} ms (sigma {SIGMA}) makes tools {ratio:g} times as long."
    )
    return latency


def _job(bar: Progress, name: str, blocks: Sequence[Block]) -> Callable[[int], None]:
    job = bar.add_task(name, total=len(ARMS) * sum(block.size for block in blocks))
    return lambda rollouts: bar.advance(job, rollouts)


def result(runs: dict[str, Runs], branches: str, quick: bool) -> dict[str, Any]:
    """What --json writes."""
    regimes = {name: figures(runs[name]) for name in runs}
    first = next(iter(REGIMES))
    return {
        "reduction": regimes[first]["reduction"],
        "regimes": regimes,
        "branches": branches,
        "quick": quick,
        "simulated": "tool latency of the regimes; nothing of the slow families",
    }


def write(runs: dict[str, Runs], data: dict[str, Any], folder: Path, copy: Path | None) -> list[Table]:
    """latency.json, latency.md, pictures and rollouts.jsonl into `folder`; the JSON also to `copy`. Returns
    the tables."""
    text = json.dumps(data, indent=1) + "\n"
    (folder / "latency.json").write_text(text)
    if copy is not None:
        copy.write_text(text)
    with (folder / "rollouts.jsonl").open("w") as file:
        for name, each in runs.items():
            for arm, rollouts in each.rollouts.items():
                for rollout in rollouts:
                    line = {"regime": name, "arm": arm, "rollout": rollout.model_dump(mode="json")}
                    file.write(json.dumps(line) + "\n")
    regimes = data["regimes"]
    latency_report.draw_latency(runs, regimes, folder / "latency.png")
    latency_report.draw_reliability(regimes, folder / "reliability.png")
    notes = [
        f"Every arm ran the same tasks and seeds, a group of rollouts at a time, on the same two engines "
        f"(branches: {data['branches']}); no arm learned from another.",
        f"Simulated: {data['simulated']}.",
        "`oracle` has the observations of the sequential rollouts: it is a bound, not a method.",
    ]
    pictures = ["latency.png", "reliability.png"]
    (folder / "latency.md").write_text(latency_report.markdown(regimes, notes, pictures))
    return [latency_report.table(name, each) for name, each in regimes.items()]
