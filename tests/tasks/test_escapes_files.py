"""What a hostile program tries with files.

It runs as the agent of the built-in tasks, and as root of an image; all of it fails closed. Afterwards the
sandbox still works or is cleanly gone, and the host is as it was (the fixture `untouched`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.sandbox import runtime as runtimes
from tasks.sandbox.archive import pack
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tests.tasks.conftest import root_image
from tests.tasks.escaping import bytes_of, ends, has_begun, python, works

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def canary() -> Iterator[Path]:
    """A folder of the host that every user may read and write, outside /tmp."""
    folder = Path("/var/tmp", f"obsspec-canary-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "secret").write_text("canary")
    (folder / "secret").chmod(0o666)
    yield folder
    assert sorted(os.listdir(folder)) == ["secret"]
    assert (folder / "secret").read_text() == "canary"
    shutil.rmtree(folder)


async def test_files_of_the_host_are_neither_read_nor_written(world: NamespaceSandbox, canary: Path) -> None:
    own = REPOSITORY / "pyproject.toml"
    for path in (canary / "secret", own, Path(sys.executable), Path.home() / ".cache"):
        if not path.is_relative_to("/usr"):
            assert (await world.exec(f"cat {path} || ls {path}/")).stdout == b"", path
            with pytest.raises(FileNotFoundError):
                await world.read(str(path))
    for folder in (
        canary,
        REPOSITORY,
        Path("/"),
        Path("/usr/local"),
        Path("/etc"),
        Path("/tmp"),
        Path("/dev"),
    ):
        await world.exec(
            f"mkdir -p {folder}; echo x > {folder}/escape && rm {folder}/secret {folder}/pyproject.toml"
        )
        await ends(world.write(f"{folder}/escape", b"x"))
        assert not (folder / "escape").exists(), folder
    assert own.exists()
    await works(world)


async def test_the_system_of_the_host_cannot_be_changed_through_usr(
    world: NamespaceSandbox, inside: str
) -> None:
    before = os.stat("/usr/bin/env")
    for command in (
        "rm -f /usr/bin/env",
        "echo x >> /usr/bin/env",
        "chmod 4777 /usr/bin/env",
        "touch /usr/bin/env",
    ):
        await world.exec(command)
    after = os.stat("/usr/bin/env")
    assert (before.st_ino, before.st_mtime_ns, before.st_mode, before.st_ctime_ns) == (
        *(after.st_ino, after.st_mtime_ns, after.st_mode),
        after.st_ctime_ns,
    )


TARGETS = [
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/etc/passwd",
    "/proc/self/exe",
    "/proc/self/environ",
    "/proc/self/fd/0",
    "/proc/self/fd/3",
    "/proc/self/fd/4",
    "/proc/self/fd/5",
    "/proc/self/mem",
    "/proc/thread-self/environ",
    "/dev/fd/3",
    "/dev/stdin",
    "/proc/1/environ",
    "/proc/1/exe",
    "/proc/1/fd/1",
]


async def test_a_link_does_not_lead_read_to_the_process_that_reads(world: NamespaceSandbox) -> None:
    # PID 1 is the sandbox's own `sleep`, with an environment of its own.
    own = (b"", None, Path("/usr/bin/sleep").read_bytes(), b"PWD=/\0SHLVL=0\0PATH=/bin:/usr/bin\0")
    for target in TARGETS:
        await world.exec(f"ln -sfn {target} /tmp/link")
        assert await ends(bytes_of(world, "/tmp/link")) in own, target
    await works(world)


async def test_a_link_is_followed_inside_only(world: NamespaceSandbox, canary: Path) -> None:
    await world.exec(f"ln -s {canary}/secret /tmp/secret; ln -s ../../../../../../..{canary} /tmp/folder")
    for path in ("/tmp/secret", "/tmp/folder/secret", f"/tmp/../../..{canary}/secret"):
        assert await bytes_of(world, path) is None
    await world.exec(f"mkdir -p {canary}; echo own > {canary}/secret")
    assert await bytes_of(world, "/tmp/secret") in (b"own\n", None)


@pytest.mark.parametrize(
    "link", ["/etc", "/proc/1/root/etc", "/proc/self/root", "/proc/self/cwd", "/dev", "loop"]
)
async def test_an_upload_stays_inside_whatever_its_folder_has_become(
    link: str, world: NamespaceSandbox, tmp_path: Path
) -> None:
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/sub/escape").write_text("uploaded")
    await world.exec(
        f"mkdir -p /tmp/at; cd /tmp/at; ln -s {link} sub; ln -s {link} /tmp/at2; ln -s loop loop"
    )
    for target in ("/tmp/at", "/tmp/at2"):
        await ends(world.upload(tmp_path / "up", target))
        await ends(world.extract(pack(tmp_path / "up", 0, 0), target))
    await ends(world.write("/tmp/at/sub/escape2", b"x"))
    for folder in ("/etc", "/dev", "/", str(REPOSITORY)):
        assert not (Path(folder) / "escape").exists()
        assert not (Path(folder) / "escape2").exists()
    await works(world)


@pytest.mark.parametrize(
    "trap", ["mkfifo /tmp/at/file", "ln -s /etc/passwd /tmp/at/file", "ln -s . /tmp/at/file"]
)
async def test_an_upload_replaces_what_lies_in_its_way(
    trap: str, world: NamespaceSandbox, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("uploaded")
    accounts = await world.read("/etc/passwd")
    await world.exec(f"mkdir /tmp/at; {trap}")
    await ends(world.upload(tmp_path, "/tmp/at"), 5)
    assert await world.read("/tmp/at/file") == b"uploaded"
    assert await world.read("/etc/passwd") == accounts


async def test_writing_to_a_named_pipe_ends(world: NamespaceSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.sandbox.files.WRITE_TIMEOUT_S", 0.3)
    await world.exec("mkfifo /tmp/fifo")
    with pytest.raises(SandboxError, match=r"could not write /tmp/fifo within 0.3 s"):
        await world.write("/tmp/fifo", b"x")
    await works(world)


async def test_hard_links_reach_nothing_more(world: NamespaceSandbox, inside: str) -> None:
    await world.exec("cd /tmp; ln /etc/shadow a; ln /usr/bin/env b; ln /dev/null c; ln /proc/1/environ d")
    for name in "cd":
        assert await bytes_of(world, f"/tmp/{name}") is None
    shadow = await bytes_of(world, "/tmp/a")
    assert shadow is None or b"$" not in shadow
    await world.exec("echo x >> /tmp/b")
    assert os.stat("/usr/bin/env").st_nlink == 1


async def test_device_nodes_are_of_no_use(world: NamespaceSandbox) -> None:
    disk = os.stat("/").st_dev
    for kind in ("c 1 1", "c 1 5", "c 5 1", "c 10 200", "c 10 229", f"b {os.major(disk)} {os.minor(disk)}"):
        for folder in ("/tmp", "/dev/shm", "/dev", "/run", "/var/tmp"):
            node = f"{folder}/node"
            result = await world.exec(
                f"mknod -m 666 {node} {kind}; test -e {node} && head -c 1 {node} | wc -c"
            )
            assert result.stdout in (b"", b"0\n"), (kind, folder, result)
    await works(world)


async def test_an_archive_with_devices_and_setuid_programs_gives_none(world: NamespaceSandbox) -> None:
    import io
    import tarfile

    def packed(**fields: object) -> bytes:
        buffer, info = io.BytesIO(), tarfile.TarInfo("x")
        for name, value in fields.items():
            setattr(info, name, value)
        data = Path("/usr/bin/id").read_bytes() if info.isreg() else b""
        info.size = len(data)
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    disk = os.stat("/").st_dev
    device = {"type": tarfile.BLKTYPE, "devmajor": os.major(disk), "devminor": os.minor(disk), "mode": 0o666}
    await ends(world.extract(packed(**device), "/tmp/a"))
    assert (await world.exec("head -c 1 /tmp/a/x")).stdout == b""
    await world.extract(packed(mode=0o6755), "/tmp/b")
    result = await world.run(["/tmp/b/x", "-u"], 5, user="1234", cwd="/")
    assert result.stdout in (b"1234\n", b"1000\n")
    for name in ("/etc/escape", "../../../etc/escape", "../../../../../../.."):
        await ends(world.extract(packed(name=name, mode=0o644), "/tmp/c"))
        assert not Path("/etc/escape").exists()
    await ends(world.extract(packed(type=tarfile.SYMTYPE, linkname="/etc"), "/tmp/d"))
    await ends(world.extract(packed(type=tarfile.LNKTYPE, linkname="../../../../etc/passwd"), "/tmp/e"))
    await works(world)


async def test_what_is_no_archive_is_an_error(world: NamespaceSandbox) -> None:
    for data in (b"no archive", b"\x1f\x8b" + bytes(2000), os.urandom(4096)):
        with pytest.raises(SandboxError, match="sandbox of world: /tmp/up: "):
            await world.extract(data, "/tmp/up")


async def test_code_left_where_python_looks_is_not_run(world: NamespaceSandbox, tmp_path: Path) -> None:
    """The processes that enter are Python's: whatever they would import now would be the sandbox's."""
    folders = [str(REPOSITORY), *(path for path in sys.path if path.startswith("/"))]
    names = sorted(name for name in sys.stdlib_module_names if not name.startswith("__"))
    planted = f"""
for folder in {folders}:
    try:
        os.makedirs(folder + "/encodings", exist_ok=True)
        for name in {names}:
            open(f"{{folder}}/{{name}}.py", "w").write("open('/tmp/pwned', 'w')")
    except OSError: pass
"""
    await python(world, planted)
    (tmp_path / "größe").write_text("x")
    await ends(world.upload(tmp_path, "/tmp/up"))
    await ends(world.extract(b"no archive", "/tmp/up"))
    await ends(world.extract(b"\x1f\x8b" + bytes(2000), "/tmp/up"))
    await ends(bytes_of(world, "/tmp/missing"))
    await ends(world.run(["true"], 5, user="größe"))
    await works(world)
    assert (await world.exec("ls /tmp/pwned")).exit_code == 2


@pytest.mark.parametrize(
    "accounts",
    [
        "ln -s /dev/zero",
        "mkfifo",
        "mkdir",
        "ln -s /proc/kmsg",
        "printf 'x:::::\\n:\\n\\377\\ny:0:-1:9999999999999:::\\n' >",
    ],
)
async def test_accounts_may_be_anything(accounts: str, tmp_path: Path, untouched: None) -> None:
    (tmp_path / "file").write_text("x")
    async with NamespaceSandbox(SandboxSpec("strange", image=await root_image())) as world:
        await world.exec(f"rm /etc/passwd /etc/group; {accounts} /etc/passwd; {accounts} /etc/group")
        for user in ("root", "x", "y", "0", "1000:1000"):
            await ends(world.run(["true"], 5, user=user), 5)
            await ends(world.upload(tmp_path, "/tmp/up", user), 5)
        assert (await world.run(["id", "-u"], 5, user="0")).stdout == b"0\n"
        await works(world)


async def test_a_copy_in_the_making_leads_nowhere(world: NamespaceSandbox, canary: Path) -> None:
    """Folders that are swapped for links while snapshots are made."""
    store = runtimes.runtime().store
    swap = f"""
os.chdir("/tmp")
for number in range(40):
    os.makedirs(f"real/{{number}}")
    os.symlink("{canary}", f"link{{number}}")
open("/tmp/begun", "w").close()
while True:
    for number in range(40):
        libc.renameat2(-100, f"real/{{number}}".encode(), -100, f"link{{number}}".encode(), 2)
"""
    swapping = asyncio.ensure_future(python(world, swap, 60))
    await has_begun(world, "/tmp/begun")
    for _ in range(10):
        await ends(world.snapshot())
    copied = [
        path for snapshot in store.glob(f"snapshots/{os.getpid()}-*") for path in snapshot.rglob("secret")
    ]
    assert not copied
    await world.end_processes()
    await swapping
    await works(world)


def test_a_folder_that_would_fill_the_memory_of_the_service_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SandboxError, match="holds more than 1024 MB"):
        pack(tmp_path, 0, 0)
