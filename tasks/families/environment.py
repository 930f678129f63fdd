"""The one environment of the built-in tasks, in Docker's words.

Where sandboxes are made of namespaces it is not built: all built-in tasks share the image that
`tasks.sandbox.host.agent_image` makes, which is what the lines up to the COPY describe.
"""

from __future__ import annotations

from tasks.sandbox.host import AGENT, HOME, UID, WORK

PACKAGES = ("gcc", "git", "libc6-dev", "make", "python3")
"""What experts and tests use beyond a minimal Debian."""
_HEAD = [
    "FROM debian:12-slim",
    f"RUN apt-get update && apt-get install -y --no-install-recommends {' '.join(PACKAGES)}",
    f"RUN useradd --uid {UID} --home-dir {HOME} --shell /bin/bash agent "
    f"&& install -d -o agent -g agent {HOME} {WORK}",
    *(f'ENV {name}="{value}"' for name, value in AGENT.env.items()),
    f"WORKDIR {WORK}",
    "USER agent",
    f"COPY --chown=agent files/ {WORK}/",
]
_SETUP = ["COPY setup.sh /tmp/setup.sh", "RUN bash /tmp/setup.sh"]


def dockerfile(setup: bool) -> str:
    """Of a task with or without `environment/setup.sh`."""
    return "\n".join(_HEAD + (_SETUP if setup else [])) + "\n"


def is_built_in(text: str, setup: bool) -> bool:
    """Whether a Dockerfile is the one of the built-in tasks."""
    return text == dockerfile(setup)
