"""Docker containers as sandboxes, over the `docker` program, with neither an SDK nor a shell in between."""

from tasks.sandbox.docker.images import build, pull, task_image
from tasks.sandbox.docker.sandbox import DockerSandbox, DockerSpec

__all__ = ["DockerSandbox", "DockerSpec", "build", "pull", "task_image"]
