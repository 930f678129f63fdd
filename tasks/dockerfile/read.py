"""From an instruction's line to its words and its typed view, with the checks that Docker makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.dockerfile import instruction as view
from tasks.dockerfile.errors import DockerfileError, shown
from tasks.dockerfile.flags import Flags
from tasks.dockerfile.heredoc import Heredoc, heredoc_argument
from tasks.dockerfile.source import SPACE
from tasks.dockerfile.split import json_strings, split_blanks, split_first, split_instruction, split_quoted

SCRIPT_FOLDER = "/dev/pipes/"
"""Where BuildKit puts a heredoc that begins with `#!`."""

_STAGE_NAME = re.compile(r"[a-z][-a-z0-9_.]*")
_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_NO_TRIGGER = ("ONBUILD", "FROM", "MAINTAINER")


@dataclass(frozen=True)
class Request:
    """What stands after a keyword; `words` is filled in by the first step of reading."""

    keyword: str
    rest: str
    flags: Flags
    escape: str
    words: tuple[str, ...] = ()
    is_json: bool = False
    heredocs: tuple[Heredoc, ...] = field(default=())

    @property
    def command(self) -> view.Command:
        return self.words if self.is_json else " ".join(self.words)

    def one(self) -> str:
        if len(self.words) != 1:
            raise DockerfileError(f"{self.keyword} needs an argument")
        return self.words[0]

    def some(self) -> tuple[str, ...]:
        if not self.words:
            raise DockerfileError(f"{self.keyword} needs at least one argument")
        return self.words


def read_words(keyword: str, rest: str, escape: str) -> tuple[tuple[str, ...], bool]:
    """(words, whether they are a JSON array)."""
    if keyword in ("RUN", "CMD", "ENTRYPOINT", "SHELL"):
        items = json_strings(rest)
        return (items, True) if items is not None else ((rest,) if rest else (), False)
    if keyword in ("COPY", "ADD", "VOLUME"):
        items = json_strings(rest)
        return (items, True) if items is not None else (split_blanks(rest), False)
    if keyword == "HEALTHCHECK":
        kind, command = split_first(rest) or (rest, "")
        items, is_json = read_words("CMD", command, escape)
        return ((kind, *items) if kind else ()), is_json
    if keyword in ("ENV", "LABEL"):
        return _names_and_values(keyword, rest, escape), False
    if keyword == "ARG":
        return split_quoted(rest, escape), False
    if keyword in ("FROM", "EXPOSE"):
        return split_blanks(rest), False
    return (rest,) if rest else (), False


def read_view(request: Request) -> view.View:
    """Raises DockerfileError for arguments that Docker rejects; the keyword is a known one."""
    return READERS[request.keyword](request)


def _names_and_values(keyword: str, rest: str, escape: str) -> tuple[str, ...]:
    words = split_quoted(rest, escape)
    if words and "=" not in words[0]:
        pair = split_first(rest)
        if pair is None:
            raise DockerfileError(f"{keyword} {shown(rest)} has no value; write {keyword} NAME=VALUE")
        return (f"{pair[0]}={pair[1]}",)
    for word in words:
        if "=" not in word:
            raise DockerfileError(
                f"{keyword} has {shown(word)} without =; write NAME=VALUE, quoted if need be"
            )
    return words


def _pairs(request: Request) -> view.Pairs:
    pairs = [word.partition("=") for word in request.some()]
    if not all(name for name, _, _ in pairs):
        raise DockerfileError(f"{request.keyword} has a value without a name")
    return tuple((name, value) for name, _, value in pairs)


def _arg(request: Request) -> view.Arg:
    pairs = [word.partition("=") for word in request.some()]
    if not all(name for name, _, _ in pairs):
        raise DockerfileError("ARG has a value without a name")
    return view.Arg(tuple((name, value if equals else None) for name, equals, value in pairs))


def _from(request: Request) -> view.From:
    words = request.words
    alias = ""
    if len(words) == 3 and words[1].lower() == "as":
        alias = words[2].lower()
        if not _STAGE_NAME.fullmatch(alias):
            problem = "must begin with a letter and hold only letters, digits, -, _ and ."
            raise DockerfileError(f"the stage's name {shown(words[2])} {problem}")
    elif len(words) != 1:
        raise DockerfileError("FROM must be FROM IMAGE or FROM IMAGE AS NAME")
    return view.From(words[0], request.flags.get("platform"), alias)


def _run(request: Request) -> view.Run:
    if request.is_json and not request.words:
        raise DockerfileError("RUN [] has no command")
    command, script = request.command, None
    if request.heredocs and isinstance(command, str):
        first = request.heredocs[0]
        if heredoc_argument(command) is None:
            parts = [command, *(heredoc.body + heredoc.name for heredoc in request.heredocs)]
            command = "\n".join(parts)
        elif first.content.startswith("#!"):
            script = view.InlineFile(SCRIPT_FOLDER + first.name, first.content)
            command = script.name
        else:
            command = first.content
    flags = request.flags
    network, security = flags.get("network", "default"), flags.get("security", "sandbox")
    if network not in ("default", "none", "host"):
        raise DockerfileError(f"--network={network} must be default, none or host")
    if security not in ("sandbox", "insecure"):
        raise DockerfileError(f"--security={security} must be sandbox or insecure")
    return view.Run(command, script, flags.all("mount"), network, security)


def _sources(request: Request) -> tuple[tuple[str, ...], str, tuple[view.InlineFile, ...]]:
    if len(request.words) < 2:
        raise DockerfileError(f"{request.keyword} needs a source and a destination")
    *words, destination = request.words
    if heredoc_argument(destination) is not None:
        raise DockerfileError(f"{request.keyword} has no destination after its heredoc")
    bodies = {heredoc.name: heredoc.content for heredoc in request.heredocs}
    sources: list[str] = []
    files: list[view.InlineFile] = []
    for word in words:
        heredoc = heredoc_argument(word)
        if heredoc is None:
            sources.append(word)
        else:
            files.append(view.InlineFile(heredoc.name, bodies.get(heredoc.name, ""), heredoc.expand))
    return tuple(sources), destination, tuple(files)


def _copy(request: Request) -> view.Copy:
    flags = request.flags
    return view.Copy(
        *_sources(request),
        chown=flags.get("chown"),
        chmod=flags.get("chmod"),
        from_stage=flags.get("from"),
        link=bool(flags.switch("link")),
        parents=bool(flags.switch("parents")),
        exclude=flags.all("exclude"),
    )


def _add(request: Request) -> view.Add:
    flags = request.flags
    return view.Add(
        *_sources(request),
        chown=flags.get("chown"),
        chmod=flags.get("chmod"),
        checksum=flags.get("checksum"),
        link=bool(flags.switch("link")),
        keep_git_dir=bool(flags.switch("keep-git-dir")),
        unpack=flags.switch("unpack"),
        exclude=flags.all("exclude"),
    )


def _shell(request: Request) -> view.Shell:
    if not request.is_json:
        raise DockerfileError('SHELL needs a JSON array, such as ["/bin/bash", "-c"]')
    return view.Shell(request.some())


def _volume(request: Request) -> view.Volume:
    paths = tuple(word.strip(SPACE) for word in request.some())
    if not all(paths):
        raise DockerfileError("VOLUME has an empty path")
    return view.Volume(paths)


def _healthcheck(request: Request) -> view.Healthcheck:
    kind, *command = request.some()
    if kind.upper() == "NONE":
        if command:
            raise DockerfileError("HEALTHCHECK NONE takes no arguments")
        return view.Healthcheck(None)
    if kind.upper() != "CMD":
        raise DockerfileError(f"HEALTHCHECK {shown(kind)} must be HEALTHCHECK CMD or HEALTHCHECK NONE")
    if not command:
        raise DockerfileError("HEALTHCHECK CMD has no command")
    for name, value in request.flags.last().items():
        if name == "retries":
            if value and not re.fullmatch(r"\+?[0-9]{1,9}", value):
                raise DockerfileError(f"--retries={shown(value)} must be a number, 0 or more")
        elif value and not _DURATION.fullmatch(value):
            raise DockerfileError(f"--{name}={shown(value)} must be a duration such as 30s or 1m30s")
    return view.Healthcheck(tuple(command) if request.is_json else command[0])


def _onbuild(request: Request) -> view.Onbuild:
    trigger = split_instruction(request.one())[0].upper()
    if trigger in _NO_TRIGGER:
        raise DockerfileError(f"ONBUILD {trigger} is not allowed")
    documents = "".join(f"\n{heredoc.body}{heredoc.name}" for heredoc in request.heredocs)
    return view.Onbuild(request.rest + documents)


READERS: dict[str, Callable[[Request], view.View]] = {
    "ADD": _add,
    "ARG": _arg,
    "CMD": lambda request: view.Cmd(request.command),
    "COPY": _copy,
    "ENTRYPOINT": lambda request: view.Entrypoint(request.command),
    "ENV": lambda request: view.Env(_pairs(request)),
    "EXPOSE": lambda request: view.Expose(request.some()),
    "FROM": _from,
    "HEALTHCHECK": _healthcheck,
    "LABEL": lambda request: view.Label(_pairs(request)),
    "MAINTAINER": lambda request: view.Maintainer(request.one()),
    "ONBUILD": _onbuild,
    "RUN": _run,
    "SHELL": _shell,
    "STOPSIGNAL": lambda request: view.Stopsignal(request.one()),
    "USER": lambda request: view.User(request.one()),
    "VOLUME": _volume,
    "WORKDIR": lambda request: view.Workdir(request.one()),
}
"""By keyword; the keys are all the instructions there are."""
