"""What a sandbox starts with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tasks.sandbox.image import Image
from tasks.task import Healthcheck


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox starts with; `name` appears in errors."""

    name: str = "sandbox"
    files: Path | None = None
    """Folder whose content is copied to the image's working folder."""
    setup: Path | None = None
    """Script run once there; it must exit 0."""
    image: Image | Callable[[], Awaitable[Image]] | None = None
    """None: the built-in world (`tasks.sandbox.host.agent_image`). A function is called at the start."""
    runner: Callable[[], Awaitable[bytes | None]] | None = None
    """Gives what stands in for the test runner, as tar bytes (see `tasks.verifier.runner`)."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What `${NAME}` in the variables of the task's verifier may name."""
    is_verifiable: Callable[[], Awaitable[bool]] | None = None
    """Whether the task can be verified without an agent's work (see `tasks.sandbox.verification`)."""
    healthcheck: Healthcheck | None = None
    network: bool = False
    """Whether it reaches the internet; the host's own services it never does."""
    clock: datetime | None = None
    """When every program starts (UTC); None: now."""
    shell: bool = True
    """Whether there is a shell to `exec` in; a build has none."""
    upper: str | None = None
    """Folder of the store that keeps what is written (a build); None: nothing is kept."""
