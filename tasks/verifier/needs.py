"""What a `tests/test.sh` would download, read from its text without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tasks.verifier.runner import RunnerNeeds

ALWAYS = ("pytest==8.4.1", "pytest-json-ctrf==0.3.5")
"""Packages for a test.sh that fetches a runner and names none."""
_PYTEST = re.compile(r"pytest(?![A-Za-z0-9_-])", re.IGNORECASE)
_VERSION = r"[=<>!~]=?=?[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]*\])?({_VERSION}(,{_VERSION})*)?")
_FILE = re.compile(r"\.(whl|zip|gz|bz2|xz|py|toml|txt|sh)$")
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_DIGITS = ".0123456789"
_REDIRECTION = re.compile(r"(?<=\s)\d?&?(>{1,2}|<)&?\s*[^\s;|&<>=]+")
_PROGRAM = re.compile(r"uvx?|pipx?|pip\d(\.\d+)?|apt(-get)?|python(\d(\.\d+)?)?")
_OURS = {"pip", "uv", "setuptools", "wheel", "pipx"}
"""The stand-ins are those."""
_WITH = {"-w", "--with", "--from", "--spec"}
_REQUIREMENTS = {"-r", "--requirement", "--requirements", "--with-requirements"}
_VALUED = {
    *("-p", "--python", "-i", "--index", "--index-url", "--extra-index-url", "-t", "--target", "--prefix"),
    *(
        "-c",
        "--constraint",
        "--project",
        "--directory",
        "--extra",
        "--group",
        "--env-file",
        "-e",
        "--editable",
    ),
    *("--with-editable", "--pip-args"),
}
_SCRIPT = re.compile(r"(?m)^# /// script\s*$(?P<text>(?:\n#.*)*?)\n# ///\s*$")
_DEPENDENCIES = re.compile(r"dependencies\s*=\s*\[(?P<list>[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]")


def needs(test_sh: str, tests: Path | None = None) -> RunnerNeeds | None:
    """What a test.sh fetches for itself, None if nothing; `tests` is its folder."""
    found = _Found(tests)
    for words in _commands(test_sh):
        found.read(words)
    if not found.fetches:
        return None
    packages = _distinct(found.packages)
    if not packages and not found.python:
        return RunnerNeeds(())
    packages = packages or list(ALWAYS)
    if not any(_PYTEST.match(package) for package in packages):
        packages.append(ALWAYS[0])
    return RunnerNeeds(tuple(packages))


@dataclass
class _Found:
    tests: Path | None
    fetches: bool = False
    python: bool = False
    """Whether packages of Python are among it, named or not."""
    packages: list[str] = field(default_factory=list)

    def read(self, words: list[str]) -> None:
        """One command."""
        at = next((at for at, word in enumerate(words) if _PROGRAM.fullmatch(_base(word))), None)
        if at is None:
            return
        program, *rest = _base(words[at]), *words[at + 1 :]
        if _PYTHON.fullmatch(program):
            if rest[:2] == ["-m", "pip"]:
                self.packages += ["pip"] if rest[2:3] == ["install"] else []
                program, rest = "pip", rest[2:]
            else:
                return
        match [program.rstrip(_DIGITS), *rest]:
            case ["apt" | "apt-get", *arguments] if "install" in arguments:
                self.fetches = True
                if "python3-pytest" in arguments:
                    self.python = True
            case (
                ["pip", "install", *arguments]
                | ["uv", "pip", "install", *arguments]
                | ["uv", "add", *arguments]
            ):
                self._install(arguments)
            case ["pipx", "install" | "inject", *arguments] | ["uv", "tool", "install", *arguments]:
                self._install(arguments)
            case ["uvx", *arguments] | ["uv", "tool", "run", *arguments] | ["pipx", "run", *arguments]:
                self._run(arguments, of_package=True)
            case ["uv", "run", *arguments]:
                self._run(arguments, of_package=False)

    def _install(self, words: list[str]) -> None:
        self.fetches = self.python = True
        rest = iter(words)
        for word in rest:
            if not self._option(word, rest):
                self._package(word)

    def _run(self, words: list[str], of_package: bool) -> None:
        """`of_package`: the program comes with the package of its name, unless --from says which."""
        self.fetches = self.python = True
        rest = iter(words)
        for word in rest:
            if word.partition("=")[0] in ("--from", "--spec"):
                of_package = False
            if word in ("-m", "--module"):
                break
            if not self._option(word, rest):
                name, _, version = word.partition("@")
                if of_package and not _PYTHON.fullmatch(name):
                    self._package(f"{name}=={version}" if version and version != "latest" else name)
                self._script(word)
                break

    def _option(self, word: str, rest: Iterator[str]) -> bool:
        """Whether it is one; then its value is taken too."""
        if not word.startswith("-"):
            return False
        option, equals, value = word.partition("=")
        if option in (_WITH | _REQUIREMENTS | _VALUED) and not equals:
            value = next(rest, "")
        if option in _WITH:
            for each in re.split(r",(?![<>=!~])", value):
                self._package(each)
        elif option in _REQUIREMENTS:
            for line in self._text(value).splitlines():
                self._package(line.partition("#")[0])
        return True

    def _script(self, name: str) -> None:
        """Packages that a Python script of the tests names at its beginning."""
        if name.endswith(".py") and (script := _SCRIPT.search(self._text(name))):
            text = script["text"].replace("\n#", "\n")
            if (named := _DEPENDENCIES.search(text)) is not None:
                for each in re.findall(r"[\"']([^\"']+)[\"']", named["list"]):
                    self._package(each)

    def _package(self, word: str) -> None:
        name = re.sub(r"\s", "", word.partition(";")[0])
        if _REQUIREMENT.fullmatch(name) and not _FILE.search(name) and _bare(name) not in _OURS:
            self.packages.append(name)

    def _text(self, name: str) -> str:
        """Of a file of the tests; empty if it is none."""
        if self.tests is None:
            return ""
        try:
            file = (self.tests / name.removeprefix("/tests/")).resolve()
            return file.read_text(errors="replace") if file.is_relative_to(self.tests.resolve()) else ""
        except OSError:
            return ""


def _distinct(packages: list[str]) -> list[str]:
    """One requirement of each name, with a version if one has that."""
    names: dict[str, str] = {}
    for package in packages:
        name = re.sub("[-_.]+", "-", _bare(package))
        if name not in names or names[name] == _bare(names[name]):
            names[name] = package
    return list(names.values())


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _bare(requirement: str) -> str:
    return re.split(r"[\[=<>!~]", requirement, maxsplit=1)[0].lower()


def _commands(text: str) -> Iterator[list[str]]:
    """Words of each simple command, as far as they can be told without running it."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        lexer = shlex.shlex(_REDIRECTION.sub("", line), posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        try:
            for word in lexer:
                if set(word) <= set(";&|()"):
                    yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:
            pass  # an unfinished quote: what came before it counts
        yield words
