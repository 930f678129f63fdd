"""Reads a task directory, once for all who need it.

    task.toml  instruction.md  environment/{Dockerfile, ...}  tests/test.sh  [solution/solve.sh]

`load_task` returns a task that has all its parts, or raises a TaskError of one sentence; `read_task` reports
every error instead. Whether the environment can be built is the builder's to say. No file outside the
directory is read, whatever links it holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.harbor.problem import Problem, Report
from tasks.harbor.settings import Settings, mistakes
from tasks.harbor.toml_text import TomlError, line_of, parse
from tasks.task import Task, TaskError

_COMPOSE = ("docker-compose.yaml", "docker-compose.yml")
_COPIED = ("environment/files", "environment/setup.sh", "solution/solve.sh")
"""What is read later, for a sandbox."""


@dataclass(frozen=True)
class TaskToml:
    text: str
    table: dict[str, Any]
    settings: Settings

    def line(self, *location: str) -> int | None:
        return line_of(self.text, location)


def load_task(path: Path, task_id: str | None = None) -> Task:
    """Read a task directory; its id is its family and seed, or the names of its folders. Raises TaskError."""

    def refuse(problem: Problem) -> None:
        raise TaskError(f"{path / problem.where} {problem.what}")

    task = read_task(path, refuse, task_id)
    assert task is not None
    return task


def read_task(path: Path, report: Report, task_id: str | None = None) -> Task | None:
    """The task, or None where an error was reported; warnings are not looked for."""
    errors: list[Problem] = []

    def found(problem: Problem) -> None:
        errors.append(problem)
        report(problem)

    if not path.is_dir():
        found(Problem("error", "", "is not a folder: name a task directory (task.toml, instruction.md, ...)"))
        return None
    toml = read_settings(path, found)
    if toml is not None and toml.settings.steps:
        what = "has [[steps]], which cannot be run: write each step as a task of its own"
        found(Problem("error", "task.toml", what, toml.line("steps")))
        return None
    text = read_text(path, "instruction.md", found)
    instruction = (text or "").strip()
    if text is not None and not instruction:
        found(Problem("error", "instruction.md", "is empty: write what the agent has to do"))
    _check_tests(path, found)
    _check_environment(path, toml, found)
    return None if toml is None or errors else _task(path, task_id, instruction, toml)


def read_settings(path: Path, report: Report) -> TaskToml | None:
    """task.toml as it must be to run the task."""
    text = read_text(path, "task.toml", report)
    if text is None:
        return None
    try:
        table = parse(text)
        toml = TaskToml(text, table, Settings.model_validate(table))
    except TomlError as error:
        report(Problem("error", "task.toml", f"is not valid TOML ({error}): correct it", error.line))
        return None
    except ValidationError as error:
        for location, what in mistakes(error):
            report(Problem("error", "task.toml", what, line_of(text, location)))
        return None
    _check_supported(toml, report)
    return toml


def read_text(path: Path, name: str, report: Report) -> str | None:
    """The text of a file of the task; None where an error was reported."""
    file = path / name
    try:
        if not is_inside(file, path):
            what = "is a link that leaves the task directory: put the file in its place"
        elif file.exists() and not file.is_file():
            what = "is not a file: replace it by one"
        else:
            return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        what = "is missing: a task needs it (see the Harbor task format)"
        if name == "task.toml" and (path / "task.yaml").is_file():
            what = "is missing, and task.yaml is Terminal-Bench's older format: convert the task to Harbor's"
    except UnicodeDecodeError:
        what = "is not UTF-8 text: convert it"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    report(Problem("error", name, what))
    return None


def is_inside(file: Path, folder: Path) -> bool:
    """Whether a file, or what it links to, lies in the folder."""
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def _leaves(path: Path, name: str, report: Report) -> bool:
    if is_inside(path / name, path):
        return False
    report(Problem("error", name, "is a link that leaves the task directory: put what it names in its place"))
    return True


def _check_supported(toml: TaskToml, report: Report) -> None:
    """What is valid, but would be another task if it were ignored."""
    settings = toml.settings
    if settings.environment.os.lower() != "linux":
        what = f"names environment.os = {settings.environment.os!r}: only linux can be run"
        report(Problem("error", "task.toml", what, toml.line("environment", "os")))
    if settings.verifier.separate:
        what = "asks for an environment of the verifier's own: tests are run in the agent's only"
        report(Problem("error", "task.toml", what, toml.line("verifier", "environment")))


def _check_tests(path: Path, report: Report) -> None:
    if not (path / "tests" / "test.sh").exists() and (others := sorted((path / "tests").glob("test_*.py"))):
        what = (
            f"is missing: {others[0].name} alone is not run; add a tests/test.sh that runs it and writes the "
            "reward to /logs/verifier/reward.txt"
        )
        report(Problem("error", "tests/test.sh", what))
        return
    read_text(path, "tests/test.sh", report)


def _check_environment(path: Path, toml: TaskToml | None, report: Report) -> None:
    folder = path / "environment"
    if _leaves(path, "environment", report):
        return
    for name in _COPIED:
        _leaves(path, name, report)
    for name in _COMPOSE:
        if (folder / name).exists():
            what = "describes several containers: only one, of a Dockerfile or docker_image, can be run"
            report(Problem("error", f"environment/{name}", what))
            return
    if (folder / "Dockerfile").exists():
        read_text(path, "environment/Dockerfile", report)
    elif toml is not None and toml.settings.environment.docker_image is None:
        what = "is missing: add it, or name environment.docker_image in task.toml"
        report(Problem("error", "environment/Dockerfile", what))


def _task(path: Path, task_id: str | None, instruction: str, toml: TaskToml) -> Task:
    settings, environment = toml.settings, toml.settings.environment
    at = Path(os.path.abspath(path))
    family = settings.metadata.get("family")
    seed = settings.metadata.get("seed")
    built_in = isinstance(family, str) and isinstance(seed, int)
    if not isinstance(family, str) or not family:
        family = at.parent.name
    return Task(
        id=task_id or f"{family}/{seed if built_in else at.name}",
        family=family,
        instruction=instruction,
        path=path,
        agent_timeout_s=settings.agent.timeout_sec,
        verifier_timeout_s=settings.verifier.timeout_sec,
        build_timeout_s=environment.build_timeout_sec,
        memory_mb=environment.memory_mb if environment.memory is None else environment.memory,
        storage_mb=environment.storage_mb if environment.storage is None else environment.storage,
        cpus=environment.cpus,
        gpus=environment.gpus,
        allow_internet=environment.internet,
        agent_user=settings.agent.user,
        verifier_user=settings.verifier.user,
        workdir=environment.workdir,
        environment_env=environment.env,
        verifier_env=settings.verifier.env,
        solution_env=settings.solution.env,
        docker_image=environment.docker_image,
        healthcheck=health.value() if (health := environment.healthcheck) else None,
        metadata=settings.metadata,
        settings=toml.table,
    )
