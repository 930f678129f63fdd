"""Heredocs: `<<EOF`, `<< EOF`, `<<-EOF`, `<<'EOF'`, with a file descriptor in front of them or not.

A word is a heredoc by BuildKit's rule (0.22 and later), not the shell's: it stands for itself (`cat<<EOF`
and `<<- EOF` are none), and everything up to the next white space belongs to its delimiter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.dockerfile.errors import DockerfileError
from tasks.dockerfile.lexer import split_raw

_WORD = re.compile(r"([0-9]*)<<(-?)([\t\n\f\r ]*)([^<]*)", re.DOTALL)
_TABS = re.compile(r"^\t+", re.MULTILINE)


@dataclass(frozen=True)
class Heredoc:
    """A document inside the file; `body` is exactly its lines, tabs included."""

    name: str
    """The delimiter without quotes."""
    body: str
    expand: bool
    """Variables are replaced in it: its delimiter is not quoted."""
    strip_tabs: bool
    """Written with `<<-`."""
    descriptor: int = 0
    spaced: bool = False
    """Written with a blank after `<<`, which older versions of Docker do not read as a heredoc."""

    @property
    def content(self) -> str:
        """The body as a reader of the document sees it, before variables are replaced."""
        return _TABS.sub("", self.body) if self.strip_tabs else self.body


def heredoc_word(word: str) -> Heredoc | None:
    """The heredoc that a whole word announces, its body still empty."""
    match = _WORD.fullmatch(word)
    if match is None or not match[4]:
        return None
    plain = split_raw(match[4], raw_quotes=False, raw_escapes=False)
    if len(plain) != 1:
        return None
    raw = split_raw(match[4], raw_escapes=False)
    expand = _quotes(plain[0]) == _quotes("".join(raw))
    descriptor = int(match[1][-9:] or "0")
    return Heredoc(plain[0], "", expand, match[2] == "-", descriptor, bool(match[3]))


def heredoc_argument(word: str) -> Heredoc | None:
    """The same of a word in an instruction's arguments, where bad quotes only mean that it is none."""
    try:
        return heredoc_word(word)
    except DockerfileError:
        return None


def heredocs_of(line: str) -> list[Heredoc]:
    """Heredocs that an instruction's line announces, in order; none if its quotes do not close."""
    if "<<" not in line:
        return []
    try:
        words = split_raw(line)
    except DockerfileError:
        return []
    return [heredoc for word in words if (heredoc := heredoc_word(word)) is not None]


def _quotes(text: str) -> int:
    return text.count("'") + text.count('"')
