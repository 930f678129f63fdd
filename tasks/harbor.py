"""Task directories in the Harbor format: read one, write a generated one.

    task.toml  instruction.md  environment/{Dockerfile, files/, setup.sh}  tests/test.sh

A directory that `load_task` accepts can be run; every defect is a TaskError of one sentence.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

from tasks import dockerfile
from tasks.families.base import GeneratedTask
from tasks.task import Task, TaskError

VERIFIER_TIMEOUT_S = 30.0
_CHECK_TIMEOUT_S = 20
"""A check that hangs, because of what the agent left behind, is a failed one, before the verifier's limit."""

_TASK_TOML = """\
version = "1.0"

[metadata]
author_name = "obsspec"
family = {family}
seed = {seed}

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = {verifier_timeout}

[environment]
memory_mb = 512
"""

_TEST_SH = f"""\
#!/bin/bash
# Runs check.sh in the work folder: reward 1 when every line of it succeeds, else 0. Both are read whole
# before they run, for what the check runs of the agent's work might write to them.
{{
  check=$(</tests/check.sh) && cd /work && timeout -k 1 {_CHECK_TIMEOUT_S} bash -e -c "$check"
  if [ $? -eq 0 ]; then reward=1; else reward=0; fi
  # That work ends here (in a sandbox), and what it wrote is no verdict.
  [ "$PPID $HOSTNAME" = "1 sandbox" ] && kill -9 -1
  mkdir -p /logs/verifier && chmod -R u+rwX /logs && rm -rf /logs/verifier/reward.txt
  echo $reward > /logs/verifier/reward.txt
  exit
}}
"""


def load_task(path: Path) -> Task:
    """Read a task directory. Raises TaskError."""
    if not path.is_dir():
        raise TaskError(f"{path} is not a folder: name a task directory (task.toml, instruction.md, ...)")
    settings = _settings(path / "task.toml")
    instruction = _text(path / "instruction.md").strip()
    if not instruction:
        raise TaskError(f"{path / 'instruction.md'} is empty: write what the agent has to do")
    _text(path / "tests" / "test.sh")
    _check_environment(path / "environment")
    metadata = settings.table("metadata").values
    family = metadata.get("family", path.parent.name)
    if not isinstance(family, str) or not family:
        raise TaskError(f"{path / 'task.toml'}: metadata.family must be a string that is not empty")
    return Task(
        id=f"{family}/{metadata.get('seed', path.name)}",
        family=family,
        instruction=instruction,
        path=path,
        agent_timeout_s=settings.table("agent").positive("timeout_sec", 120.0),
        verifier_timeout_s=settings.table("verifier").positive("timeout_sec", VERIFIER_TIMEOUT_S),
        memory_mb=_memory_mb(settings.table("environment")),
        metadata=metadata,
    )


def write_task(generated: GeneratedTask, root: Path) -> Path:
    """Write `root/<family>/<seed>` and return it; one that is there is replaced as a whole."""
    target = root / generated.family / str(generated.seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{generated.seed}-", dir=target.parent))
    try:
        staging.chmod(0o755)
        for name, text in _files(generated).items():
            file = staging / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            if name.removeprefix("environment/files/") in generated.executable or name == "tests/test.sh":
                file.chmod(0o755)
        (staging / "environment" / "files").mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(target)
        os.rename(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return target


def _files(generated: GeneratedTask) -> dict[str, str]:
    """Path in the task directory → text."""
    setup = generated.setup_sh is not None
    files = {
        "task.toml": _TASK_TOML.format(
            family=json.dumps(generated.family), seed=generated.seed, verifier_timeout=VERIFIER_TIMEOUT_S
        ),
        "instruction.md": generated.instruction.rstrip() + "\n",
        "environment/Dockerfile": dockerfile.render(setup),
        "tests/test.sh": _TEST_SH,
        "tests/check.sh": generated.test_sh.rstrip() + "\n",
    }
    if generated.setup_sh is not None:
        files["environment/setup.sh"] = generated.setup_sh.rstrip() + "\n"
    for name, text in generated.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise TaskError(f"{generated.id}: the file {name!r} must lie below the work folder")
        files[f"environment/files/{path}"] = text
    if missing := generated.executable - set(generated.files):
        raise TaskError(f"{generated.id}: executable names files that do not exist: {sorted(missing)}")
    return files


def _check_environment(folder: Path) -> None:
    """Only environments that a sandbox can make are accepted; any other is refused, never ignored."""
    file = folder / "Dockerfile"
    setup = (folder / "setup.sh").exists()
    if setup:
        _text(folder / "setup.sh")
    line = dockerfile.unsupported(_text(file), setup)
    if line is not None:
        what = f"the instruction {line!r} is not supported yet" if line else "an instruction is missing"
        form = "; ".join(dockerfile.render(setup).splitlines())
        raise TaskError(f"{file}: {what}: the only form is: {form}")
    if not (folder / "files").is_dir():
        raise TaskError(f"{folder / 'files'} is missing: make the folder whose content is copied to /work")


class _Table:
    """One table of task.toml, and where it is for errors."""

    def __init__(self, file: Path, name: str, values: Any) -> None:
        self.file, self.name = file, name
        if not isinstance(values, dict):
            raise TaskError(f"{file}: {name} must be a table, not {values!r}")
        self.values: dict[str, Any] = values

    def table(self, name: str) -> _Table:
        return _Table(self.file, name, self.values.get(name, {}))

    def positive(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:
            raise TaskError(f"{self.file}: {self.name}.{key} must be a number above 0, not {value!r}")
        return float(value)


def _settings(file: Path) -> _Table:
    try:
        return _Table(file, "the file", tomllib.loads(_text(file)))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{file} is not valid TOML ({error}): correct it") from None


def _memory_mb(environment: _Table) -> int:
    """`memory_mb = 512`, or the older `memory = "2G"`."""
    old = environment.values.get("memory")
    if old is None:
        return math.ceil(environment.positive("memory_mb", 512))
    units = {"M": 1, "G": 1024}
    if not isinstance(old, str) or old[-1:] not in units or not old[:-1].isdecimal() or int(old[:-1]) == 0:
        raise TaskError(f'{environment.file}: environment.memory must be like "512M" or "2G", not {old!r}')
    return int(old[:-1]) * units[old[-1]]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise TaskError(f"{file} is missing: a task needs it (see the Harbor task format)") from None
    except IsADirectoryError:
        raise TaskError(f"{file} is a folder: it must be a file") from None
    except UnicodeDecodeError:
        raise TaskError(f"{file} is not UTF-8 text: convert it") from None
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror}") from None
