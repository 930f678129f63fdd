"""Scripted agents: they work on a task without a model.

`expert` is a built-in family's own, step by step through the agent's tools; `solution` runs the task's
`solution/solve.sh`, as Harbor's oracle does; `noop` does nothing, which no task should reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from tasks.expert import acts
from tasks.families import ALL_FAMILIES, GeneratedTask
from tasks.sandbox.base import Sandbox, SandboxError
from tasks.sandbox.verification import last_line
from tasks.task import Task, TaskError

AgentName = Literal["expert", "solution", "noop"]
SOLUTION = "/solution"
_LOG = "/logs/agent/oracle.txt"
"""A file, as in Harbor: what solve.sh leaves running may go on writing to it."""
_MAKE_LOGS = "mkdir -p /logs/agent && chmod 777 /logs/agent"
_SMALL_S = 20.0


@dataclass(frozen=True)
class Work:
    """What an agent did."""

    commands: int = 0
    note: str = ""
    """What went wrong without ending the run, e.g. a solution's exit status."""


class Agent(Protocol):
    async def work(self, task: Task, sandbox: Sandbox) -> Work:
        """Work in a started sandbox. Raises SandboxError, and TaskError if it has no script for the task."""
        ...


class Noop:
    async def work(self, task: Task, sandbox: Sandbox) -> Work:
        return Work()


class Solution:
    """Runs `solve.sh` as Harbor does: as the agent's user, in the image's working folder."""

    async def work(self, task: Task, sandbox: Sandbox) -> Work:
        if task.solution is None:
            raise TaskError(f"{task.path} has no solution/solve.sh: take another agent")
        await sandbox.upload(task.solution.parent, SOLUTION, "root")
        made = await sandbox.run(["sh", "-c", _MAKE_LOGS], _SMALL_S, user="root", cwd="/")
        if made.exit_code != 0:
            raise SandboxError(f"{task.id}: no log of solve.sh can be kept: {last_line(made)}")
        script = f"exec bash {SOLUTION}/{task.solution.name} >{_LOG} 2>&1"
        result = await sandbox.run(
            ["sh", "-c", script], task.agent_timeout_s, user=task.agent_user, env=task.solution_env
        )
        if result.timed_out:
            return Work(1, f"solve.sh was not done within {task.agent_timeout_s:g} s")
        if result.exit_code != 0:
            said = await sandbox.run(["tail", "-c", "1000", _LOG], _SMALL_S, user="root", cwd="/")
            return Work(1, f"solve.sh ended with {result.exit_code}: {last_line(said)}")
        return Work(1)


class Expert:
    """The expert of a built-in family."""

    async def work(self, task: Task, sandbox: Sandbox) -> Work:
        done = [act async for act in acts(generated(task).expert(), sandbox)]
        return Work(sum(act.command is not None for act in done))


AGENTS: dict[AgentName, Agent] = {"expert": Expert(), "solution": Solution(), "noop": Noop()}


def natural(task: Task) -> AgentName:
    """The agent that can solve a task, if there is one."""
    if is_generated(task):
        return "expert"
    return "solution" if task.solution is not None else "noop"


def is_generated(task: Task) -> bool:
    return task.family in ALL_FAMILIES and isinstance(task.metadata.get("seed"), int)


def generated(task: Task) -> GeneratedTask:
    """The built-in task that a task directory was written from. Raises TaskError."""
    if not is_generated(task):
        raise TaskError(f"{task.id} is no task of a built-in family, so it has no expert: take another agent")
    return ALL_FAMILIES[task.family].generate(task.metadata["seed"])
