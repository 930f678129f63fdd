"""What COPY and ADD take from a folder: sources, wildcards, .dockerignore, archives, and no way out of it."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from tasks.environments.context import Archive, Context, ContextError, Owner, add_sources, needs_folder
from tasks.environments.ignore import IgnoreRules

FILES = ("a.txt", "b.txt", "c.log", "sub/d.txt", "sub/deep/e.txt", ".hidden", "with space.txt", "[x].txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "sub/empty").mkdir()
    return tmp_path


def packed(
    folder: Path, *sources: str, to: str = "/to/", unpack: bool = False, chmod: int | None = None
) -> dict[str, tarfile.TarInfo]:
    archive = Archive(Owner(7, 8), chmod)
    add_sources(Context(folder), sources, to, archive, unpack)
    with tarfile.open(fileobj=io.BytesIO(archive.data())) as tar:
        return {member.name: member for member in tar}


def ignored(tmp_path: Path, text: str, *names: str) -> list[str]:
    (tmp_path / ".dockerignore").write_text(text)
    rules = IgnoreRules(tmp_path / ".dockerignore")
    return [name for name in names if rules.ignores(name)]


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["a.txt"], ["to/a.txt"]),
        (["./a.txt", "/b.txt"], ["to/a.txt", "to/b.txt"]),
        (["*.txt"], ["to/[x].txt", "to/a.txt", "to/b.txt", "to/with space.txt"]),
        (["?.log"], ["to/c.log"]),
        (["[ab].txt"], ["to/a.txt", "to/b.txt"]),
        (["[[]x].txt"], ["to/[x].txt"]),
        (["sub"], ["to/d.txt", "to/deep", "to/empty", "to/deep/e.txt"]),
        (["sub/", "a.txt"], ["to/d.txt", "to/deep", "to/empty", "to/deep/e.txt", "to/a.txt"]),
        (["sub/*"], ["to/d.txt", "to/e.txt"]),
        (["../../a.txt"], ["to/a.txt"]),
        ([".hidden"], ["to/.hidden"]),
    ],
)
def test_sources_name_files_of_the_context(folder: Path, sources: list[str], names: list[str]) -> None:
    assert list(packed(folder, *sources)) == names


def test_a_folder_is_its_content_and_the_whole_context_is_one(folder: Path) -> None:
    found = packed(folder, ".", to="/to")
    assert {"to/.hidden", "to/sub", "to/sub/empty", "to/sub/deep/e.txt"} <= set(found)


def test_a_single_file_may_get_another_name(folder: Path) -> None:
    assert list(packed(folder, "a.txt", to="/etc/name")) == ["etc/name"]


def test_equal_content_is_packed_equally_whatever_its_times_and_owners(folder: Path) -> None:
    os.utime(folder / "a.txt", (1, 1))
    (folder / "a.txt").chmod(0o600)
    (folder / "b.txt").chmod(0o700)
    found = packed(folder, "a.txt", "b.txt")
    assert {(info.mtime, info.uid, info.gid) for info in found.values()} == {(1_704_067_200, 7, 8)}
    assert [info.mode for info in found.values()] == [0o644, 0o755]
    assert packed(folder, "a.txt", chmod=0o4711)["to/a.txt"].mode == 0o4711


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("none.txt", "none.txt is not in"),
        ("*.none", r"\*.none is not in"),
        ("https://example.org/x", "would be downloaded: put the file into"),
        ("git@example.org:x/y", "would be downloaded: put the file into"),
        ("out", "out leads out of"),
        ("sub/up", "sub/up leads out of"),
        ("loose", "loose is a link to nothing"),
        ("pipe", "neither a file, a folder nor a link"),
    ],
)
def test_what_cannot_be_copied_is_a_sentence(folder: Path, source: str, sentence: str) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "sub/up").symlink_to("../..")
    (folder / "loose").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ContextError, match=sentence):
        packed(folder, source)


def test_links_inside_a_folder_stay_links_and_a_link_to_a_file_is_the_file(folder: Path) -> None:
    (folder / "sub/out").symlink_to("/etc/passwd")
    (folder / "sub/in").symlink_to("d.txt")
    (folder / "sub/folder").symlink_to("deep")
    found = packed(folder, "sub")
    assert [found[f"to/{name}"].linkname for name in ("out", "in", "folder")] == [
        "/etc/passwd",
        "d.txt",
        "deep",
    ]
    assert packed(folder, "sub/in")["to/in"].isreg()


def test_names_of_one_file_become_files_of_their_own(folder: Path) -> None:
    os.link(folder / "a.txt", folder / "z.txt")
    assert [info.size for info in packed(folder, "a.txt", "z.txt").values()] == [5, 5]


@pytest.mark.parametrize(
    ("sources", "unpack", "expected"),
    [
        (["a.txt"], True, False),
        (["*.log"], False, False),
        (["*.txt"], False, True),
        (["sub"], False, True),
        (["."], False, True),
        (["x.tar.gz"], False, False),
        (["x.tar.gz"], True, True),
    ],
)
def test_several_files_need_a_folder(folder: Path, sources: list[str], unpack: bool, expected: bool) -> None:
    archived(folder / "x.tar.gz", {"one": 0o644})
    assert needs_folder(Context(folder), tuple(sources), unpack) is expected


def archived(file: Path, modes: dict[str, int]) -> None:
    with tarfile.open(file, "w:gz") as tar:
        for name, mode in modes.items():
            info = tarfile.TarInfo(name)
            info.mode, info.size, info.uid, info.mtime = mode, len(name), 33, 1234
            tar.addfile(info, io.BytesIO(name.encode()))
        link = tarfile.TarInfo("hard")
        link.type, link.linkname = tarfile.LNKTYPE, next(iter(modes))
        tar.addfile(link)


def test_add_unpacks_an_archive_as_it_is_and_copy_does_not(folder: Path) -> None:
    archived(folder / "x.tar.gz", {"one": 0o4755, "/abs": 0o666})
    assert list(packed(folder, "x.tar.gz")) == ["to/x.tar.gz"]
    found = packed(folder, "x.tar.gz", unpack=True)
    assert [(name, info.mode, info.uid, info.mtime) for name, info in found.items() if info.isreg()] == [
        ("to/one", 0o4755, 33, 1234),
        ("to/abs", 0o666, 33, 1234),
    ]
    assert found["to/hard"].linkname == "to/one"


def test_an_archive_does_not_lead_out_of_where_it_is_unpacked(folder: Path) -> None:
    archived(folder / "x.tar.gz", {"../../etc/passwd": 0o644})
    with pytest.raises(ContextError, match=r"x\.tar\.gz has '\.\./\.\./etc/passwd' in it, which leads out"):
        packed(folder, "x.tar.gz", unpack=True)


def test_a_broken_archive_is_a_sentence(folder: Path) -> None:
    archived(folder / "x.tar.gz", {f"file{i}": 0o644 for i in range(2000)})
    whole = (folder / "x.tar.gz").read_bytes()
    (folder / "x.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ContextError, match=r"x\.tar\.gz cannot be unpacked: "):
        packed(folder, "x.tar.gz", unpack=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "s/b.txt", "s/t/c.txt"]),
        ("s", ["s/b.txt", "s/t/c.txt", "s/t/d.log"]),
        ("s/", ["s/b.txt", "s/t/c.txt", "s/t/d.log"]),
        ("/s/*", ["s/b.txt", "s/t/c.txt", "s/t/d.log"]),
        ("s/?/c.*", ["s/t/c.txt"]),
        ("s?b.txt", []),
        ("s/**/c.txt", ["s/t/c.txt"]),
        ("**\n!**/*.log", ["a.txt", "s/b.txt", "s/t/c.txt"]),
        ("s\n!s/t\ns/t/c.txt", ["s/b.txt", "s/t/c.txt"]),
        ("# *\n\n  a.txt  ", ["a.txt"]),
        ("[ab].txt", ["a.txt"]),
        ("a+txt", []),
    ],
)
def test_dockerignore(tmp_path: Path, text: str, names: list[str]) -> None:
    assert ignored(tmp_path, text, "a.txt", "s/b.txt", "s/t/c.txt", "s/t/d.log") == names


def test_ignored_files_are_not_in_the_context(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*\n!sub\nsub/deep\n.*\n")
    assert list(packed(folder, ".")) == ["to/sub", "to/sub/d.txt", "to/sub/empty"]
    with pytest.raises(ContextError, match=r"a\.txt is not in"):
        packed(folder, "a.txt")


def test_a_dockerignore_of_many_wildcards_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("**/" * 12 + "x\n[z-a]*\n*a*a*a*a*a*a*b\n")
    rules = IgnoreRules(tmp_path / ".dockerignore")
    began = time.process_time()
    assert not rules.ignores("/".join(["a" * 50] * 30))
    assert rules.ignores("/".join(["a"] * 12) + "/x")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("rule", "path", "ignored"),
    [
        ("**/x", "x", True),
        ("a/**", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/d", False),
        ("*.log", "deep/x.log", False),
        ("**/*.log", "deep/x.log", True),
        ("deep", "deep/x.log", True),
        ("[^a]b", "ab", False),
        ("[^a]b", "cb", True),
    ],
)
def test_rules_of_a_dockerignore(tmp_path: Path, rule: str, path: str, ignored: bool) -> None:
    (tmp_path / ".dockerignore").write_text(rule + "\n")
    assert IgnoreRules(tmp_path / ".dockerignore").ignores(path) is ignored


def test_a_context_that_memory_could_not_hold_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(ContextError, match="its files are more than 1024 MB"):
        Archive(Owner(), None).add(tmp_path / "big", "big")
