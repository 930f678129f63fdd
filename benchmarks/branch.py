"""What a branch costs, on this machine: ratios and differences measured side by side in one run.

    python benchmarks/branch.py [--quick] [--json FILE] [--model FOLDER]

Three servers run at once: the plugin in float32, a stock server in float32, and the plugin in bfloat16
with batch-invariant linears. What is compared is measured in turns.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import lossless
from benchmarks.engines import Spec, running
from obsspec.config import BranchConfig, EngineConfig
from orchestrator.tokenizer import ModelTokenizer
from sglang_ext.client import Branch, BranchClient

ROOT = Path(__file__).parents[1]
POOL = 8192


@dataclass(frozen=True)
class Size:
    """How often each thing is measured."""

    handovers: int
    decodes: int
    decode_tokens: int
    pools: int
    prompts: int
    lossless_tokens: int


QUICK = Size(handovers=10, decodes=5, decode_tokens=32, pools=2, prompts=2, lossless_tokens=12)
FULL = Size(handovers=100, decodes=40, decode_tokens=64, pools=15, prompts=20, lossless_tokens=24)


async def timed(work: Awaitable[Any]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work
    return 1e3 * (time.perf_counter() - start)


def params(tokens: int, **more: Any) -> dict[str, Any]:
    return {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True} | more


def words(length: int, seed: int) -> list[int]:
    """Token ids that are in every vocabulary."""
    rng = random.Random(seed)
    return [rng.randrange(50, 900) for _ in range(length)]


async def held(branch: Branch) -> None:
    async for _ in branch.stream():
        pass


async def read(branch: Branch) -> None:
    async for _ in branch.commit():
        pass


async def handovers(http: httpx.AsyncClient, count: int) -> dict[str, float]:
    """Milliseconds to open, commit and drop, and those of a request that does nothing."""
    client = BranchClient(http)
    parent = words(400, 0)
    await lossless.generate(http, parent, params(1))
    times: dict[str, list[float]] = {"floor": [], "open": [], "commit": [], "drop": []}
    for number in range(count):
        start = time.perf_counter()
        one, two = await client.open(parent, [words(20, 2 * number), words(20, 2 * number + 1)], params(32))
        times["open"].append(1e3 * (time.perf_counter() - start))
        await asyncio.gather(held(one), held(two))
        times["floor"].append(await timed(http.get("/model_info")))
        times["commit"].append(await timed(read(one)))
        times["drop"].append(await timed(two.drop()))
    await client.drop_all()
    return {name: statistics.median(values) for name, values in times.items()}


async def decode_overhead(plugin: httpx.AsyncClient, stock: httpx.AsyncClient, size: Size) -> dict[str, Any]:
    """Decode time with the plugin and no branch against that without it, in turns, as a ratio less one."""
    prompt = words(64, 1)
    rng = random.Random(0)
    pairs = []
    for number in range(-1, size.decodes):
        order = rng.sample([plugin, stock], 2)
        taken = {}
        for http in order:
            whole = await timed(lossless.generate(http, prompt, params(size.decode_tokens)))
            one = await timed(lossless.generate(http, prompt, params(1)))
            taken[http] = whole - one
        if number >= 0:  # the first pair warms up
            pairs.append(taken[plugin] / taken[stock])
    quarters = statistics.quantiles(pairs, n=4)
    return {"ratio": statistics.median(pairs) - 1, "quartiles": [quarters[0] - 1, quarters[2] - 1]}


async def full_pool(http: httpx.AsyncClient, count: int) -> dict[str, float]:
    """Time to the first token with the pool full of held branches against that with it empty, as a ratio."""
    client = BranchClient(http)
    empty: list[float] = []
    full: list[float] = []
    for number in range(-1, count):
        for times, fill in ((empty, False), (full, True)):
            await client.drop_all()
            await http.post("/flush_cache")
            if fill:
                branches = await client.open(
                    words(200, 7), [words(900, 100 * number + i) for i in range(8)], params(16)
                )
                await asyncio.gather(*map(held, branches))
            prompt = words(1500, 1000 + number)
            taken = await timed(lossless.generate(http, prompt, params(1)))
            if number >= 0:
                times.append(taken)
    await client.drop_all()
    pairs = [b / a for a, b in zip(empty, full, strict=True)]
    return {
        "ratio": statistics.median(pairs),
        "empty_ms": statistics.median(empty),
        "full_ms": statistics.median(full),
    }


async def identical(http: httpx.AsyncClient, tokenizer: ModelTokenizer, size: Size) -> dict[str, Any]:
    """Sampled and greedy continuations together, and apart."""
    prompts = await lossless.prompts(http, tokenizer, size.prompts)
    sampled = await lossless.compare(http, prompts, params(size.lossless_tokens))
    greedy = await lossless.compare(http, prompts, params(size.lossless_tokens, temperature=0.0))
    whole = lossless.Count()
    whole += sampled
    whole += greedy
    return {
        "same": whole.same,
        "of": whole.of,
        "sampled": asdict(sampled),
        "greedy": asdict(greedy),
    }


async def measure(model: Path, size: Size, console: Console) -> dict[str, Any]:
    plain = EngineConfig(
        model=model, max_total_tokens=POOL, dtype="float32", branches=BranchConfig(budget=0.99)
    )
    bf16 = plain.model_copy(update={"dtype": "bfloat16", "batch_invariant": True})
    specs = [
        Spec("plugin", plain),
        Spec("stock", plain, {"SGLANG_PLUGINS": "none"}),
        Spec("bf16", bf16),
    ]
    tokenizer = ModelTokenizer.load(model)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        async with running(specs, Path(folder)) as (plugin, stock, invariant):
            console.print(f"three servers ready after {time.perf_counter() - start:.0f} s")
            overhead = await decode_overhead(plugin, stock, size)  # first: both are as they started
            times = await handovers(plugin, size.handovers)
            pool = await full_pool(plugin, size.pools)
            same = {
                "float32": await identical(plugin, tokenizer, size),
                "bf16_invariant": await identical(invariant, tokenizer, size),
            }
    return {
        "commit_ms_over_floor": times["commit"] - times["floor"],
        "drop_ms": times["drop"],
        "open_ms": times["open"],
        "floor_ms": times["floor"],
        "idle_decode_overhead": overhead["ratio"],
        "idle_decode_overhead_quartiles": overhead["quartiles"],
        "ttft_full_pool_ratio": pool["ratio"],
        "ttft_ms": {"empty": pool["empty_ms"], "full": pool["full_ms"]},
        "lossless": same,
    }


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Under 50 s, with coarse figures.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
    model: Annotated[Path, typer.Option(help="A folder that transformers saved.")] = ROOT
    / "models/tiny-policy",
) -> None:
    """Commit, drop, open, decode and time to first token, with branches and without."""
    console = Console()
    if not (model / "config.json").is_file():
        console.print(f"no model in {model}: name one with --model")
        raise typer.Exit(2)
    size = QUICK if quick else FULL
    figures = asyncio.run(measure(model, size, console)) | {"quick": quick, "repeats": asdict(size)}
    table = Table("figure", "measured", "target")
    same = figures["lossless"]
    rows = {
        "commit of a held branch over the HTTP floor": (
            f"{figures['commit_ms_over_floor']:.1f} ms",
            "≤ 3 ms",
        ),
        "drop until its KV is free": (f"{figures['drop_ms']:.1f} ms", ""),
        "open of two": (f"{figures['open_ms']:.1f} ms", ""),
        "decode with the plugin and no branch": (f"{figures['idle_decode_overhead']:+.2%}", "< 1%"),
        "first token, pool full of branches": (f"{figures['ttft_full_pool_ratio']:.3f} of empty", "≤ 1.05"),
        "same tokens, float32": (f"{same['float32']['same']} of {same['float32']['of']}", "all"),
        "same tokens, bf16": (f"{same['bf16_invariant']['same']} of {same['bf16_invariant']['of']}", "all"),
    }
    for figure, row in rows.items():
        table.add_row(figure, *row)
    console.print(table)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
