"""Configuration of the sandboxes, as it appears in YAML presets."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.observation import LIMIT
from tasks.sandbox.base import SandboxLimits


class BaseConfig(BaseModel):
    """What serves a base image. With neither a folder nor debootstrap it is the host's own system."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path | None = None
    """A root file system that belongs to root."""
    debootstrap: str | None = None
    """Suite of Debian, e.g. bookworm; the root is made once, as root."""
    env: dict[str, str] = {}
    """Variables that the image has."""
    run: list[str] = []
    """Shell commands, as root and with a network, that bring the base nearer to the image."""

    @model_validator(mode="after")
    def _one(self) -> BaseConfig:
        if self.folder and self.debootstrap:
            raise ValueError("a base is a folder or debootstrap's, not both: remove one of them")
        return self


_UBUNTU_USER = "id ubuntu >/dev/null 2>&1 || useradd -m -s /bin/bash ubuntu"
BASES = {
    "ubuntu:24.*": BaseConfig(run=[_UBUNTU_USER]),
    "ubuntu:*": BaseConfig(),
    "debian:*": BaseConfig(),
}
"""Patterns of image names; the first that fits serves."""


class BuildConfig(BaseModel):
    """How environments are built from Dockerfiles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: bool = True
    """Whether a build may reach the internet, where its task allows that too."""
    memory_mb: int = Field(4096, ge=256)
    processes: int = Field(1024, ge=64)
    file_mb: int = Field(4096, ge=16)
    """Largest file that a build may write."""
    env: list[str] = Field(
        default=[
            *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
            *("PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
            *("NODE_EXTRA_CA_CERTS", "NPM_CONFIG_REGISTRY"),
        ]
    )
    """The host's variables that a build's commands see, to find package registries; no image keeps them."""


class SandboxConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mb: int = Field(512, ge=64)
    """Memory of all processes together where the host allows control groups, else of each."""
    processes: int = Field(64, ge=8)
    """Processes and threads at a time."""
    output_bytes: int = Field(64 * 1024, ge=1024)
    """Bytes kept of each of standard output and standard error of a command; the rest is discarded."""
    cpus: float | None = Field(None, gt=0)
    """Processors' worth of time, where the host allows control groups; null: no bound."""
    file_mb: int = Field(64, ge=1)
    """Largest file a command may write."""
    disk_mb: int = Field(256, ge=16)
    """All that a sandbox may add to its image; it is kept in memory."""
    command_timeout_s: float = Field(10.0, gt=0)
    """Limit of a command that names none, and the most it may ask for."""
    observation_chars: int = Field(LIMIT, ge=100)
    """Characters of output that an observation keeps."""

    backend: Literal["namespace", "docker", "local"] = "namespace"
    """`local` isolates nothing: for trusted code only."""
    network: bool = False
    """Whether a sandbox whose task allows it reaches the internet, for the agent and for the verifier."""
    max_memory_mb: int = Field(4096, ge=64)
    """The most that a task may ask for."""
    max_disk_mb: int = Field(2048, ge=16)
    """The most that a task may ask for; it is kept in memory, as far as it is used."""
    local_runner: bool = True
    """Whether local equivalents stand in for the test runners that tasks download (uv, pip)."""
    clock: datetime | None = None
    """When every program in a sandbox starts (UTC), by libfaketime; null: now. Times of files stay real."""
    env: dict[str, str] = {}
    """What `${NAME}` in a task's own variables may name; nothing else of the host's environment is seen."""
    store: Path | None = None
    """Where environments are kept; null: in the user's cache folder."""
    bases: dict[str, BaseConfig] = Field(default=BASES)
    """What serves which base image; a pattern of names each, the first that fits."""
    build: BuildConfig = BuildConfig()

    def limits(self) -> SandboxLimits:
        return SandboxLimits(
            memory_mb=self.memory_mb,
            cpus=self.cpus,
            processes=self.processes,
            output_bytes=self.output_bytes,
            file_mb=self.file_mb,
            disk_mb=self.disk_mb,
            command_timeout_s=self.command_timeout_s,
        )
