"""The command line as a user runs it: a process, its status, and what it printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def obsspec(
    *arguments: object, cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "obsspec", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


def assert_one_sentence(result: subprocess.CompletedProcess[str], *parts: str, status: int) -> None:
    """The command failed with one line on stderr that holds all of `parts`."""
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for part in parts:
        assert part in result.stderr
