"""Trials: tasks built, worked on by a scripted agent, and verified.

One that cannot be built or verified is a row that says why; nothing else is lost by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from tasks.agents import AGENTS, AgentName, natural
from tasks.environments import Progress
from tasks.harbor import resolve_env
from tasks.sandbox.base import SandboxError
from tasks.sources import TaskSource
from tasks.task import Task, TaskError
from tasks.worlds import Worlds


@dataclass(frozen=True)
class Trial:
    """A task's row; times in seconds."""

    task: str
    built: bool = False
    verified: bool = False
    """The verifier ran and gave a verdict."""
    reward: float | None = None
    refused: str | None = None
    """Why it was not built, or not verified."""
    agent: AgentName | None = None
    note: str = ""
    """What went wrong with the agent."""
    base: str = ""
    """What stands for the image that the task names."""
    build_s: float = 0.0
    start_s: float = 0.0
    agent_s: float = 0.0
    verify_s: float = 0.0


async def build(
    source: TaskSource, task_id: str, worlds: Worlds, progress: Progress
) -> tuple[Task | None, Trial]:
    """Load and build one task; None with a row that says why not."""
    began, trial = time.perf_counter(), Trial(task_id)
    try:
        task = await asyncio.to_thread(source.load, task_id)
        prepared = await worlds.prepare(task, progress)
    except (TaskError, SandboxError) as problem:
        return None, replace(trial, refused=str(problem), build_s=time.perf_counter() - began)
    return task, replace(trial, built=True, base=prepared.note, build_s=time.perf_counter() - began)


async def run(
    source: TaskSource, task_id: str, worlds: Worlds, agent: AgentName | None, progress: Progress
) -> Trial:
    """Build one task, let an agent work on it (None: the one that can solve it), verify it.

    Where there is no solution to run, nothing is done, and the verdict is on that.
    """
    task, trial = await build(source, task_id, worlds, progress)
    if task is None:
        return trial
    name, note = agent or natural(task), ""
    if agent != "noop" and task.solution is None and name != "expert":
        name, note = "noop", "it has no solution/solve.sh: nothing was done"
    trial = replace(trial, agent=name, note=note)
    sandbox = worlds.sandbox(task)
    clock = [time.perf_counter()]
    try:
        await sandbox.start()
        clock.append(time.perf_counter())
        task = replace(task, solution_env=resolve_env(task.solution_env, worlds.config.env))
        done = await AGENTS[name].work(task, sandbox)
        clock.append(time.perf_counter())
        trial = replace(trial, note=note or done.note)
        reward = await sandbox.verify(task)
        clock.append(time.perf_counter())
        trial = replace(trial, verified=True, reward=reward)
    except (TaskError, SandboxError) as problem:
        trial = replace(trial, refused=str(problem))
    finally:
        await sandbox.stop()
    taken = [later - earlier for earlier, later in pairwise(clock)] + [0.0] * 3
    return replace(trial, start_s=taken[0], agent_s=taken[1], verify_s=taken[2])


async def all_of(
    source: TaskSource,
    ids: Iterable[str],
    worlds: Worlds,
    concurrency: int,
    agent: AgentName | None = None,
    build_only: bool = False,
    progress: Progress = lambda _: None,
) -> AsyncGenerator[Trial, None]:
    """A row for each task, as they end; `concurrency` at a time."""
    waiting = iter(ids)

    async def one(task_id: str) -> Trial:
        try:
            if build_only:
                return (await build(source, task_id, worlds, progress))[1]
            return await run(source, task_id, worlds, agent, progress)
        except Exception as defect:  # of ours: it costs this row, not the others
            return Trial(task_id, refused=f"a defect of obsspec: {type(defect).__name__}: {defect}")

    running: set[asyncio.Task[Trial]] = set()
    try:
        while True:
            while len(running) < concurrency and (task_id := next(waiting, None)) is not None:
                running.add(asyncio.create_task(one(task_id)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                yield finished.result()
    finally:
        for unfinished in running:
            unfinished.cancel()
        await asyncio.gather(*running, return_exceptions=True)
