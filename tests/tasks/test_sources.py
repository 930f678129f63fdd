"""Sources of tasks: which ids they give, and that each id leads to its task or to one clear sentence."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tasks.families import ALL_FAMILIES
from tasks.sources import FamilySource, FolderSource, IndexSource, open_source
from tasks.task import TaskError, UnknownTask
from tests.tasks.harbor_tasks import FILES, make


def jsonl(file: Path, rows: Iterable[Any]) -> Path:
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def parquet(file: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(itertools.chain(*rows))}
    pyarrow.parquet.write_table(pyarrow.table(columns), file, **options)
    return file


INLINE = {
    "instruction": "Do it.",
    "dockerfile": "FROM debian:12\nCOPY data.txt /\n",
    "test_sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
    "files": {"environment/data.txt": "größe\n", "tests/help.sh": "true\n"},
}


def test_families_have_a_task_for_every_seed(tmp_path: Path) -> None:
    source = FamilySource(tmp_path / "cache")
    ids = list(itertools.islice(source.ids(), len(ALL_FAMILIES) + 1))
    assert ids == [*(f"{name}/0" for name in ALL_FAMILIES), f"{next(iter(ALL_FAMILIES))}/1"]
    assert not hasattr(source, "__len__")
    assert not (tmp_path / "cache").exists()
    assert source.load("log_count/1000003").id == "log_count/1000003"
    assert source.path("log_count/1000003") == tmp_path / "cache" / "log_count" / "1000003"


def test_some_families_from_a_seed_on(tmp_path: Path) -> None:
    source = FamilySource(tmp_path, ["log_count"], first_seed=7)
    assert list(itertools.islice(source.ids(), 2)) == ["log_count/7", "log_count/8"]
    with pytest.raises(UnknownTask, match="there is no task 'csv_edit/1'"):
        source.load("csv_edit/1")
    with pytest.raises(TaskError, match="there is no family 'none'"):
        FamilySource(tmp_path, ["none"])


def test_a_familys_task_is_written_once_whoever_asks(tmp_path: Path) -> None:
    source = FamilySource(tmp_path)
    first = source.path("log_count/3").stat().st_ino
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(source.path, ["log_count/3"] * 8))
    assert {path.stat().st_ino for path in paths} == {first}


def test_a_folder_of_tasks_and_of_sets(tmp_path: Path) -> None:
    for name in ("b", "a", "set/x", "set/y", ".hidden/x"):
        make(tmp_path / name)
    make(tmp_path / "no-toml", {"task.toml": None})
    for name in ("no-text", "set/z"):
        make(tmp_path / name, {"task.toml": None, "instruction.md": None})
    (tmp_path / "assets" / "images").mkdir(parents=True)
    (tmp_path / "README.md").touch()
    source = FolderSource(tmp_path)
    assert list(source.ids()) == ["a", "b", "no-text", "no-toml", "set/x", "set/y", "set/z"]
    assert len(source) == 7
    assert (source.load("a").id, source.load("set/y").id, source.load("set/y").family) == (
        "a",
        "set/y",
        "set",
    )
    with pytest.raises(TaskError, match=r"no-toml/task.toml is missing"):
        source.load("no-toml")
    for unknown in ("c", "set", "../a", "set/../a", ""):
        with pytest.raises(UnknownTask):
            source.path(unknown)


def test_a_set_may_have_files_of_its_own(tmp_path: Path) -> None:
    make(tmp_path / "set" / "x")
    (tmp_path / "set" / "tests").mkdir()
    assert list(FolderSource(tmp_path).ids()) == ["set/x"]


def test_one_task_directory_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "only")
    assert list(FolderSource(path).ids()) == ["only"]
    monkeypatch.chdir(path)
    assert FolderSource(Path()).load("only").id == "only"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_index_of_each_kind_of_row(kind: str, tmp_path: Path) -> None:
    make(tmp_path / "tasks" / "x")
    rows = [
        {"id": "mine", "path": "tasks/x"},
        {"path": "tasks/x"},
        {"family": "log_count", "seed": 5},
        {"id": "inline", **INLINE, "files": json.dumps(INLINE["files"])},
    ]
    file = jsonl(tmp_path / "i.jsonl", [*rows[:2], "", *rows[2:]])
    if kind == "parquet":
        file = parquet(tmp_path / "i.parquet", rows, row_group_size=3)
    source = IndexSource(file, tmp_path / "cache")
    assert list(source.ids()) == ["mine", "tasks/x", "log_count/5", "inline"]
    assert len(source) == 4
    loaded = {task_id: source.load(task_id) for task_id in reversed(list(source.ids()))}
    assert all(task.id == task_id for task_id, task in loaded.items())
    assert loaded["mine"].path == tmp_path / "tasks/x"
    assert loaded["log_count/5"].family == "log_count"
    assert loaded["inline"].instruction == "Do it."


def test_inline_tasks_are_written_by_their_content(tmp_path: Path) -> None:
    other = {**INLINE, "instruction": "Do more.", "task_toml": "[agent]\ntimeout_sec = 5\n"}
    rows = [{"id": "a", **INLINE}, {"id": "b", **INLINE}, other]
    source = IndexSource(jsonl(tmp_path / "web.jsonl", rows), tmp_path / "cache")
    assert list(source.ids()) == ["a", "b", "web/2"]
    path = source.path("a")
    assert path.parent == tmp_path / "cache" / "inline" / "web"
    assert source.path("b") == path != source.path("web/2")
    assert (path / "environment/data.txt").read_text() == "größe\n"
    assert [(path / f"tests/{name}.sh").stat().st_mode & 0o777 for name in ("test", "help")] == [0o755, 0o755]
    assert (source.load("a").agent_timeout_s, source.load("web/2").agent_timeout_s) == (600.0, 5.0)
    again = IndexSource(tmp_path / "web.jsonl", tmp_path / "cache")
    assert again.path("a") == path
    assert sorted(p.name for p in path.parent.iterdir()) == sorted({path.name, source.path("web/2").name})


FILE_FORMS: list[Any] = [
    {"tests/data": "x"},
    '{"tests/data": "x"}',
    [["tests/data", "x"]],
    [{"name": "tests/data", "content": "x"}],
    [{"path": "./tests/data", "text": "x"}],
]


@pytest.mark.parametrize("files", FILE_FORMS)
def test_forms_of_a_rows_files(files: Any, tmp_path: Path) -> None:
    source = IndexSource(jsonl(tmp_path / "i.jsonl", [{**INLINE, "files": files}]), tmp_path / "cache")
    assert (source.path("i/0") / "tests/data").read_text() == "x"


def archive(top: str, extra: tarfile.TarInfo | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(top + name)
            member.size, member.mode = len(text.encode()), 0o755 if name == "tests/test.sh" else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
        if extra is not None:
            tar.addfile(extra)
    return buffer.getvalue()


@pytest.mark.parametrize("top", ["", "./", "task-7/"])
def test_tasks_in_archives(top: str, tmp_path: Path) -> None:
    link = tarfile.TarInfo(f"{top}tests/passwd")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    file = parquet(tmp_path / "data.parquet", [{"path": "task-7", "task_binary": archive(top, link)}])
    task = IndexSource(file, tmp_path / "cache").load("task-7")
    assert task.instruction.startswith("Make the file")
    assert not (task.tests / "passwd").is_symlink()
    assert (task.tests / "test.sh").stat().st_mode & 0o777 == 0o755


def long_archive() -> bytes:
    big = tarfile.TarInfo("big")
    big.size = 1 << 40
    return big.tobuf()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": "t"}, r"i\.jsonl:1: names no task: give path, or family and seed"),
        ({"id": "t", "path": "nowhere"}, r"nowhere is not a folder"),
        ({"id": "t", "family": "none", "seed": 1}, r"i\.jsonl:1: there is no task 'none/1'"),
        ({"id": "t", "family": "log_count", "seed": "../1"}, r"there is no task 'log_count/\.\./1'"),
        ({"id": "t", **INLINE, "files": {"../x": ""}}, r"the file '\.\./x' must lie below"),
        ({"id": "t", **INLINE, "files": {"/etc/x": ""}}, r"the file '/etc/x' must lie below"),
        ({"id": "t", **INLINE, "files": {"a\0b": ""}}, r"must lie below"),
        ({"id": "t", **INLINE, "files": {"a": 3}}, r"a must be text, not int"),
        ({"id": "t", **INLINE, "files": {"a": "\ud800"}}, r"a holds half a surrogate pair"),
        ({"id": "t", **INLINE, "files": "{"}, r"files is a text that is not JSON"),
        ({"id": "t", **INLINE, "files": [3]}, r"files must be a table of names and contents"),
        ({"id": "t", "instruction": 3}, r"instruction must be text, not int"),
        ({"id": "t", "task_binary": "x"}, r"task_binary must be bytes, not str"),
        ({"id": "t", **INLINE, "test_sh": None}, r"tests/test.sh is missing"),
        ({"id": "t", "instruction": "Do it."}, r"tests/test.sh is missing"),
    ],
)
def test_rows_that_hold_no_usable_task(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    source = IndexSource(jsonl(tmp_path / "i.jsonl", [row]), tmp_path / "cache")
    with pytest.raises(TaskError, match=says) as error:
        source.load("t")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"no archive", "task_binary is not a tar archive"), (long_archive(), "unpacks to more than 1024 MB")],
)
def test_archives_that_are_none(data: bytes, says: str, tmp_path: Path) -> None:
    source = IndexSource(parquet(tmp_path / "i.parquet", [{"id": "t", "task_binary": data}]), tmp_path / "c")
    with pytest.raises(TaskError, match=says):
        source.load("t")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "holds no rows"),
        (["{"], r"i\.jsonl:1 is not JSON"),
        (["[1]"], r"i\.jsonl:1 is not a JSON object"),
        (["", {"id": []}], r"i\.jsonl:2 has the id \[\]: it must be text"),
        ([{"id": "a", "path": "x"}, {"path": "a"}], r"jsonl:2 has the id 'a', as has .*jsonl:1: change one"),
    ],
)
def test_indexes_that_cannot_be_read(rows: list[Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=says):
        IndexSource(jsonl(tmp_path / "i.jsonl", rows), tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = IndexSource(jsonl(tmp_path / "i.jsonl", [INLINE]), tmp_path / "file")
    with pytest.raises(TaskError, match=r"i/0 cannot be written to .*file \(Not a directory\)"):
        source.load("i/0")


def test_open_source_knows_words_and_paths(tmp_path: Path) -> None:
    make(tmp_path / "families" / "x")
    index = jsonl(tmp_path / "i.jsonl", [INLINE])
    cache = tmp_path / "cache"
    assert isinstance(open_source("families", cache), FamilySource)
    assert next(open_source("family:csv_edit", cache).ids()) == "csv_edit/0"
    assert isinstance(open_source(tmp_path / "families", cache), FolderSource)
    assert isinstance(open_source(str(index), cache), IndexSource)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", r"there is no .*nowhere: name a folder of tasks"),
        ("file.txt", r"file\.txt is not a source of tasks: name a folder"),
        ("bad.parquet", r"bad\.parquet cannot be read as Parquet"),
        ("empty", r"empty holds no task directories"),
    ],
)
def test_what_is_no_source(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").touch()
    (tmp_path / "bad.parquet").write_text("no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match=says):
        open_source(tmp_path / name, tmp_path / "cache")
    with pytest.raises(TaskError, match="there is no family 'none'"):
        open_source("family:none", tmp_path / "cache")
