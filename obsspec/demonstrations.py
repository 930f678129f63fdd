"""Demonstrations: experts of the built-in families at work in real sandboxes, and their trajectories.

Seeds below `EVAL_SEED` train; validation takes seeds far above those that evaluation uses.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from orchestrator.chat import ChatFormat
from orchestrator.schema import Trajectory
from orchestrator.tokenizer import ModelTokenizer
from orchestrator.trajectory import GrowingTrajectory
from tasks.expert import Act, Demonstration, demonstrate
from tasks.families import EVAL_SEED, FAMILIES
from tasks.harbor import load_task, write_task
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.tools import render_action

VALIDATION_SEED = EVAL_SEED + 500_000_000
"""First seed of validation tasks: they draw from the evaluation's names, and evaluation never uses them."""


class DemonstrationConfig(BaseModel):
    """How many demonstrations are made, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_family: PositiveInt = 1000
    """Training demonstrations of each family."""
    validation_per_family: PositiveInt = 20
    """Validation demonstrations of each family."""
    slips: float = Field(0.06, ge=0, lt=1)
    """Probability that an expert mistypes a name before a reading step."""
    processes: PositiveInt = 2
    """Processes that make them; each runs one sandbox at a time."""


def collect(
    config: DemonstrationConfig, out: Path, progress: Callable[[int, int], None]
) -> list[Demonstration]:
    """Make all demonstrations; writes `out/demonstrations.jsonl` and returns them, validation last.

    `progress(done, total)` is called as chunks finish. Raises RuntimeError for an expert that fails its task.
    """
    seeds = list(range(config.per_family)) + [
        VALIDATION_SEED + i for i in range(config.validation_per_family)
    ]
    chunks = [(name, seeds[i : i + 50], config.slips) for i in range(0, len(seeds), 50) for name in FAMILIES]
    total, made = len(seeds) * len(FAMILIES), 0
    parts: dict[int, list[Demonstration]] = {}
    with ProcessPoolExecutor(config.processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_demonstrate_seeds, *chunk): i for i, chunk in enumerate(chunks)}
        for future in as_completed(futures):
            parts[futures[future]] = future.result()
            made += len(future.result())
            progress(made, total)
    demonstrations = [demonstration for i in sorted(parts) for demonstration in parts[i]]
    failed = [d.task_id for d in demonstrations if d.reward != 1.0]
    if failed:
        raise RuntimeError(
            f"{len(failed)} experts failed their tasks, the first is {failed[0]}: repair the family"
        )
    with (out / "demonstrations.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(d), ensure_ascii=False) + "\n" for d in demonstrations)
    return demonstrations


def read(path: Path) -> list[Demonstration]:
    """Demonstrations from a file that `collect` wrote."""
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [Demonstration(**{**d, "acts": tuple(Act(**act) for act in d["acts"])}) for d in lines]


def is_validation(demonstration: Demonstration) -> bool:
    return int(demonstration.task_id.rpartition("/")[2]) >= VALIDATION_SEED


def texts(demonstrations: Iterable[Demonstration]) -> Iterator[str]:
    """What a tokenizer is trained on."""
    for d in demonstrations:
        yield d.instruction
        for act in d.acts:
            yield act.thought
            yield act.command or ""
            yield act.observation or ""


def trajectory(demonstration: Demonstration, chat: ChatFormat, tokenizer: ModelTokenizer) -> Trajectory:
    """The demonstration as the policy would have produced it; an expert's actions have log-probability 0."""
    growing = GrowingTrajectory(chat.prompt(demonstration.instruction))
    for act in demonstration.acts:
        ids = [*tokenizer.encode(render_action(act.thought, act.command)), chat.end_id]
        growing.append_action(ids, [0.0] * len(ids), "expert")
        if act.observation is not None:
            growing.append_observation(chat.observation(act.observation))
    return growing.to_schema()


def _demonstrate_seeds(family: str, seeds: list[int], slips: float) -> list[Demonstration]:
    async def run() -> list[Demonstration]:
        made = []
        with tempfile.TemporaryDirectory(prefix="obsspec-demonstrations-") as root:
            for seed in seeds:
                generated = FAMILIES[family].generate(seed)
                task = load_task(write_task(generated, Path(root)))
                made.append(await demonstrate(generated, task, NamespaceSandbox.for_task(task), slips))
        return made

    return asyncio.run(run())
