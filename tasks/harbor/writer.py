"""Writes task directories: those of the built-in families, and any given as names and contents.

A directory appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from tasks.families.base import GeneratedTask
from tasks.families.environment import dockerfile
from tasks.sandbox.base import UNREADABLE
from tasks.task import TaskError

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
user = "root"
end_processes = true

[environment]
memory_mb = 512
"""

_TEST_SH = f"""\
#!/bin/bash
# Runs check.sh in the work folder: reward 1 when every line of it succeeds, else 0. The check runs as the
# agent's user, who cannot write the verdict. Where there is only one user, all is read before it runs, and
# what the check started is ended before the verdict is written.
{{
  check=$(</tests/check.sh) && cd /work || exit
  as_agent=()
  [ "$(id -u)" = 0 ] && as_agent=(setpriv --reuid agent --regid agent --init-groups)
  "${{as_agent[@]}}" timeout -k 1 {_CHECK_TIMEOUT_S} bash -e -c "$check"
  if [ $? -eq 0 ]; then reward=1; else reward=0; fi
  if [ ${{#as_agent[@]}} = 0 ]; then
    [ "$HOSTNAME" = sandbox ] && kill -9 -1
    chmod -R u+rwX /logs && rm -rf /logs/verifier/reward.txt
  fi
  mkdir -p /logs/verifier
  echo $reward > /logs/verifier/reward.txt
  exit
}}
"""


def write_task(generated: GeneratedTask, root: Path) -> Path:
    """Write `root/<family>/<seed>` and return it; one that is there is replaced as a whole."""
    target = root / generated.family / str(generated.seed)
    executable = {f"environment/files/{name}" for name in generated.executable}
    with new_folder(target) as staging:
        write_files(_files(generated), executable | {"tests/test.sh"}, staging)
        (staging / "environment" / "files").mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(target)
        os.rename(staging, target)
    return target


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target`, to be renamed to it; it is removed where that did not happen."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        staging.chmod(0o755)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_files(files: Mapping[str, str | bytes], executable: Collection[str], folder: Path) -> None:
    """Contents by relative path. Raises TaskError for a path that leaves the folder."""
    for name, content in files.items():
        file = folder / relative(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if name in executable:
            file.chmod(0o755)


def relative(name: str) -> PurePosixPath:
    """Raises TaskError unless the path stays below where it starts."""
    path = PurePosixPath(name)
    unreadable = UNREADABLE.search(name) is not None
    if unreadable or path.is_absolute() or ".." in path.parts or not path.parts:
        raise TaskError(f"the file {name!r} must lie below the task's folder")
    return path


def _files(generated: GeneratedTask) -> dict[str, str]:
    """Path in the task directory → text."""
    setup = generated.setup_sh is not None
    files = {
        "task.toml": _TASK_TOML.format(
            family=json.dumps(generated.family), seed=generated.seed, verifier_timeout=VERIFIER_TIMEOUT_S
        ),
        "instruction.md": generated.instruction.rstrip() + "\n",
        "environment/Dockerfile": dockerfile(setup),
        "tests/test.sh": _TEST_SH,
        "tests/check.sh": generated.test_sh.rstrip() + "\n",
    }
    if generated.setup_sh is not None:
        files["environment/setup.sh"] = generated.setup_sh.rstrip() + "\n"
    for name, text in generated.files.items():
        try:
            files[f"environment/files/{relative(name)}"] = text
        except TaskError as error:
            raise TaskError(f"{generated.id}: {error}") from None
    if missing := generated.executable - set(generated.files):
        raise TaskError(f"{generated.id}: executable names files that do not exist: {sorted(missing)}")
    return files
