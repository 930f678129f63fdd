"""Real rollouts beside the simulator's: the same actions, tools and predictions, played on fitted engines.

Engines are fitted to rollouts of other tasks than those that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.console import Console

from obsspec.batch import held_out
from obsspec.bench import arms
from obsspec.bench.progress import progress
from obsspec.errors import ProcessError
from orchestrator.client import OrchestratorClient
from orchestrator.schema import Rollout, RolloutRequest, Speculation, ToolLatency
from orchestrator.schema.speculation import Preset
from orchestrator.simulation.fit import Calibration, FitError, fit
from orchestrator.simulation.play import Engines
from orchestrator.simulation.replay import Compared, compare

COMPARED: tuple[Preset, ...] = ("sequential", "paper", "default")
_CALIBRATED: tuple[Preset, ...] = ("sequential", "paper")
_CALIBRATION_SEED, _SEED = 0, 1000
_GROUP = 4


@dataclass(frozen=True)
class RealSize:
    """How much is run on real engines."""

    alone: int
    """Tasks run one at a time."""
    loaded: int
    """Tasks run together, to fit the engines."""
    groups: int
    """Of four rollouts, in every mode, to compare with the simulator."""
    tool_s: float = 0.6
    """Mean of the simulated tool latency."""


@dataclass(frozen=True)
class Recorded:
    calibration: Calibration
    runs: dict[str, list[Rollout]]
    """By mode, the same tasks and seeds in each."""


@dataclass(frozen=True)
class Validation:
    engines: Engines
    compared: dict[str, Compared]

    @property
    def error(self) -> float:
        """The largest, in whichever direction."""
        return max(abs(each.error) for each in self.compared.values())

    def as_json(self) -> dict[str, Any]:
        modes = {name: {**asdict(each), "error": each.error} for name, each in self.compared.items()}
        return {"modes": modes, "fitted_engines": asdict(self.engines)}


async def record(client: OrchestratorClient, concurrency: int, size: RealSize, console: Console) -> Recorded:
    """`concurrency`: of the service. Raises ProcessError, OrchestratorError."""
    latency = ToolLatency(mean_s=size.tool_s)
    tasks = held_out(size.alone + size.loaded + size.groups)
    alone, loaded = tasks[: size.alone], tasks[size.alone : size.alone + size.loaded]
    with progress(console) as bar:
        total = len(_CALIBRATED) * (size.alone + size.loaded) + len(COMPARED) * size.groups * _GROUP
        job = bar.add_task("real rollouts", total=total)

        async def run(preset: Preset, tasks: Sequence[str], seed: int, n: int = 1) -> list[Rollout]:
            speculation = Speculation(preset=preset, scope=f"{seed}/{preset}")
            request = RolloutRequest(
                tasks=list(tasks), n=n, seed=seed, speculation=speculation, tool_latency=latency
            )
            return await arms.ended(client, await client.submit(request), partial(bar.advance, job))

        seed = _CALIBRATION_SEED
        one_by_one = [r for task in alone for preset in _CALIBRATED for r in await run(preset, [task], seed)]
        sequential, paper = [await run(preset, loaded, seed) for preset in _CALIBRATED]
        runs: dict[str, list[Rollout]] = {preset: [] for preset in COMPARED}
        for task in tasks[size.alone + size.loaded :]:
            for preset in COMPARED:
                runs[preset] += await run(preset, [task], _SEED, _GROUP)
    return Recorded(Calibration(one_by_one, sequential, paper, concurrency), runs)


def validate(recorded: Recorded) -> Validation:
    """Raises ProcessError where the recorded rollouts say too little."""
    try:
        engines = fit(recorded.calibration)
    except FitError as error:
        raise ProcessError(str(error)) from error
    concurrency = recorded.calibration.concurrency
    return Validation(engines, compare(recorded.runs, engines, concurrency, wave=_GROUP))
