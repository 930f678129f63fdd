"""Configuration of the sandboxes, as it appears in YAML presets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tasks.observation import LIMIT
from tasks.sandbox.base import SandboxLimits


class SandboxConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mb: int = Field(512, ge=64)
    """Address space of each process and, where the host allows control groups, memory of all together."""
    processes: int = Field(64, ge=8)
    """Processes and threads at a time."""
    output_bytes: int = Field(64 * 1024, ge=1024)
    """Bytes kept of each of standard output and standard error of a command; the rest is discarded."""
    file_mb: int = Field(64, ge=1)
    """Largest file, and size of each of the private folders (/work, /tmp, home, ...)."""
    command_timeout_s: float = Field(10.0, gt=0)
    """Limit of a command that names none, and the most it may ask for."""
    observation_chars: int = Field(LIMIT, ge=100)
    """Characters of output that an observation keeps."""

    def limits(self) -> SandboxLimits:
        return SandboxLimits(
            memory_mb=self.memory_mb,
            processes=self.processes,
            output_bytes=self.output_bytes,
            file_mb=self.file_mb,
            command_timeout_s=self.command_timeout_s,
        )
