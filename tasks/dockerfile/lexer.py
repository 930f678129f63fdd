"""Quotes, escapes and variables in a word, by the rules of BuildKit's lexer.

`expand` gives a word its value; `split_raw` cuts a line into words that keep their quotes and variables,
which is how heredocs are found. Anything wrong raises DockerfileError without a place.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks.dockerfile.errors import DockerfileError, shown
from tasks.dockerfile.pattern import substitute, trim
from tasks.dockerfile.source import SPACE

_SPECIAL_PARAMETERS = "@*#?-$!0"
_MAX_DEPTH = 40
"""Nested `${a:-${b:-…}}`: far more than anyone writes, few enough for Python's stack."""


def expand(value: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """A word with its variables replaced, and its quotes and escapes taken away; unset ones are empty."""
    return _lexed(_Lexer(value, variables, escape=escape), value)


def expand_heredoc(body: str, variables: Mapping[str, str]) -> str:
    """A heredoc's body with its variables replaced; quotes stay, and the escape is always a backslash."""
    return _lexed(_Lexer(body, variables, quotes=False), body)


def split_raw(line: str, raw_quotes: bool = True, raw_escapes: bool = True) -> list[str]:
    """The words of a line with variables left alone, and quotes and escapes too where asked for."""
    lexer = _Lexer(line, None, raw_quotes=raw_quotes, raw_escapes=raw_escapes)
    lexer.read()
    return lexer.words


def _lexed(lexer: _Lexer, text: str) -> str:
    try:
        return lexer.read()
    except DockerfileError as error:
        raise DockerfileError(f"{error.problem} in {shown(text)}") from None


class _Lexer:
    def __init__(
        self,
        text: str,
        variables: Mapping[str, str] | None,
        escape: str = "\\",
        quotes: bool = True,
        raw_quotes: bool = False,
        raw_escapes: bool = False,
    ) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._variables = variables
        self._escape = escape
        self._quotes = quotes
        self._raw_quotes = raw_quotes
        self._raw_escapes = raw_escapes
        self.words: list[str] = []
        """Words of the whole text, once it was read."""

    def read(self) -> str:
        return self._until(None, self._raw_escapes)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        self._at += len(char)
        return char

    def _until(self, stop: str | None, raw_escapes: bool) -> str:
        before, self._raw_escapes = self._raw_escapes, raw_escapes
        result: list[str] = []
        words: list[str] = []
        word: list[str] = []

        def add(text: str) -> None:
            for char in text:
                if char not in SPACE:
                    word.append(char)
                elif word:
                    words.append("".join(word))
                    word.clear()

        while char := self._peek():
            if char == stop:
                self._take()
                break
            if char == "$":
                value = self._dollar()
                add(value)
            elif self._quotes and char in "'\"":
                value = self._single_quoted() if char == "'" else self._double_quoted()
                word.extend(value)
            elif char == self._escape:
                self._take()
                escaped = self._take()
                value = (char if raw_escapes else "") + escaped
                word.extend(value)
            elif char == "<":
                value = self._redirection()
                word.extend(value)
            else:
                value = self._take()
                add(value)
            result.append(value)
        else:
            if stop is not None:
                raise DockerfileError(f"no {shown(stop)} ends a substitution")
        self._raw_escapes = before
        if word:
            words.append("".join(word))
        self.words = words
        return "".join(result)

    def _redirection(self) -> str:
        """`<`, or `<<` with the blanks after it, which do not part it from a heredoc's delimiter."""
        start = self._at
        self._take()
        if self._peek() == "<":
            self._take()
            while (char := self._peek()) and char in " \t\r":
                self._take()
        return self._text[start : self._at]

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise DockerfileError("a single quote is not closed")
        start, self._at = self._at, end + 1
        return self._text[start : end + 1] if self._raw_quotes else self._text[start + 1 : end]

    def _double_quoted(self) -> str:
        mark = self._take()
        quote = mark if self._raw_quotes else ""
        result = [quote]
        while char := self._peek():
            if char == "$":
                result.append(self._dollar())
                continue
            self._take()
            if char == '"':
                return "".join(result) + quote
            if char == self._escape:
                following = self._peek()
                if self._raw_escapes:
                    result.append(char)
                if not following:
                    break
                if following in ('"', "$", self._escape):
                    char = self._take()
            result.append(char)
        raise DockerfileError("a double quote is not closed")

    def _value(self, name: str) -> str | None:
        return None if self._variables is None else self._variables.get(name)

    def _dollar(self) -> str:
        self._take()
        if self._peek() != "{":
            name = self._name()
            if not name:
                return "$"
            return f"${name}" if self._variables is None else self._value(name) or ""
        self._take()
        if self._peek() in ("", "{", "}", ":"):
            raise DockerfileError("a ${…} has no name, or no end")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DockerfileError(f"substitutions are nested more than {_MAX_DEPTH} deep")
        result = self._substitution(self._name())
        self._depth -= 1
        return result

    def _name(self) -> str:
        start, first = self._at, self._peek()
        if first.isdecimal():
            while self._peek().isdecimal():
                self._at += 1
        elif first and first in _SPECIAL_PARAMETERS:
            self._at += 1
        else:
            while (char := self._peek()) and (char.isalpha() or char.isdecimal() or char == "_"):
                self._at += 1
        return self._text[start : self._at]

    def _substitution(self, name: str) -> str:
        """What follows the name in `${name…}`."""
        operator = self._take()
        value = self._value(name)
        keep = self._variables is None
        if operator == "}":
            return f"${{{name}}}" if keep else value or ""
        if operator == "/":
            return self._replacement(name, value)
        colon = operator == ":"
        kind = self._take() if colon else operator
        if not colon and kind not in ("+", "-", "?", "#", "%"):
            raise DockerfileError(f"${{{name}{kind}…}} is not a substitution Docker knows")
        word = self._until("}", kind in ("#", "%"))
        if keep:
            return f"${{{name}{':' * colon}{kind}{word}}}"
        missing = value is None or (colon and not value)
        if kind == "-":
            return word if missing else value or ""
        if kind == "+":
            return "" if missing else word
        if kind == "?":
            if missing:
                empty = "is not allowed to be empty" if value is not None else "is not allowed to be unset"
                raise DockerfileError(f"{name}: {word or empty}")
            return value or ""
        if kind not in ("#", "%"):
            raise DockerfileError(f"${{{name}:{kind}…}} is not a substitution Docker knows")
        longest = word.startswith(kind)
        return trim(word[longest:], value or "", suffix=kind == "%", longest=longest)

    def _replacement(self, name: str, value: str | None) -> str:
        every = self._peek() == "/"
        if every:
            self._take()
        pattern = self._until("/", True)
        replacement = self._until("}", True)
        if self._variables is None:
            return f"${{{name}/{pattern}/{replacement}}}"
        return substitute(pattern, replacement, value or "", every)
