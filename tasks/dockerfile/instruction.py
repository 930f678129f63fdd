"""Instructions of a Dockerfile: the text as it stands, and a typed view of it for each keyword.

Values in a view are as written, with quotes and variables, until `scope.Scope.apply` has resolved them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tasks.dockerfile.heredoc import Heredoc

Command = str | tuple[str, ...]
"""Text for the shell (`SHELL`, then this one argument), or the arguments to execute."""
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class From:
    image: str
    platform: str = ""
    alias: str = ""
    """Name of the stage in lower case."""


@dataclass(frozen=True)
class InlineFile:
    """A file whose content stands in the Dockerfile."""

    name: str
    content: str
    expand: bool = False
    """Its variables are still to be replaced."""


@dataclass(frozen=True)
class Run:
    """A command to run; for a shell command with heredocs, the text that the shell reads them from."""

    command: Command
    script: InlineFile | None = None
    """A heredoc with a `#!` line: put there as an executable, read-only file while `command` runs."""
    mounts: tuple[str, ...] = ()
    network: str = "default"
    security: str = "sandbox"


@dataclass(frozen=True)
class Copy:
    """Files from the build context, from another stage or image, or from the Dockerfile itself."""

    sources: tuple[str, ...]
    destination: str
    files: tuple[InlineFile, ...] = ()
    chown: str = ""
    chmod: str = ""
    from_stage: str = ""
    link: bool = False
    parents: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Add:
    sources: tuple[str, ...]
    destination: str
    files: tuple[InlineFile, ...] = ()
    chown: str = ""
    chmod: str = ""
    checksum: str = ""
    link: bool = False
    keep_git_dir: bool = False
    unpack: bool | None = None
    """None: archives from the context are unpacked, those from an address are not."""
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Env:
    pairs: Pairs


@dataclass(frozen=True)
class Label:
    pairs: Pairs


@dataclass(frozen=True)
class Arg:
    pairs: tuple[tuple[str, str | None], ...]
    """None: no default."""


@dataclass(frozen=True)
class Workdir:
    path: str


@dataclass(frozen=True)
class User:
    user: str


@dataclass(frozen=True)
class Shell:
    command: tuple[str, ...]


@dataclass(frozen=True)
class Entrypoint:
    command: Command


@dataclass(frozen=True)
class Cmd:
    command: Command


@dataclass(frozen=True)
class Expose:
    ports: tuple[str, ...]


@dataclass(frozen=True)
class Volume:
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Stopsignal:
    signal: str


@dataclass(frozen=True)
class Healthcheck:
    command: Command | None
    """None for `HEALTHCHECK NONE`."""


@dataclass(frozen=True)
class Onbuild:
    """An instruction for stages that start from this one; it is read when it is used."""

    text: str


@dataclass(frozen=True)
class Maintainer:
    name: str


View = (
    From
    | Run
    | Copy
    | Add
    | Env
    | Label
    | Arg
    | Workdir
    | User
    | Shell
    | Entrypoint
    | Cmd
    | Expose
    | Volume
    | Stopsignal
    | Healthcheck
    | Onbuild
    | Maintainer
)


@dataclass(frozen=True)
class Instruction:
    """One instruction. Its lines are counted from 1 and include heredocs with their delimiters."""

    keyword: str
    line: int
    last_line: int
    flags: dict[str, str] = field(hash=False)
    """Without dashes; a flag without value is "true"; of one given several times, the last."""
    form: Literal["exec", "shell"]
    words: tuple[str, ...]
    heredocs: tuple[Heredoc, ...]
    text: str
    """The file's own text, with comments and line endings."""
    view: View
    escape: str = "\\"
    file: str = "Dockerfile"

    @property
    def where(self) -> str:
        """For messages: `Dockerfile line 3`."""
        return f"{self.file} line {self.line}"
