"""`parse`: a Dockerfile's text as typed instructions, by the rules of BuildKit.

For any text it returns instructions or raises DockerfileError with the line, in time linear in the text.
Heredocs come back byte for byte. Nothing is run, and no variable is replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches

from tasks.dockerfile.errors import DockerfileError, shown
from tasks.dockerfile.flags import Flags, read_flags
from tasks.dockerfile.heredoc import Heredoc, heredocs_of
from tasks.dockerfile.instruction import Arg, From, Instruction, Onbuild
from tasks.dockerfile.read import READERS, Request, read_view, read_words
from tasks.dockerfile.source import LogicalLine, Source
from tasks.dockerfile.split import json_strings, split_instruction

_SPACED_HEREDOC = re.compile(r"<<-[ \t]+['\"]?\w")


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it."""

    index: int
    name: str
    """Its alias in lower case, "" without one; `COPY --from` names it by this or by the index."""
    from_: Instruction
    instructions: tuple[Instruction, ...]
    """Without the FROM."""


def parse(text: str, name: str = "Dockerfile") -> tuple[Instruction, ...]:
    """All instructions, the ARGs before the first FROM included; raises DockerfileError."""
    source = Source(text)
    found: list[Instruction] = []
    has_stage = False
    while True:
        start = source.last_line
        try:
            logical = source.next()
        except DockerfileError as error:
            raise error.at(name, source.last_line) from None
        if logical is None:
            break
        try:
            instruction = _instruction(source, logical, name, found[-1] if found else None)
            has_stage = has_stage or isinstance(instruction.view, From)
            if not has_stage and not isinstance(instruction.view, Arg):
                raise DockerfileError(f"{instruction.keyword} stands before FROM; only ARG may")
        except DockerfileError as error:
            raise error.at(name, logical.line) from None
        found.append(instruction)
    if not has_stage:
        raise DockerfileError("there is no FROM, so nothing to build", name, max(start, 1))
    return tuple(found)


def trigger(instruction: Instruction) -> Instruction:
    """The instruction that an ONBUILD holds, for a stage that starts from the one it stands in."""
    if not isinstance(instruction.view, Onbuild):
        raise DockerfileError(
            f"{instruction.keyword} holds no other instruction", instruction.file, instruction.line
        )
    try:
        source = Source(instruction.view.text)
        source.escape = instruction.escape
        logical = source.next()
        if logical is None:
            raise DockerfileError("ONBUILD holds no instruction")
        found = _instruction(source, logical, instruction.file, None)
    except DockerfileError as error:
        raise DockerfileError(error.problem, instruction.file, instruction.line) from None
    return replace(found, line=instruction.line, last_line=instruction.last_line)


def global_args(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """The ARGs before the first FROM."""
    first = next((at for at, one in enumerate(instructions) if isinstance(one.view, From)), len(instructions))
    return instructions[:first]


def stages(instructions: tuple[Instruction, ...]) -> tuple[Stage, ...]:
    """The build stages in order; the last is the one that is built where none is named."""
    starts = [at for at, one in enumerate(instructions) if isinstance(one.view, From)]
    ends = [*starts[1:], len(instructions)]
    return tuple(
        Stage(index, _alias(instructions[start]), instructions[start], instructions[start + 1 : end])
        for index, (start, end) in enumerate(zip(starts, ends, strict=True))
    )


def _alias(instruction: Instruction) -> str:
    return instruction.view.alias if isinstance(instruction.view, From) else ""


def _instruction(source: Source, logical: LogicalLine, file: str, before: Instruction | None) -> Instruction:
    written, flag_words, rest = split_instruction(logical.text)
    keyword = written.upper()
    if keyword not in READERS:
        raise DockerfileError(_unknown(written, keyword, before))
    flags = Flags({}) if keyword == "STOPSIGNAL" else read_flags(keyword, flag_words)
    words, is_json = read_words(keyword, rest, source.escape)
    heredocs = _heredocs(source, logical.text, keyword, rest, is_json)
    request = Request(keyword, rest, flags, source.escape, words, is_json, heredocs)
    return Instruction(
        keyword=keyword,
        line=logical.line,
        last_line=source.last_line,
        flags=flags.last(),
        form="exec" if is_json else "shell",
        words=words,
        heredocs=heredocs,
        text=source.original(logical.line, source.last_line),
        view=read_view(request),
        escape=source.escape,
        file=file,
    )


def _heredocs(source: Source, line: str, keyword: str, rest: str, is_json: bool) -> tuple[Heredoc, ...]:
    """Heredocs of RUN, COPY and ADD, also behind ONBUILD; a JSON array has none."""
    if keyword == "ONBUILD":
        inner, _, inner_rest = split_instruction(rest)
        keyword, is_json = inner.upper(), json_strings(inner_rest) is not None
    if keyword not in ("RUN", "COPY", "ADD") or is_json:
        return ()
    found: list[Heredoc] = []
    for heredoc in heredocs_of(line):
        if heredoc.spaced and not source.has_ahead(heredoc.name):
            continue  # a shift such as $((1 << 3)), as Docker read it before it allowed the blank
        body = source.heredoc(heredoc.name, heredoc.strip_tabs)
        if body is None:
            hint = "" if heredoc.name[-1:].isalnum() else "; put a blank after its delimiter"
            raise DockerfileError(f"the heredoc is not ended by a line {shown(heredoc.name)}{hint}")
        found.append(replace(heredoc, body=body))
    return tuple(found)


def _unknown(written: str, keyword: str, before: Instruction | None) -> str:
    if not written:
        return "a line ends in the escape character and nothing follows it"
    problem = f"unknown instruction {shown(written)}"
    if before is not None and not before.heredocs and _SPACED_HEREDOC.search(before.text):
        return f"{problem}; Docker takes <<- for a heredoc only without a space after it, as in <<-EOF"
    close = get_close_matches(keyword[:20], READERS, n=1, cutoff=0.5)
    return f"{problem}; did you mean {close[0]}?" if close else problem
