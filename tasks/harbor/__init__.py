"""Task directories in the Harbor format: read one, check one, write a generated one."""

from __future__ import annotations

from tasks.harbor.check import check
from tasks.harbor.env import resolve_env
from tasks.harbor.problem import Problem, printable
from tasks.harbor.reader import load_task, read_task
from tasks.harbor.writer import write_task

__all__ = ["Problem", "check", "load_task", "printable", "read_task", "resolve_env", "write_task"]
