"""Mistakes and failures a user can do something about: each is one sentence, never a traceback."""

from __future__ import annotations

from orchestrator.backends.base import BackendError
from tasks.sandbox.base import SandboxError
from tasks.task import TaskError


class ConfigError(ValueError):
    """A configuration that cannot be used: the key, the file, and what to write instead."""


class ProcessError(RuntimeError):
    """A process that could not be started, or ended by itself: its name and the end of its log."""


EXIT_CODES: dict[type[Exception], int] = {
    ConfigError: 2,
    TaskError: 2,
    ProcessError: 1,
    BackendError: 1,
    SandboxError: 1,
}
"""What the command line catches, and the status it then exits with (2: the input was wrong)."""
