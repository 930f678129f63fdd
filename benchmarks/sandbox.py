"""What a sandbox costs, on this machine, beside a plain subprocess as the floor and Docker where one answers.

    python benchmarks/sandbox.py [--quick] [--json FILE]

The environment is built once, before anything is measured: a Dockerfile of eight layers. Backends take
turns, so that a busy moment of the machine falls on all of them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from obsspec.commands.options import require_writable
from obsspec.errors import ConfigError
from tasks.config import SandboxConfig
from tasks.environments import Builder, Recipe
from tasks.sandbox.base import Sandbox, SandboxError, SandboxLimits
from tasks.sandbox.docker import DockerSandbox, DockerSpec, build
from tasks.sandbox.image import Image
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec

DOCKERFILE = """\
FROM debian:12-slim
RUN useradd -m -u 1000 user
RUN mkdir -p /srv/app && echo 'print(42)' > /srv/app/main.py
RUN for i in $(seq 300); do echo $i > /srv/app/$i.txt; done
ENV APP=/srv/app
WORKDIR /srv/app
RUN python3 -c 'import json; json.dump(list(range(10000)), open("numbers.json", "w"))'
RUN chown -R user:user /srv/app
RUN chmod 755 /srv/app && rm 300.txt
USER user
"""
TAG = "obsspec-benchmark:latest"
CHANGE_MB = 10
TARGETS_MS = {"start_ms": 50.0, "exec_ms": 5.0, "snapshot_ms": 30.0, "restore_ms": 30.0}
TARGET_64_MB = 1024.0
NAMES = {
    "start_ms": "Start, built environment",
    "exec_ms": "Command `true`",
    "snapshot_ms": f"Snapshot, {CHANGE_MB} MB changed",
    "restore_ms": f"Restore, {CHANGE_MB} MB changed",
}

Times = dict[str, list[float]]


@dataclass
class Backend:
    """One way to have a sandbox, and what it took, in milliseconds."""

    name: str
    make: Callable[[], Sandbox]
    times: Times = field(default_factory=lambda: {name: [] for name in NAMES})

    async def round(self, commands: int) -> None:
        sandbox = self.make()
        try:
            self.times["start_ms"].append(await timed(sandbox.start()))
            for _ in range(commands):
                self.times["exec_ms"].append(await timed(sandbox.exec("true")))
            await sandbox.exec(
                f"head -c {CHANGE_MB}000000 /dev/urandom > big && rm -f 1.txt && echo x > 2.txt"
            )
            begin = time.perf_counter()
            snapshot = await sandbox.snapshot()
            self.times["snapshot_ms"].append(1e3 * (time.perf_counter() - begin))
            await sandbox.exec("rm big && echo y > 2.txt")
            self.times["restore_ms"].append(await timed(sandbox.restore(snapshot)))
            result = await sandbox.exec("stat -c %s big; cat 2.txt; ls 1.txt")
            assert result.stdout == f"{CHANGE_MB}000000\nx\n".encode(), result
        finally:
            await sandbox.stop()


async def timed(work: Awaitable[Any]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work
    return 1e3 * (time.perf_counter() - start)


async def plain(commands: int, times: list[float]) -> None:
    """The floor of one command: a process of its own."""
    for _ in range(commands):
        start = time.perf_counter()
        process = await asyncio.create_subprocess_exec("bash", "-c", "true")
        await process.wait()
        times.append(1e3 * (time.perf_counter() - start))


@asynccontextmanager
async def many(make: Callable[[], Sandbox], count: int) -> AsyncIterator[float]:
    """That many sandboxes at once; gives the seconds that it took to start them, a command each included."""
    sandboxes = [make() for _ in range(count)]
    start = time.perf_counter()
    try:
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        await asyncio.gather(*(sandbox.exec("true") for sandbox in sandboxes))
        yield time.perf_counter() - start
    finally:
        await asyncio.gather(*(sandbox.stop() for sandbox in sandboxes), return_exceptions=True)


def used_mb() -> float:
    """Memory of the whole machine that is not available, the kernel's own included."""
    memory = psutil.virtual_memory()
    return (memory.total - memory.available) / 2**20


async def built(config: SandboxConfig) -> Image:
    with tempfile.TemporaryDirectory() as folder:
        recipe = Recipe("the benchmark", DOCKERFILE, "Dockerfile", Path(folder), allow_internet=False)
        return (await Builder(config).build(recipe)).image


async def docker_backend(folder: Path) -> Backend | str:
    """The same environment in Docker, or why there is none."""
    (folder / "Dockerfile").write_text(DOCKERFILE)
    try:
        await build(folder, folder / "Dockerfile", TAG)
    except SandboxError as problem:
        return str(problem)
    return Backend("docker", lambda: DockerSandbox(DockerSpec(TAG, "benchmark"), SandboxLimits()))


async def measure(quick: bool, config: SandboxConfig) -> dict[str, Any]:
    rounds, commands, count = (5, 40, 64) if quick else (30, 100, 64)
    image = await built(config)

    def make() -> Sandbox:
        return NamespaceSandbox(SandboxSpec("benchmark", image=image), SandboxLimits(), config.store)

    backends = [Backend("namespace", make)]
    with tempfile.TemporaryDirectory() as folder:
        docker = await docker_backend(Path(folder))
        if isinstance(docker, Backend):
            backends.append(docker)
        floor: list[float] = []
        for _ in range(rounds + 1):
            for backend in backends:
                await backend.round(commands)
            await plain(10, floor)
        for backend in backends:  # the first round is a warm-up
            for name, times in backend.times.items():
                del times[: commands if name == "exec_ms" else 1]
    before = used_mb()
    async with many(make, count) as seconds:
        together = used_mb() - before
    results: dict[str, Any] = {name: statistics.median(backends[0].times[name]) for name in NAMES}
    results |= {
        "sandboxes_64_mb": together,
        "sandboxes_64_start_s": seconds,
        "plain_subprocess_ms": statistics.median(floor),
        "p95": {name: quantile(backends[0].times[name], 0.95) for name in NAMES},
        "rounds": rounds,
    }
    if isinstance(docker, Backend):
        results["docker"] = {name: statistics.median(times) for name, times in docker.times.items()}
    else:
        results["no_docker"] = docker
    return results


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(results: dict[str, Any]) -> Table:
    shown = Table(title="A sandbox on this machine, medians (milliseconds)", title_justify="left")
    shown.add_column("")
    for name in ("namespace", "95%", "target", "docker"):
        shown.add_column(name, justify="right")
    docker = results.get("docker", {})
    for name, words in NAMES.items():
        other = f"{docker[name]:.1f}" if name in docker else "not there"
        shown.add_row(
            words, f"{results[name]:.2f}", f"{results['p95'][name]:.1f}", f"< {TARGETS_MS[name]:g}", other
        )
    shown.add_row(
        "Plain `bash -c true`, a process of its own", f"{results['plain_subprocess_ms']:.2f}", "", "floor", ""
    )
    return shown


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result here.")] = None,
) -> None:
    try:
        require_writable(json_file)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    results = asyncio.run(measure(quick, SandboxConfig()))
    console = Console()
    console.print(table(results))
    console.print(
        f"64 sandboxes at once: {results['sandboxes_64_mb']:.0f} MB of the machine's memory (target < "
        f"{TARGET_64_MB:.0f}), started in {results['sandboxes_64_start_s']:.2f} s, a command each included."
    )
    if "no_docker" in results:
        console.print(f"Without Docker: {results['no_docker']}")
    if json_file is not None:
        json_file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
