"""A task: a Harbor directory (`task.toml`, `instruction.md`, `environment/`, `tests/test.sh`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class TaskError(ValueError):
    """A task directory that cannot be used: one sentence that says what, where and what to do."""


@dataclass(frozen=True)
class Task:
    """One task as read from its directory; `tests` stay on the host until the agent is done."""

    id: str
    """Unique name, e.g. `config_repair/1000017`."""
    family: str
    instruction: str
    path: Path
    agent_timeout_s: float = 120.0
    verifier_timeout_s: float = 30.0
    memory_mb: int = 512
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        """Files copied into the sandbox's work folder."""
        return self.path / "environment" / "files"

    @property
    def setup(self) -> Path | None:
        """Script run once in the sandbox's work folder before the agent starts, if there is one."""
        script = self.path / "environment" / "setup.sh"
        return script if script.is_file() else None

    @property
    def tests(self) -> Path:
        return self.path / "tests"
