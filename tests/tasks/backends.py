"""Sandboxes of the other backends for tests: local, Docker, and a double of Docker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.docker import DockerSandbox, DockerSpec
from tasks.sandbox.docker.container import Container
from tasks.sandbox.docker.images import inspect
from tasks.sandbox.local import LocalSandbox
from tasks.sandbox.spec import SandboxSpec

FAKE = Path(__file__).with_name("fake_docker.py")
IMAGE = os.environ.get("OBSSPEC_TEST_IMAGE", "debian:12-slim")
"""Of a real daemon; it needs bash and coreutils."""


def fake_docker(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the double first in PATH, with one image `fake`; returns the folder of its state."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "true"]).returncode != 0:
        pytest.skip("this machine lets nobody make the namespaces that the fake docker is made of")
    (state / "bin").mkdir(parents=True)
    (state / "bin" / "docker").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "$@"\n')
    (state / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{state / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(state / "state"))
    subprocess.run(["docker", "make_image", "fake"], check=True)
    monkeypatch.setattr(Container, "bounds_disk", True)
    return state / "state"


async def docker_image() -> str:
    """The image of a real daemon, or a skipped test."""
    try:
        return (await inspect(IMAGE)).name
    except SandboxError as error:
        pytest.skip(str(error))


async def make(
    backend: str,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: SandboxLimits,
    *,
    files: Path | None = None,
    setup: Path | None = None,
) -> LocalSandbox | DockerSandbox:
    """A sandbox of the backend that is not started yet."""
    if backend == "local":
        return LocalSandbox(SandboxSpec("test", files, setup), limits, trusted=True)
    if backend == "fake docker":
        await asyncio.to_thread(fake_docker, state, monkeypatch)
        image = "fake"
    else:
        image = await docker_image()
    return DockerSandbox(DockerSpec(image, "test", files, setup, workdir="/tmp"), limits)
