"""The built-in task families, by name. A new family is one file and one line here."""

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
from tasks.families.sum_column import SumColumn
from tasks.families.text_slice import TextSlice

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
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}

__all__ = ["EVAL_SEED", "FAMILIES", "Expert", "Family", "GeneratedTask", "Step"]
