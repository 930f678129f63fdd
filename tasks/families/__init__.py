"""The built-in task families, by name. A new family is one file and one line here.

`FAMILIES` are those that the shipped models know; `SLOW_FAMILIES` have tools that take seconds.
"""

from __future__ import annotations

from tasks.families.archive import Archive
from tasks.families.base import EVAL_SEED, Expert, Family, GeneratedTask, Step
from tasks.families.config_repair import ConfigRepair
from tasks.families.csv_edit import CsvEdit
from tasks.families.env_mode import EnvMode
from tasks.families.file_search import FileSearch
from tasks.families.git_branch import GitBranch
from tasks.families.git_history import GitHistory
from tasks.families.index_check import IndexCheck
from tasks.families.json_edit import JsonEdit
from tasks.families.log_count import LogCount
from tasks.families.move_files import MoveFiles
from tasks.families.permissions import Permissions
from tasks.families.script_fix import ScriptFix
from tasks.families.slow.compile import Compile
from tasks.families.slow.install import Install
from tasks.families.slow.service import Service
from tasks.families.slow.test_suite import TestSuite
from tasks.families.sum_column import SumColumn
from tasks.families.text_slice import TextSlice
from tasks.task import TaskError

_ALL: tuple[Family, ...] = (
    Archive(),
    ConfigRepair(),
    CsvEdit(),
    EnvMode(),
    FileSearch(),
    GitBranch(),
    GitHistory(),
    IndexCheck(),
    JsonEdit(),
    LogCount(),
    MoveFiles(),
    Permissions(),
    ScriptFix(),
    SumColumn(),
    TextSlice(),
)
FAMILIES: dict[str, Family] = {each.name: each for each in _ALL}
_SLOW: tuple[Family, ...] = (Compile(), Install(), Service(), TestSuite())
SLOW_FAMILIES: dict[str, Family] = {each.name: each for each in _SLOW}
ALL_FAMILIES: dict[str, Family] = FAMILIES | SLOW_FAMILIES


def family(name: str) -> Family:
    """The family of that name, slow or not. Raises TaskError."""
    if name not in ALL_FAMILIES:
        raise TaskError(f"there is no family {name!r}: the families are {', '.join(ALL_FAMILIES)}")
    return ALL_FAMILIES[name]


__all__ = [
    "ALL_FAMILIES",
    "EVAL_SEED",
    "FAMILIES",
    "SLOW_FAMILIES",
    "Expert",
    "Family",
    "GeneratedTask",
    "Step",
    "family",
]
