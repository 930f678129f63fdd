"""Why an environment cannot be built, in words."""

from __future__ import annotations

import re
from collections.abc import Callable

from tasks.dockerfile import Instruction
from tasks.sandbox.base import ExecResult
from tasks.task import TaskError

_LONGEST = 300
_LAST = 100
"""Lines of output that are looked at."""
_NETWORK = re.compile(
    r"(Could not resolve|Couldn't resolve|Name or service not known|Temporary failure in name resolution"
    r"|Failed to connect|Connection (refused|timed out|reset)|Network is unreachable|ENOTFOUND|EAI_AGAIN"
    r"|returned error: [45]\d\d|ERROR [45]\d\d|unable to access)"
)
_APT = re.compile(r"E: (?!Sub-process|Couldn't find any package by)")
_TELLING = re.compile(r"(\b[Ee]rror\b|ERROR|[Ff]atal|[Cc]annot|not found|No such|[Uu]nable|failed)")
_NOISE = re.compile(
    r"debconf:|WARNING: apt does not|\[notice\]|dpkg-preconfigure:|.*A complete log of this run"
)
_NO_PACKAGE = re.compile(r"Unable to locate package|has no installation candidate|E: Version '")


class BuildRefused(TaskError):
    """One sentence that names the Dockerfile, the line and the reason."""


def refuse(instruction: Instruction, why: str) -> BuildRefused:
    return BuildRefused(f"{instruction.where}: {why}")


def shortened(text: str, longest: int = _LONGEST) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def reason(result: ExecResult) -> str:
    """The line of a failed program's output that says most: what could not be reached, what apt lacks, or the
    last one that sounds like an error."""
    text = (result.stdout + b"\n" + result.stderr).decode(errors="replace")
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line and not _NOISE.match(line)][-_LAST:]
    ranks: tuple[Callable[[str], object], ...] = (_NETWORK.search, _APT.match, _TELLING.search, bool)
    for telling in ranks:
        if found := [line for line in lines if telling(line)]:
            return shortened(found[-1])
    return "it printed nothing"


def lacks_package(why: str) -> bool:
    """Whether apt has not what was asked for."""
    return _NO_PACKAGE.search(why) is not None
