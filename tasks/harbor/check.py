"""Names every problem of a task directory, and never raises: errors as `load_task` has them, then warnings.

An error here is a task that cannot be used; a warning is something that will not be as its author meant.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from tasks.dockerfile import Add, Copy, DockerfileError, parse
from tasks.harbor.problem import Problem, Report
from tasks.harbor.reader import TaskToml, is_inside, read_settings, read_task
from tasks.harbor.settings import VERSIONS, PackageSettings, mistakes, unknown
from tasks.harbor.toml_text import line_of
from tasks.harbor.values import shown

REWARDS = (b"reward.txt", b"reward.json")
_UNSURE = re.compile(r"""[$*?\[\\"']|://|^git@""")
"""In a source of COPY or ADD: a variable, a pattern, a quote, or an address."""
_LARGEST = 1 << 24
"""Bytes of a file that are looked at."""


def check(path: Path) -> list[Problem]:
    """All problems of the task directory."""
    found: list[Problem] = []
    try:
        read_task(path, found.append)
        if path.is_dir():
            if toml := read_settings(path, lambda _: None):  # its errors are reported above
                _settings(toml, found.append)
            _dockerfile(path, found.append)
            _files(path, found.append)
    except OSError as error:
        found.append(Problem("error", "", f"cannot be read: {error.strerror or error}"))
    return sorted(found, key=lambda problem: problem.severity)


def _settings(toml: TaskToml, report: Report) -> None:
    def warn(what: str, *location: str | int) -> None:
        report(Problem("warning", "task.toml", what, line_of(toml.text, location)))

    settings = toml.settings
    version = settings.schema_version or settings.version
    if version is None:
        warn(f'names no version: write schema_version = "{VERSIONS[-1]}"')
    elif version not in VERSIONS:
        what = f"has version {shown(version)}: what it adds to {VERSIONS[-1]} is kept, and not followed"
        warn(what, "schema_version" if settings.schema_version else "version")
    for location, known in unknown(settings):
        name = ".".join(map(str, location))
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "it is kept, and not followed"
        warn(f"has the unknown field {name}: {hint}", *location)
    try:
        PackageSettings.model_validate(settings.task)
    except ValidationError as error:
        for location, what in mistakes(error):
            warn(what.replace(" ", " task.", 1), "task", *location)
    environment = settings.environment
    for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
        sizes = getattr(environment, old), getattr(environment, new)
        if None not in sizes and sizes[0] != sizes[1]:
            warn(f"has both environment.{old} and {new}, which differ: {old} is used", "environment", old)
    not_followed = {
        "gpus": environment.gpus > 0,
        "mcp_servers": bool(environment.mcp_servers),
        "skills_dir": environment.skills_dir is not None,
        "allowed_hosts": bool(environment.allowed_hosts) or environment.network_mode == "allowlist",
    }
    for name in (name for name, set_ in not_followed.items() if set_):
        what = "no network is given" if name == "allowed_hosts" else "the task may need it"
        warn(f"has environment.{name}, which sandboxes do not offer: {what}", "environment", name)
    for name, table in (("agent", settings.agent), ("verifier", settings.verifier)):
        if table.network_mode is not None or table.allowed_hosts:
            warn(f"has a network of the {name}'s own: the environment's is used", name, "network_mode")


def _dockerfile(path: Path, report: Report) -> None:
    name, folder = "environment/Dockerfile", path / "environment"
    text = _content(folder / "Dockerfile")
    if text is None:
        return
    try:
        instructions = parse(text.decode(errors="replace"), name)
    except DockerfileError as error:
        report(Problem("error", name, f"would be rejected by Docker: {error.problem}", error.line or None))
        return
    for instruction in instructions:
        view = instruction.view
        if isinstance(view, Copy | Add) and not getattr(view, "from_stage", ""):
            for source in view.sources:
                inside = os.path.normpath(f"/{source}").lstrip("/")  # ".." ends at the folder, as in Docker
                if not _UNSURE.search(source) and not os.path.lexists(folder / inside):
                    what = f"copies {source!r}, which environment/ lacks: add it"
                    report(Problem("error", name, what, instruction.line))


def _files(path: Path, report: Report) -> None:
    rewarded, tests = False, path / "tests"
    for file in _walk(path):
        name = file.relative_to(path).as_posix()
        if file.is_symlink():
            if not is_inside(file, path):
                what = f"is a link to {os.readlink(file)}: in a sandbox it names what is there, if anything"
                report(Problem("warning", name, what))
            continue
        test = file.is_relative_to(tests)
        content = _content(file) if test or file.suffix == ".sh" else None
        if content is None:
            continue
        rewarded = rewarded or (test and any(reward in content for reward in REWARDS))
        if file.suffix == ".sh" or content.startswith(b"#!"):
            _script(file, name, content, report)
    if not rewarded and (tests / "test.sh").is_file():
        what = "writes no reward.txt or reward.json, nor does another file of tests/: write the reward there"
        report(Problem("warning", "tests/test.sh", what))


def _script(file: Path, name: str, content: bytes, report: Report) -> None:
    if b"\r\n" in content:
        line = content[: content.index(b"\r\n")].count(b"\n") + 1
        report(Problem("warning", name, "has Windows line ends, which shells take as text: convert it", line))
    if name in ("tests/test.sh", "solution/solve.sh"):
        if not content.startswith(b"#!"):
            report(Problem("warning", name, "has no #! line: bash runs it; write #!/bin/bash", 1))
        if not file.stat().st_mode & stat.S_IXUSR:
            report(Problem("warning", name, "is not executable: chmod +x it"))
        try:
            content.decode()
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            report(Problem("warning", name, "is not UTF-8 text: convert it", line))


def _walk(path: Path) -> Iterator[Path]:
    """Files and links, in order; links are not followed."""
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(set(folders) - set(links) - {".git"})
        for name in sorted([*files, *links]):
            yield Path(folder, name)


def _content(file: Path) -> bytes | None:
    """The beginning of a regular file that can be read."""
    try:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError:
        return None
