"""What is built, and what has been built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.environments.errors import BuildRefused
from tasks.sandbox.image import Image
from tasks.task import Task

Progress = Callable[[str], None]
"""Is told each instruction that really runs."""


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile, and what surrounds it."""

    name: str
    """In errors: whose environment it is."""
    text: str
    file: str
    """Name of the Dockerfile in errors."""
    context: Path
    allow_internet: bool = True
    timeout_s: float = 600.0

    @classmethod
    def of(cls, task: Task) -> Recipe:
        """Of a task; one with an image and no Dockerfile starts from it. Blocking; raises BuildRefused."""
        text, file = _text_of(task)
        return cls(task.id, text, file, task.dockerfile.parent, task.allow_internet, task.build_timeout_s)


@dataclass(frozen=True)
class Built:
    """A finished environment."""

    image: Image
    base_image: str
    """Name of the image that its last stage starts from."""
    note: str
    """What stands for that image."""


def _text_of(task: Task) -> tuple[str, str]:
    """Text and name of a task's Dockerfile; of a task with an image and none, what stands for it."""
    if task.dockerfile.is_file():
        try:
            return task.dockerfile.read_text(encoding="utf-8"), str(task.dockerfile)
        except (OSError, UnicodeDecodeError) as error:
            raise BuildRefused(f"{task.dockerfile} cannot be read: {error}") from None
    if task.docker_image:
        return f"FROM {task.docker_image}\n", str(task.path / "task.toml")
    raise BuildRefused(f"{task.dockerfile} is missing: an environment needs it, or docker_image in task.toml")
