"""Determinism of worlds: equal command sequences should give equal observations.

Each task is worked on twice, in two fresh sandboxes, with the same commands; the observations are compared as
the agent sees them. Built-in tasks have their experts' commands, no others can be compared.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.agents import generated
from tasks.expert import acts
from tasks.observation import canonical
from tasks.sandbox.base import SandboxError
from tasks.sources import TaskSource
from tasks.task import Task, TaskError
from tasks.worlds import Worlds


@dataclass(frozen=True)
class Difference:
    """A command whose observation was not the same twice."""

    task: str
    command: str
    first: str
    second: str

    @property
    def how(self) -> str:
        """The lines that differ, as a diff without its head."""
        lines = difflib.unified_diff(self.first.splitlines(), self.second.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


@dataclass(frozen=True)
class Comparison:
    """Two runs of one task."""

    task: str
    observations: int
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    """Why it could not be compared."""

    @property
    def identical(self) -> int:
        return self.observations - len(self.differences)


async def compare(source: TaskSource, task_id: str, worlds: Worlds, pause_s: float = 0.0) -> Comparison:
    """Run a task's expert twice; `pause_s` lies between the runs, so that the clock has moved on."""
    try:
        task = await asyncio.to_thread(source.load, task_id)
        first = await _expert(task, worlds)
        await asyncio.sleep(pause_s)
        second = await _commands(task, worlds, [command for command, _ in first])
    except (TaskError, SandboxError) as problem:
        return Comparison(task_id, 0, error=str(problem))
    differences = [
        Difference(task_id, command, one, other)
        for (command, one), other in zip(first, second, strict=True)
        if one != other
    ]
    return Comparison(task_id, len(first), tuple(differences))


async def _expert(task: Task, worlds: Worlds) -> list[tuple[str, str]]:
    expert = generated(task).expert()
    sandbox = worlds.sandbox(task)
    try:
        await sandbox.start()
        return [
            (act.command, act.observation)
            async for act in acts(expert, sandbox)
            if act.command is not None and act.observation is not None
        ]
    finally:
        await sandbox.stop()


async def _commands(task: Task, worlds: Worlds, commands: Sequence[str]) -> list[str]:
    sandbox = worlds.sandbox(task)
    try:
        await sandbox.start()
        return [canonical(await sandbox.exec(command)) for command in commands]
    finally:
        await sandbox.stop()
