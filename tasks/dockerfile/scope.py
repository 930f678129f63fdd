"""Variables while a stage is built: which ARG and ENV an instruction sees, and its values with them.

As in BuildKit: ARGs before the first FROM serve FROM lines, and a stage's own ARG of that name without a
default; ADD, COPY, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME and WORKDIR are expanded, and the mounts of
RUN; RUN, CMD, ENTRYPOINT, SHELL, HEALTHCHECK and ONBUILD are left to the shell. All values of one ENV are
expanded with the variables from before it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tasks.dockerfile import instruction as view
from tasks.dockerfile.errors import DockerfileError
from tasks.dockerfile.instruction import Instruction
from tasks.dockerfile.lexer import expand, expand_heredoc

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_Expander = Callable[[str], str]


def platform_args(machine: str | None = None) -> dict[str, str]:
    """TARGETPLATFORM, TARGETARCH and their like for this machine, or one of another kind."""
    machine = machine or platform.machine()
    arch = _MACHINES.get(machine, machine)
    values = {"PLATFORM": f"linux/{arch}", "OS": "linux", "ARCH": arch, "VARIANT": ""}
    return {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in values.items()}


def global_variables(
    args: tuple[Instruction, ...], build_args: Mapping[str, str], predefined: Mapping[str, str]
) -> dict[str, str]:
    """Values of the ARGs before the first FROM; `build_args` are the caller's and win."""
    values = dict(predefined)
    for instruction in args:
        if not isinstance(instruction.view, view.Arg):
            continue
        for name, default in instruction.view.pairs:
            if name in build_args:
                values[name] = build_args[name]
            elif default is not None:
                values[name] = _expander(instruction, values)(default)
    return values


def base_image(from_: Instruction, variables: Mapping[str, str]) -> view.From:
    """A FROM with its values; `variables` are those of `global_variables`."""
    if not isinstance(from_.view, view.From):
        raise DockerfileError(f"{from_.keyword} names no base image", from_.file, from_.line)
    expander = _expander(from_, variables)
    found = replace(from_.view, image=expander(from_.view.image), platform=expander(from_.view.platform))
    if not found.image:
        problem = f"the image {from_.view.image} is empty; give its ARG a default before FROM"
        raise DockerfileError(problem, from_.file, from_.line)
    return found


@dataclass(frozen=True)
class Scope:
    """Variables at one point of a stage. A stage that starts from another one begins with its last scope."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """What expansion and RUN see: ENV and ARG, the later one of a name winning."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the image keeps: ENV only, the base image's included."""
    global_args: Mapping[str, str] = field(default_factory=dict)
    build_args: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_image(
        cls, env: Mapping[str, str], global_args: Mapping[str, str], build_args: Mapping[str, str]
    ) -> Scope:
        """The scope after a FROM whose image has these variables."""
        return cls(dict(env), dict(env), global_args, build_args)

    def apply(self, instruction: Instruction) -> tuple[Instruction, Scope]:
        """The instruction with its values, and the scope of the next one; raises DockerfileError."""
        expander = _expander(instruction, self.variables)
        match instruction.view:
            case view.Arg(pairs):
                resolved = self._arg(pairs, expander)
                given = {name: value for name, value in resolved.pairs if value is not None}
                scope = replace(self, variables={**self.variables, **given})
                return replace(instruction, view=resolved), scope
            case view.Env(pairs):
                values = _pairs(pairs, expander)
                scope = replace(
                    self, variables={**self.variables, **dict(values)}, env={**self.env, **dict(values)}
                )
                return replace(instruction, view=view.Env(values)), scope
            case other:
                return replace(instruction, view=self._expanded(instruction, other, expander)), self

    def _arg(self, pairs: tuple[tuple[str, str | None], ...], expander: _Expander) -> view.Arg:
        values: list[tuple[str, str | None]] = []
        for name, default in pairs:
            if name in self.build_args:
                values.append((name, self.build_args[name]))
            elif default is not None:
                values.append((name, expander(default)))
            else:
                values.append((name, self.global_args.get(name)))
        return view.Arg(tuple(values))

    def _expanded(self, instruction: Instruction, given: view.View, expander: _Expander) -> view.View:
        match given:
            case view.Copy() | view.Add():
                return self._files(instruction, given, expander)
            case view.Run():
                return replace(given, mounts=tuple(map(expander, given.mounts)))
            case view.Label(pairs):
                return view.Label(_pairs(pairs, expander))
            case view.Workdir(path):
                return view.Workdir(expander(path))
            case view.User(user):
                return view.User(expander(user))
            case view.Expose(ports):
                return view.Expose(tuple(map(expander, ports)))
            case view.Volume(paths):
                return view.Volume(tuple(map(expander, paths)))
            case view.Stopsignal(signal):
                return view.Stopsignal(expander(signal))
        return given

    def _files(
        self, instruction: Instruction, given: view.Copy | view.Add, expander: _Expander
    ) -> view.Copy | view.Add:
        def content(file: view.InlineFile) -> view.InlineFile:
            if not file.expand:
                return file
            try:
                return view.InlineFile(file.name, expand_heredoc(file.content, self.variables))
            except DockerfileError as error:
                raise error.at(instruction.file, instruction.line) from None

        if isinstance(given, view.Copy) and expander(given.from_stage) != given.from_stage:
            problem = "COPY --from takes no variables; name a stage with FROM and use that name"
            raise DockerfileError(problem, instruction.file, instruction.line)
        found = replace(
            given,
            sources=tuple(map(expander, given.sources)),
            destination=expander(given.destination),
            files=tuple(map(content, given.files)),
            chown=expander(given.chown),
            chmod=expander(given.chmod),
            exclude=tuple(map(expander, given.exclude)),
        )
        return replace(found, checksum=expander(found.checksum)) if isinstance(found, view.Add) else found


def _pairs(pairs: view.Pairs, expander: _Expander) -> view.Pairs:
    return tuple((expander(name), expander(value)) for name, value in pairs)


def _expander(instruction: Instruction, variables: Mapping[str, str]) -> _Expander:
    def expanded(value: str) -> str:
        try:
            return expand(value, variables, instruction.escape)
        except DockerfileError as error:
            raise error.at(instruction.file, instruction.line) from None

    return expanded
