"""The error of a Dockerfile: one sentence with the file's name and the line of the instruction."""

from __future__ import annotations

from tasks.task import TaskError


class DockerfileError(TaskError):
    """A Dockerfile that Docker would reject; `line` is 0 where the text stands for itself."""

    def __init__(self, problem: str, file: str = "", line: int = 0) -> None:
        super().__init__(f"{file} line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line

    def at(self, file: str, line: int) -> DockerfileError:
        """The same problem with its place, kept as it is where it has one."""
        return self if self.line else DockerfileError(self.problem, file, line)


def shown(text: str) -> str:
    """Text from the file as it may stand in a message: quoted, on one line, short."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
