"""How a task is verified, as Harbor does it: tests appear when the agent is done, run with their own limit,
and write the reward to `/logs/verifier`.

A verifier that cannot run, or leaves no verdict, is an error of the task, never a reward of 0.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tasks.harbor.env import resolve_env
from tasks.sandbox.base import ExecResult, Sandbox, SandboxError
from tasks.task import Task, TaskError
from tasks.verifier import runner as stand_in

TESTS, LOGS = "/tests", "/logs/verifier"
_CLEAR = (
    f"chmod -R u+rwX {TESTS} /logs 2>/dev/null; rm -rf {TESTS} /logs {stand_in.FOLDER} "
    f"&& mkdir -p {TESTS} {LOGS} /logs/agent && chmod {{}} {LOGS} /logs/agent"
)
_CLEAR_TIMEOUT_S = 20.0
_LONGEST_LINE = 300
_WITH_RUNNER = (
    f'PATH="{stand_in.FOLDER}:$PATH" PYTHONPATH="{stand_in.SITE}${{PYTHONPATH:+:$PYTHONPATH}}" '
    f"exec bash {shlex.quote(TESTS)}/test.sh"
)


class Unverifiable(SandboxError):
    """There is no verdict, because of the task or of what the agent did."""


class Verifiable(Sandbox, Protocol):
    async def end_processes(self) -> None: ...

    async def extract(self, archive: bytes, target: str) -> None: ...


async def verify(
    sandbox: Verifiable,
    task: Task,
    runner: Callable[[], Awaitable[bytes | None]] | None = None,
    variables: Mapping[str, str] | None = None,
    is_verifiable: Callable[[], Awaitable[bool]] | None = None,
) -> float:
    """Reveal the tests, run them and return the reward in [0, 1]. Raises SandboxError.

    `runner` gives what stands in for a test runner that they would download, as tar bytes for `/`;
    `variables` is what `${NAME}` in the task's own may name. Where there is no verdict, `is_verifiable` says
    whether the task has one without the agent's work: then that work is worth 0, else it is the task's error.
    """
    try:
        return await _verify(sandbox, task, runner, variables or {})
    except Unverifiable:
        if is_verifiable is not None and await is_verifiable():
            return 0.0
        raise


async def _verify(
    sandbox: Verifiable,
    task: Task,
    runner: Callable[[], Awaitable[bytes | None]] | None,
    variables: Mapping[str, str],
) -> float:
    name = f"the sandbox of {task.id}"
    try:
        env = resolve_env(task.verifier_env, variables)
    except TaskError as error:
        raise SandboxError(f"{name} cannot be verified: {error}") from None
    alone = task.ends_processes
    if alone:
        await sandbox.end_processes()
    clear = _CLEAR.format(755 if alone else 777)
    cleared = await sandbox.run(["sh", "-c", clear], _CLEAR_TIMEOUT_S, user="root", cwd="/")
    if cleared.exit_code != 0:
        raise Unverifiable(f"{name} could not be prepared for its tests: {last_line(cleared)}")
    await sandbox.upload(task.tests, TESTS, "root")
    argv = ["bash", f"{TESTS}/test.sh"]
    if runner is not None and (tools := await runner()) is not None:
        await sandbox.extract(tools, "/")
        argv = ["sh", "-c", _WITH_RUNNER]
    result = await sandbox.run(argv, task.verifier_timeout_s, user=task.verifier_user, env=env)
    return await verdict(sandbox, task, result)


async def verdict(sandbox: Sandbox, task: Task, result: ExecResult, logs: str = LOGS) -> float:
    """The reward that the tests left in a folder of the sandbox. Raises SandboxError."""
    name = f"the sandbox of {task.id}"
    if result.timed_out:
        raise SandboxError(
            f"{name} was not verified within {task.verifier_timeout_s:g} s: "
            "raise [verifier] timeout_sec in its task.toml"
        )
    # Killed perhaps by the agent's work, which may have written a verdict.
    reward = None if result.exit_code > 128 else await _reward(sandbox, logs)
    if not reward and (why := await _broken(sandbox, result)) is not None:
        raise Unverifiable(
            f"{name} was not verified, because its test runner could not run ({why}): let the task's "
            "Dockerfile install what tests/test.sh needs, or give the verifier a network (sandbox.network)"
        )
    if reward is None:
        raise Unverifiable(
            f"{name} has no verdict: tests/test.sh must write a number from 0 to 1 to {logs}/reward.txt "
            f"(exit code {result.exit_code}, last line: {last_line(result)})"
        )
    return reward


async def _broken(sandbox: Sandbox, result: ExecResult) -> str | None:
    """Why a verdict that is no success means nothing: many a test.sh makes 0 of any failure."""
    with suppress(FileNotFoundError):
        if lines := (await sandbox.read(stand_in.FAILURES)).decode(errors="replace").splitlines():
            return lines[0][:_LONGEST_LINE]
    return stand_in.broken((result.stdout + b"\n" + result.stderr).decode(errors="replace"))


def last_line(result: ExecResult) -> str:
    text = (result.stdout + b"\n" + result.stderr).decode(errors="replace").strip()
    return text.splitlines()[-1][:_LONGEST_LINE] if text else "(no output)"


async def _reward(sandbox: Sandbox, logs: str) -> float | None:
    """The verdict; None when it is missing or no number from 0 to 1."""
    for name in ("reward.json", "reward.txt"):
        with suppress(FileNotFoundError):
            text = await sandbox.read(f"{logs}/{name}")
            with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
                reward = float(json.loads(text)["reward"] if name.endswith("json") else text)
                return reward if math.isfinite(reward) and 0 <= reward <= 1 else None
            return None
    return None
