"""Scripted experts at work: demonstrations made in real sandboxes.

An expert now and then mistypes a name in a command that only reads, sees the error and tries again, so that
what is learnt from it includes errors and the way out of them. Everything is a function of the task's seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tasks.families.base import Expert, GeneratedTask, Step
from tasks.families.words import WORDS
from tasks.observation import canonical
from tasks.sandbox.base import Sandbox
from tasks.task import Task

READERS = frozenset({"cat", "grep", "ls", "bash", "tail", "head", "stat"})
"""Commands that a slip may change: a wrong name in them changes nothing in the world."""


@dataclass(frozen=True)
class Act:
    """One action of an expert and what it saw: `command` and `observation` are None for `done`."""

    thought: str
    command: str | None
    observation: str | None


@dataclass(frozen=True)
class Demonstration:
    task_id: str
    family: str
    instruction: str
    acts: tuple[Act, ...]
    reward: float


def with_slips(expert: Expert, seed: str, probability: float) -> Expert:
    """The same expert, who mistypes a name before a reading step with the given probability."""
    rng = random.Random(f"slips/{seed}")
    observation: str | None = None
    while True:
        try:
            step = next(expert) if observation is None else expert.send(observation)
        except StopIteration:
            return
        wrong = _mistyped(step.command, rng) if rng.random() < probability else None
        if wrong is not None:
            yield Step(step.thought, wrong)
            step = Step("I mistyped the name.", step.command)
        observation = yield step


def _mistyped(command: str | None, rng: random.Random) -> str | None:
    """The command with one name replaced, or None where a slip could do harm."""
    if command is None or command.split()[0] not in READERS or re.search(r"[|>&;]", command):
        return None
    names = [match for match in re.finditer(r"[a-z]+", command) if match.group() in WORDS]
    if not names:
        return None
    last = names[-1]
    return command[: last.start()] + rng.choice(WORDS) + command[last.end() :]


async def acts(expert: Expert, sandbox: Sandbox) -> AsyncIterator[Act]:
    """Run an expert in a started sandbox; yields each action with its observation."""
    step = next(expert)
    while step.command is not None:
        observation = canonical(await sandbox.exec(step.command))
        yield Act(step.thought, step.command, observation)
        try:
            step = expert.send(observation)
        except StopIteration:
            return
    yield Act(step.thought, None, None)


async def demonstrate(
    generated: GeneratedTask, task: Task, sandbox: Sandbox, slips: float = 0.0
) -> Demonstration:
    """Start the sandbox, let the task's expert work in it, verify, stop it.

    `slips` is the probability of a mistyped name before a reading step. Raises SandboxError.
    """
    expert = with_slips(generated.expert(), generated.id, slips) if slips else generated.expert()
    try:
        await sandbox.start()
        done = tuple([act async for act in acts(expert, sandbox)])
        reward = await sandbox.verify(task)
    finally:
        await sandbox.stop()
    return Demonstration(generated.id, generated.family, generated.instruction, done, reward)
