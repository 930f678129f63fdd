"""The one form of Dockerfile that built-in tasks have, and that a task may have for now.

It says in Docker's words what a sandbox does: the files in /work, then the setup script once.
"""

from __future__ import annotations

BASE = "debian:12-slim"
_FILES = [f"FROM {BASE}", "WORKDIR /work", "COPY files/ /work/"]
_SETUP = ["COPY setup.sh /tmp/setup.sh", "RUN bash /tmp/setup.sh && rm /tmp/setup.sh"]


def render(setup: bool) -> str:
    """The Dockerfile of a task with or without `environment/setup.sh`."""
    return "\n".join(_FILES + (_SETUP if setup else [])) + "\n"


def unsupported(text: str, setup: bool) -> str | None:
    """The first instruction not of the form `render(setup)`, "" if one lacks, None if all is well."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    found = [line for line in lines if line and not line.startswith("#")]
    wanted = render(setup).splitlines()
    for index, line in enumerate(found):
        if index >= len(wanted) or line != wanted[index]:
            return line
    return None if len(found) == len(wanted) else ""
