"""Lines of a Dockerfile: what is left after directives, comments and continuations.

Follows BuildKit: a comment or an empty line inside a continuation is skipped and does not end it; an
escape character that is itself escaped does not continue a line; a heredoc's body is read exactly as it
stands, line endings included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.dockerfile.errors import DockerfileError, shown

SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
SPACE += "\u2028\u2029\u202f\u205f\u3000"
"""Unicode's white space, which is not what `str.isspace` holds for it."""

_DIRECTIVE = re.compile(r"#[\t\n\f\r ]*([a-zA-Z][a-zA-Z0-9]*)[\t\n\f\r ]*=(.*)", re.DOTALL)
_DIRECTIVES = ("escape", "syntax", "check")


@dataclass(frozen=True)
class LogicalLine:
    """One instruction with its continuations joined; lines are counted from 1."""

    text: str
    line: int


class Source:
    """Reads a Dockerfile from its first line to its last; `escape` is known once a line was read."""

    def __init__(self, text: str) -> None:
        parts = text.removeprefix("\ufeff").split("\n")
        self._lines = [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
        self._directives: set[str] | None = set()
        self._last: dict[str, int] | None = None
        self.escape = "\\"
        self.last_line = 0
        """Number of the line read last, 0 before the first."""

    def original(self, first: int, last: int) -> str:
        """The file's own text from one line to another, both included."""
        return "".join(self._lines[first - 1 : last])

    def next(self) -> LogicalLine | None:
        """The next instruction's text, None at the end of the file."""
        while (raw := self._read()) is not None:
            stripped = raw.rstrip("\r\n").lstrip(SPACE)
            self._note_directive(stripped)
            part, continues = self._continuation("" if stripped.startswith("#") else stripped)
            if not part and not continues:
                continue
            line, parts = self.last_line, [part]
            while continues and (raw := self._read()) is not None:
                content = raw.lstrip(SPACE)
                if not content or content.startswith("#"):
                    continue
                part, continues = self._continuation(raw.rstrip("\r\n"))
                parts.append(part)
            return LogicalLine("".join(parts), line)
        return None

    def heredoc(self, delimiter: str, strip_tabs: bool) -> str | None:
        """The lines up to the delimiter's, which is read too; None if the file ends before it."""
        body: list[str] = []
        while (raw := self._read()) is not None:
            end = raw.rstrip("\r\n")
            if (end.lstrip("\t") if strip_tabs else end) == delimiter:
                return "".join(body)
            body.append(raw)
        return None

    def has_ahead(self, delimiter: str) -> bool:
        """Whether a line that is still to be read is this one, tabs before it aside."""
        if self._last is None:
            # One table for all heredocs: looking ahead from each would take quadratic time.
            self._last = {}
            for number, line in enumerate(self._lines, start=1):
                self._last[line.strip("\t\r\n")] = number
        return self._last.get(delimiter.strip("\t\r\n"), 0) > self.last_line

    def _read(self) -> str | None:
        if self.last_line == len(self._lines):
            return None
        self.last_line += 1
        return self._lines[self.last_line - 1]

    def _continuation(self, line: str) -> tuple[str, bool]:
        end = line.rstrip("\t ")
        if end.endswith(self.escape) and not end.endswith(self.escape * 2):
            return end[:-1], True
        return line, False

    def _note_directive(self, line: str) -> None:
        """Directives come before everything else, each at most once."""
        if self._directives is None:
            return
        match = _DIRECTIVE.match(line)
        name, value = (match[1].lower(), match[2].strip("\t\n\f\r ")) if match else ("", "")
        if name not in _DIRECTIVES or not value:
            self._directives = None
            return
        if name in self._directives:
            raise DockerfileError(f"the directive {name} is given twice; keep one")
        self._directives.add(name)
        if name == "escape":
            if value not in ("\\", "`"):
                raise DockerfileError(f"the escape character is {shown(value)}; it must be \\ or `")
            self.escape = value
