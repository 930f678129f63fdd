"""Where tasks come from, behind one protocol: `open_source` makes the source that a word or a path names."""

from __future__ import annotations

from pathlib import Path

from tasks.sources.base import TaskSource
from tasks.sources.families import FamilySource
from tasks.sources.folder import FolderSource
from tasks.sources.index import IndexSource
from tasks.task import TaskError

__all__ = ["FamilySource", "FolderSource", "IndexSource", "TaskSource", "open_source"]

_INDEXES = {".jsonl", ".parquet"}


def open_source(spec: str | Path, cache: Path) -> TaskSource:
    """`families`, `family:NAME`, a folder of task directories, or a .jsonl or .parquet index.

    A Path is never taken for one of the words. Raises TaskError.
    """
    if isinstance(spec, str):
        if spec == "families":
            return FamilySource(cache)
        if spec.startswith("family:"):
            return FamilySource(cache, [spec.removeprefix("family:")])
    path = Path(spec)
    if path.is_dir():
        return FolderSource(path)
    if path.is_file() and path.suffix in _INDEXES:
        return IndexSource(path, cache)
    problem = f"{path} is not a source of tasks" if path.exists() else f"there is no {path}"
    kinds = "a folder of tasks, a .jsonl or .parquet index, families, or family:NAME"
    raise TaskError(f"{problem}: name {kinds}")
