"""Limits: a command that meets one fails, and the sandbox goes on.

Memory is bounded for all processes together where the host lets us make control groups, else for each.
"""

from __future__ import annotations

import resource

import pytest

from tasks.config import SandboxConfig
from tasks.sandbox.base import SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec


def is_bound_together(sandbox: NamespaceSandbox) -> bool:
    assert sandbox._box is not None
    return sandbox._box.groups.bound_memory


async def works(sandbox: NamespaceSandbox) -> bool:
    result = await sandbox.exec("ls /usr > /dev/null && echo works")
    return (result.stdout, result.exit_code) == (b"works\n", 0)


@pytest.mark.parametrize("stream", ["1", "2"])
async def test_printing_100_mb_is_bounded_in_memory(stream: str, sandbox: NamespaceSandbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await sandbox.exec(
        f"head -c 100000000 /dev/zero | tr '\\0' x >&{stream}; echo end >&{stream}; (exit 3)"
    )
    kept = result.stdout if stream == "1" else result.stderr
    assert kept == b"x" * 64 * 1024
    assert result.truncated
    assert result.exit_code == 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # KiB
    assert await works(sandbox)


async def test_printing_without_end_times_out(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("yes", 0.5)
    assert result.timed_out
    assert result.truncated
    assert result.duration_s < 5
    assert await works(sandbox)


async def test_output_of_exactly_the_limit_is_not_truncated() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(output_bytes=1000)) as sandbox:
        result = await sandbox.exec("head -c 1000 /dev/zero")
        assert (len(result.stdout), result.truncated) == (1000, False)
        result = await sandbox.exec("head -c 1001 /dev/zero")
        assert (len(result.stdout), result.truncated) == (1000, True)


async def test_a_fork_bomb_is_contained(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 30", 1.5)
    assert result.timed_out or b"fork" in result.stderr
    await sandbox.exec("exit")
    assert await works(sandbox)
    gone = await sandbox.exec("until set -- /proc/[0-9]*; [ $# = 2 ]; do :; done; echo gone")
    assert gone.stdout == b"gone\n"


async def test_processes_are_counted_in_each_sandbox_for_itself() -> None:
    limits = SandboxLimits(processes=20)
    fill = "for i in $(seq 12); do sleep 60 & done; ls /proc | grep -c '^[0-9]'"
    async with (
        NamespaceSandbox(SandboxSpec(), limits) as one,
        NamespaceSandbox(SandboxSpec(), limits) as other,
    ):
        for sandbox in (one, other):
            result = await sandbox.exec(fill)
            assert int(result.stdout) >= 14
            assert result.stderr == b""
        result = await one.exec(f"{fill} 2>&1", 1)
        assert result.timed_out or b"Resource temporarily unavailable" in result.stdout + result.stderr
        assert await works(other)


async def test_a_process_that_wants_too_much_memory_fails(sandbox: NamespaceSandbox) -> None:
    # Files of the sandbox are in memory too, so the bound of all is 512 + 256 MB.
    result = await sandbox.exec("python3 -c 'x = b\"x\" * (800 * 2**20)'")
    if is_bound_together(sandbox):
        assert (result.exit_code, result.shell_restarted) == (137, False)
    else:
        assert result.exit_code == 1
        assert result.stderr.endswith(b"MemoryError\n")
        assert (await sandbox.exec("ulimit -v unlimited")).exit_code == 1
    assert await works(sandbox)


async def test_processes_that_together_want_too_much_memory_are_killed() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(memory_mb=112, disk_mb=16)) as sandbox:
        if not is_bound_together(sandbox):
            pytest.skip("this host lets us make no control group: only the limit of each process holds")
        one = "python3 -c 'x = bytearray(b\"x\" * (40 * 2**20)); import time; time.sleep(0.5)'"
        result = await sandbox.exec(
            f'for i in 1 2 3 4 5 6; do {one} & pids+=" $!"; done; wait; '
            "for p in $pids; do wait $p || echo killed; done"
        )
        assert b"killed" in result.stdout or result.shell_restarted, result
        assert await works(sandbox)


async def test_large_files_fail() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(file_mb=4)) as sandbox:
        result = await sandbox.exec("head -c 5000000 /dev/zero > big; echo $?; stat -c %s big")
        assert result.stdout == b"153\n4194304\n"
        assert await works(sandbox)


async def test_all_folders_share_one_bound() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(disk_mb=16)) as sandbox:
        fill = "head -c 6000000 /dev/zero > {}/full"
        for folder in ("/work", "/tmp"):
            assert (await sandbox.exec(fill.format(folder))).exit_code == 0
        for folder in ("/work/sub", "/tmp/sub", "/home/agent", "/dev/shm", "/var/tmp", "/run/lock"):
            result = await sandbox.exec(f"mkdir -p {folder}; {fill.format(folder)}")
            assert result.exit_code == 1, folder
            assert b"No space left" in result.stderr, folder
            await sandbox.exec(f"rm {folder}/full")
        assert await works(sandbox)
        assert (await sandbox.exec(f"rm /tmp/full; {fill.format('/dev/shm')}")).exit_code == 0


async def test_empty_files_are_bounded_too() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(disk_mb=16)) as sandbox:
        many = "import os\nfor i in range(100_000): os.close(os.open(str(i), os.O_CREAT))"
        result = await sandbox.exec(f"python3 -c '{many}'")
        assert b"No space left on device" in result.stderr
        assert int((await sandbox.exec("ls | wc -l")).stdout) < 5000
        assert (await sandbox.exec("find . -delete; touch again")).exit_code == 0


async def test_other_resources_are_bounded(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("ulimit -c; ulimit -n; ulimit -u; ulimit -f; umask")
    assert result.stdout.split() == [b"0", b"1024", b"64", b"65536", b"0022"]
    memory = b"unlimited\n" if is_bound_together(sandbox) else b"524288\n"
    assert (await sandbox.exec("ulimit -v")).stdout == memory
    for option in ("-c 10", "-n 100000", "-u 1000", "-f 1000000"):
        assert (await sandbox.exec(f"ulimit {option}")).exit_code == 1, option


def test_the_configuration_gives_the_limits() -> None:
    assert SandboxConfig().limits() == SandboxLimits()
    assert SandboxConfig(memory_mb=100, processes=9, file_mb=3).limits() == SandboxLimits(
        memory_mb=100, processes=9, file_mb=3
    )
    with pytest.raises(ValueError, match="memory_mib"):
        SandboxConfig.model_validate({"memory_mib": 3})
