"""Snapshots: a sandbox goes back to the files that it had, as often as asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.sandbox.base import SandboxError, SandboxLimits, Snapshot
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.runtime import runtime
from tasks.sandbox.spec import SandboxSpec

TREE = """cd / && find work tmp home -printf '%p %y %m %u %g %l %TY-%Tm-%Td\\n' | sort
find work tmp home -type f -printf '%p %n %s\\n' | sort; cat work/*.txt"""


def kept() -> set[Path]:
    """What this process has in the store's folder of snapshots."""
    return set((runtime().store / "snapshots").glob(f"{os.getpid()}-*"))


async def tree(sandbox: NamespaceSandbox) -> bytes:
    result = await sandbox.exec(f"({TREE}) 2>/dev/null")
    assert b"work" in result.stdout
    return result.stdout


async def test_content_deletions_renames_modes_and_links_come_back(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec(
        "echo one > a.txt; echo two > b.txt; mkdir -p d/e; ln -s nowhere d/link; ln a.txt hard.txt;"
        "mkfifo fifo; chmod 600 b.txt; chmod 700 d; chmod u+s,+t d/e; touch -d 2001-02-03 d/old;"
        "truncate -s 1M sparse"
    )
    before = await tree(sandbox)
    snapshot = await sandbox.snapshot()
    await sandbox.exec(
        "echo changed > a.txt; rm b.txt; mv d moved; rm fifo; ln -sf elsewhere moved/link; chmod 755 moved;"
        "rm -r moved/e; echo new > c.txt; echo x > ~/x; echo x > /tmp/x"
    )
    assert await tree(sandbox) != before
    await sandbox.restore(snapshot)
    assert await tree(sandbox) == before
    assert (await sandbox.exec("[ a.txt -ef hard.txt ] && stat -c %b sparse")).stdout == b"0\n"


async def test_what_was_removed_of_the_image_stays_removed() -> None:
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        root = {"user": "root"}
        await sandbox.run(["sh", "-c", "rm -r /etc/alternatives; rm /usr/bin/git; mv /opt /mnt/"], 10, **root)  # type: ignore[arg-type]
        snapshot = await sandbox.snapshot()
        await sandbox.run(
            ["sh", "-c", "mkdir /etc/alternatives; echo x > /usr/bin/git; mkdir /opt"], 10, **root
        )  # type: ignore[arg-type]
        await sandbox.restore(snapshot)
        gone = await sandbox.exec("ls -d /etc/alternatives /usr/bin/git /opt 2>/dev/null; ls -d /mnt/opt")
        if os.geteuid() == 0:
            assert gone.stdout == b"/mnt/opt\n"


async def test_one_snapshot_serves_twice(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("echo first > a.txt")
    snapshot = await sandbox.snapshot()
    for _ in range(2):
        await sandbox.exec("echo other > a.txt; touch b.txt")
        await sandbox.restore(snapshot)
        assert (await sandbox.exec("cat *.txt")).stdout == b"first\n"


async def test_snapshots_of_restored_files_hold_all_of_them(sandbox: NamespaceSandbox) -> None:
    snapshots = []
    for name in "abc":
        await sandbox.exec(f"touch {name}; rm -f before-{name}; touch before-{chr(ord(name) + 1)}")
        snapshots.append(await sandbox.snapshot())
        await sandbox.restore(snapshots[-1])
    assert (await sandbox.exec("echo *")).stdout == b"a b before-d c\n"
    await sandbox.restore(snapshots[0])
    assert (await sandbox.exec("echo *")).stdout == b"a before-b\n"
    await sandbox.restore(snapshots[2])
    assert (await sandbox.exec("echo *")).stdout == b"a b before-d c\n"


async def test_the_folder_comes_back_and_processes_do_not(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("mkdir in; cd in; lost=1; sleep 61 &")
    snapshot = await sandbox.snapshot()
    await sandbox.exec("cd /tmp")
    await sandbox.restore(snapshot)
    result = await sandbox.exec("pwd; echo [$lost]; pgrep -cf '^sleep 61'")
    assert result.stdout == b"/work/in\n[]\n0\n"
    assert (await sandbox.exec("exit 3")).exit_code == 3


async def test_what_runs_is_held_for_a_snapshot_and_runs_on(sandbox: NamespaceSandbox) -> None:
    count = "i=0; while :; do : $((i++)); echo $i > one; echo $i > two; done"
    await sandbox.exec(
        f"sleep 61 & until pgrep -f '^sleep 61' > x; do :; done; kill -STOP $!; ({count}) & disown"
    )
    await sandbox.exec("until [ -s two ]; do :; done")
    snapshots = [await sandbox.snapshot() for _ in range(5)]
    states = await sandbox.exec(
        'ps -o stat= -C sleep; a=$(cat two); until [ "$(cat two)" != "$a" ]; do :; done'
    )
    assert (states.stdout.split(), states.timed_out) == (
        [b"Ss", b"T"],
        False,
    )  # PID 1, and what stood still before
    for snapshot in snapshots:
        await sandbox.restore(snapshot)
        one, two = await sandbox.read("/work/one"), await sandbox.read("/work/two")
        assert not (one and two) or int(one) - int(two) in (0, 1)


async def test_a_program_that_writes_does_not_spoil_a_snapshot(sandbox: NamespaceSandbox) -> None:
    churn = "while :; do mkdir -p x/y; echo 1 > x/y/z; mv x w; rm -r w; ln -s /etc x; rm x; done"
    await sandbox.exec(f"echo kept > kept; ({churn}) 2>/dev/null & disown")
    snapshots = [await sandbox.snapshot() for _ in range(5)]
    assert (await sandbox.exec("until [ -e x ] || [ -e w ]; do :; done; echo runs on")).stdout == b"runs on\n"
    await sandbox.end_processes()
    snapshots.append(await sandbox.snapshot())
    for snapshot in snapshots:
        await sandbox.restore(snapshot)
        assert (await sandbox.exec("cat kept")).stdout == b"kept\n"


async def test_a_snapshot_of_another_sandbox_is_refused(sandbox: NamespaceSandbox) -> None:
    async with NamespaceSandbox(SandboxSpec("other")) as other:
        snapshot = await other.snapshot()
        with pytest.raises(SandboxError, match=r"sandbox of test has no such snapshot: .* of one sandbox"):
            await sandbox.restore(snapshot)
        with pytest.raises(SandboxError, match="no such snapshot"):
            await sandbox.restore(Snapshot("bases", "/"))
    assert (await sandbox.exec("echo works")).stdout == b"works\n"


async def test_nothing_is_left_in_the_store_after_the_stop() -> None:
    before = kept()
    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        for _ in range(3):
            await sandbox.exec("mkdir -m 0 locked$RANDOM; touch $RANDOM")
            await sandbox.restore(await sandbox.snapshot())
        assert len(kept() - before) == 3
    assert kept() == before


async def test_a_full_sandbox_has_snapshots_too() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(disk_mb=16)) as sandbox:
        await sandbox.exec("echo kept > kept; cat /dev/zero > full")
        snapshot = await sandbox.snapshot()
        await sandbox.exec("rm full kept")
        await sandbox.restore(snapshot)
        assert (await sandbox.exec("cat kept; stat -c %s full")).stdout.startswith(b"kept\n1")


async def test_what_a_killed_process_left_in_the_store_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.sandbox import runtime as runtimes

    async with NamespaceSandbox(SandboxSpec()) as sandbox:
        snapshot = await sandbox.snapshot()
        folder = runtime().store / snapshot.name
        left = folder.parent / f"{2**22 + 1}-left"  # above the largest PID
        os.rename(folder, left)
        try:
            os.utime(left, (0, 0))
            monkeypatch.setattr(runtimes, "_runtimes", {})
            other = runtimes.runtime()
            await other.ready()
            other.close()
            assert not left.exists()
        finally:
            if left.exists():
                os.rename(left, folder)
