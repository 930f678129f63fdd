"""How many rollouts one orchestrator process carries, and what it adds to each turn.

    python benchmarks/scale.py [--quick] [--json FILE]

Simulated: the policy is a scripted engine with set speeds, the world model a predictor that is right two
times in three, and sandboxes are in memory with set tool times. Everything between them is the real
orchestrator: manager, agent loop, speculation, governor, records, metrics.

The overhead of a turn is what it took beyond its set generation and tool times: the tool's excess plus the
wait for the action beyond what its branch had left to generate (a hit) or all of it (else). Timers of the
event loop are part of it. It is measured at 256 at once, which start group by group within a few seconds, and
at 1,000 at once, which all start, and reach their first tools, in the same instant.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import structlog
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from obsspec.commands.options import require_writable
from obsspec.errors import ConfigError
from orchestrator import predictors
from orchestrator.app import collect_garbage_rarely
from orchestrator.backends.base import SamplingParams
from orchestrator.backends.scripted import ScriptedBackend
from orchestrator.chat import ChatFormat
from orchestrator.config import OrchestratorConfig
from orchestrator.manager import RolloutManager
from orchestrator.metrics import Metrics
from orchestrator.predictors.base import (
    Candidate,
    PredictionContext,
    Predictor,
    PredictorTools,
    TokenMeter,
)
from orchestrator.rollout import World
from orchestrator.schema import Limits, Outcome, Rollout, RolloutRequest, Speculation
from orchestrator.seeds import derive
from orchestrator.speculation import Scopes
from orchestrator.store import MemoryStore
from orchestrator.task_index import TaskIndex
from orchestrator.tokenizer import ModelTokenizer
from tasks.observation import canonical
from tasks.sandbox.base import ExecResult, OutputListener
from tasks.task import Task
from tasks.tools import SYSTEM, TOOLS, render_action

ROOT = Path(__file__).parents[1]
TURNS = 8
RAMP_S = 3.0
GROUP = 8
TOKENS_PER_S = 60.0
CHUNK = 16
TOOL_S = 0.8
PREDICTION_S = 0.05
ACCURACY = 0.66
TARGETS_MS = {"p50": 3.0, "p99": 10.0}
WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo"]


def drawn(*what: str | int) -> random.Random:
    return random.Random(derive(*what))


def run_command(command: str) -> ExecResult:
    """What every sandbox answers."""
    return ExecResult(" ".join(drawn("output", command).choices(WORDS, k=4)).encode(), b"", 0)


class MemorySandbox:
    """Knows no files; the time of its tools is the service's simulated latency."""

    async def start(self) -> None: ...

    async def exec(
        self, command: str, timeout_s: float | None = None, on_output: OutputListener | None = None
    ) -> ExecResult:
        return run_command(command)

    async def verify(self, task: Task) -> float:
        return 1.0

    async def stop(self) -> None: ...


class Foresight:
    """Stands for a world model: right with a set probability, after a set time."""

    name = "world_model"
    ranks: int | None = 1

    def recall(self, context: PredictionContext) -> Sequence[Candidate]:
        return ()

    def source(self, rank: int) -> str:
        return "world_model/greedy"

    async def predict(
        self, context: PredictionContext, rank: int, meter: TokenMeter
    ) -> AsyncGenerator[Candidate]:
        await asyncio.sleep(PREDICTION_S)
        right = drawn("right", context.seed, context.turn).random() < ACCURACY
        text = canonical(run_command(context.command))
        yield Candidate(text if right else "?", self.source(rank), 0.9 if right else 0.3)

    def learn(self, context: PredictionContext, observation: str) -> None: ...


@dataclass(frozen=True)
class Load:
    concurrent: int
    rollouts: int
    prompt_words: int = 50
    turns: int = TURNS
    faster: float = 1.0
    """Engine and tools, so many times."""
    ramp_s: float = 0.0
    """Within which the first `concurrent` rollouts start, group by group."""


class Agent:
    """The policy's script: every rollout of a group runs the same commands. Reads nothing of its context."""

    def __init__(self, chat: ChatFormat, tokenizer: ModelTokenizer, task: str, load: Load):
        self._chat = chat
        self._tokenizer = tokenizer
        self._turns = load.turns
        self._places = {
            derive("action", task, seed, turn): (seed // GROUP, turn)
            for seed in range(load.rollouts)
            for turn in range(load.turns + 1)
        }

    def __call__(self, ids: Sequence[int], params: SamplingParams) -> Iterator[int]:
        assert params.seed is not None
        return iter(self._action(*self._places[params.seed]))

    @cache  # noqa: B019 (lives as long as the run)
    def _action(self, group: int, turn: int) -> list[int]:
        thought = " ".join(drawn("thought", group, turn).choices(WORDS, k=1 + group % 13))
        command = f"cat notes-{group}-{turn}.txt | sort | head" if turn < self._turns else None
        return [
            *self._tokenizer.encode(render_action(thought, command)),
            self._chat.end_id,
        ]


@dataclass(frozen=True)
class Run:
    rollouts: list[Rollout]
    wall_s: float
    cpu_s: float
    rss_mb: float
    """Of the process, at its height."""
    live_tokens: int
    """Of the trajectories that ran at once, at most."""


def run(load: Load) -> Run:
    with tempfile.TemporaryDirectory(prefix="obsspec-scale-") as folder:
        return asyncio.run(_run(load, Path(folder)))


async def _run(load: Load, folder: Path) -> Run:
    task = _task(folder / "tasks" / "list-files", load.prompt_words)
    tokenizer = ModelTokenizer.load(ROOT / "models/tiny-policy")
    chat = ChatFormat(tokenizer, SYSTEM, TOOLS)
    agent = Agent(chat, tokenizer, task, load)
    policy = ScriptedBackend(agent, tokens_per_s=TOKENS_PER_S * load.faster, chunk_tokens=CHUNK)
    tools = PredictorTools(chat, None, 100, None, 100_000)

    def create(name: str) -> Predictor:
        return Foresight() if name == "world_model" else predictors.create(name, tools)

    scopes = Scopes(create)
    world = World(policy, scopes, chat, lambda task: MemorySandbox(), 4000)  # type: ignore[arg-type,return-value]
    config = OrchestratorConfig.model_validate(
        {
            "tokenizer": "unused",
            "policy": {"kind": "scripted", "script": "unused:unused"},
            "world_model": {"kind": "scripted", "script": "unused:unused"},
            "concurrency": load.concurrent,
            "tool_latency": {"mean_s": TOOL_S / load.faster},
            "limits": Limits(max_turns=load.turns + 2, max_tokens=1_000_000),
        }
    )
    index = TaskIndex([folder / "tasks"], folder / "cache")
    store = MemoryStore(load.rollouts)
    manager = RolloutManager(world, index, store, Metrics(scopes), config)
    process = psutil.Process()
    collect_garbage_rarely()
    highest = 0
    wall, cpu = time.perf_counter(), time.process_time()
    ids: list[str] = []
    while len(ids) < load.rollouts:
        ramping = load.ramp_s > 0 and len(ids) < load.concurrent
        n = GROUP if ramping else min(1000, load.rollouts - len(ids))  # a request takes at most 1,024
        request = RolloutRequest(tasks=[task], n=n, seed=len(ids), speculation=Speculation(preset="default"))
        ids += await manager.submit(request)
        if ramping:
            await asyncio.sleep(load.ramp_s * n / load.concurrent)
    waiting = asyncio.gather(*(manager.wait(rollout_id, 3600) for rollout_id in ids))
    while not waiting.done():
        highest = max(highest, process.memory_info().rss)
        await asyncio.wait({waiting}, timeout=0.25)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rollouts = [rollout for rollout_id in ids if (rollout := store.get(rollout_id))]
    await manager.close()
    await policy.close()
    longest = max(_tokens(rollout) for rollout in rollouts)
    return Run(rollouts, wall, cpu, highest / 2**20, longest * min(load.concurrent, load.rollouts))


@dataclass(frozen=True)
class Grown:
    """What rollouts of one length took, in a process of their own."""

    rss_mb: float
    live_tokens: int
    cpu_s_per_turn: float


def grown(load: Load) -> Grown:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_grown, load).result()


def _grown(load: Load) -> Grown:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    done = run(load)
    return Grown(done.rss_mb, done.live_tokens, done.cpu_s / sum(len(r.turns) for r in done.rollouts))


def _task(folder: Path, words: int) -> str:
    (folder / "environment").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM debian:12-slim\n")
    (folder / "task.toml").write_text('version = "1.0"\n')
    picked = random.Random(0).choices(WORDS, k=words)
    (folder / "instruction.md").write_text(" ".join(picked) + "\n")
    (folder / "tests" / "test.sh").write_text("exit 0\n")
    return folder.name


def _tokens(rollout: Rollout) -> int:
    assert rollout.trajectory is not None
    return len(rollout.trajectory.prompt_ids) + sum(len(s.token_ids) for s in rollout.trajectory.segments)


def overheads_ms(rollouts: Sequence[Rollout]) -> np.ndarray:
    """Of every turn after a tool call."""
    values = []
    for rollout in rollouts:
        for turn, following in zip(rollout.turns, rollout.turns[1:], strict=False):
            assert turn.prediction is not None
            left_s = following.action_tokens / TOKENS_PER_S
            if turn.prediction.outcome is Outcome.HIT:
                left_s = max(0.0, left_s - turn.prediction.saved_s)
            waited = following.generation_s - left_s
            values.append(1000 * (turn.tool_s - turn.simulated_s + waited))
    return np.array(values)


def measure(quick: bool, console: Console) -> dict[str, Any]:
    console.print(
        "Simulated: engine, world model and sandboxes have set speeds. The orchestrator is the real one."
    )
    busy = run(Load(concurrent=256, rollouts=256 if quick else 1024, ramp_s=RAMP_S))
    console.print(f"256 at once: {busy.wall_s:.0f} s")
    most = run(Load(concurrent=1000, rollouts=1000 if quick else 2000, turns=TURNS // 2))
    console.print(f"1,000 at once: {most.wall_s:.0f} s")
    short, middle, long = (grown(Load(64, 64, n, faster=4)) for n in (200, 6_000, 12_000))
    bytes_per_token = (long.rss_mb - short.rss_mb) * 2**20 / (long.live_tokens - short.live_tokens)
    on_the_line = short.rss_mb + bytes_per_token * (middle.live_tokens - short.live_tokens) / 2**20
    overhead = {name: overheads_ms(each.rollouts) for name, each in (("256", busy), ("1000", most))}
    hits = [t.prediction.outcome for r in busy.rollouts for t in r.turns if t.prediction]
    return {
        "turn_overhead_ms": {q: float(np.quantile(overhead["256"], float(q[1:]) / 100)) for q in TARGETS_MS},
        "turn_overhead_ms_at_1000": {
            q: float(np.quantile(overhead["1000"], float(q[1:]) / 100)) for q in TARGETS_MS
        },
        "concurrent": 1000,
        "rss_mb": most.rss_mb,
        "finished": len(most.rollouts),
        "turns_per_s": sum(len(r.turns) for r in most.rollouts) / most.wall_s,
        "cpu_ms_per_turn": 1000 * busy.cpu_s / sum(len(r.turns) for r in busy.rollouts),
        "cpu_per_turn_long_over_short": long.cpu_s_per_turn / short.cpu_s_per_turn,
        "bytes_per_live_token": bytes_per_token,
        "memory_over_line_at_half_length": middle.rss_mb / on_the_line,
        "by_length": [asdict(each) for each in (short, middle, long)],
        "hit_frac": sum(outcome is Outcome.HIT for outcome in hits) / len(hits),
        "quick": quick,
        "simulated": "engine, world model, sandboxes",
    }


def table(data: dict[str, Any]) -> Table:
    out = Table(
        title="One orchestrator process, speculation by default", caption="Simulated engine and tools."
    )
    for name, justify in (("", "left"), ("measured", "right"), ("target", "right")):
        out.add_column(name, justify=justify)  # type: ignore[arg-type]
    for q, target in TARGETS_MS.items():
        out.add_row(
            f"overhead of a turn, {q}, 256 at once", f"{data['turn_overhead_ms'][q]:.2f} ms", f"{target:g} ms"
        )
    for q in TARGETS_MS:
        out.add_row(
            f"  1,000 started in one instant, {q}", f"{data['turn_overhead_ms_at_1000'][q]:.2f} ms", ""
        )
    out.add_row("rollouts finished, 1,000 at once", str(data["finished"]), "")
    out.add_row("turns a second, 1,000 at once", f"{data['turns_per_s']:.0f}", "")
    out.add_row("CPU of a turn", f"{data['cpu_ms_per_turn']:.2f} ms", "")
    out.add_row("  12,000-word over 200-word prompts", f"{data['cpu_per_turn_long_over_short']:.2f}", "1")
    out.add_row("memory, 1,000 at once", f"{data['rss_mb']:.0f} MB", "")
    out.add_row("  bytes a live token", f"{data['bytes_per_live_token']:.0f}", "")
    out.add_row("  at half the length, over the line", f"{data['memory_over_line_at_half_length']:.2f}", "1")
    out.add_row("hit_frac", f"{100 * data['hit_frac']:.0f}%", "")
    return out


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rollouts.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures here.")] = None,
) -> None:
    try:
        require_writable(json_file)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    console = Console(highlight=False)
    data = measure(quick, console)
    console.print(table(data))
    if json_file is not None:
        json_file.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
