"""The persistent shell: what lasts from one command to the next, and what a command can do to it.

The first process of a sandbox is a `sleep` too: those of commands are told from it by their arguments.
"""

from __future__ import annotations

import asyncio

import pytest

from tasks.sandbox.base import ExecResult, SandboxError, SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.runtime import runtime
from tasks.sandbox.spec import SandboxSpec


async def out(sandbox: NamespaceSandbox, command: str, timeout_s: float | None = None) -> str:
    """Standard output of a command that must succeed."""
    result = await sandbox.exec(command, timeout_s)
    assert result.exit_code == 0, result
    return result.stdout.decode().rstrip("\n")


def has_users() -> bool:
    """Whether a sandbox has more than one user on this host."""
    return runtime().has_users


async def appears(sandbox: NamespaceSandbox, path: str) -> None:
    """Wait until a running command has made a file."""
    while True:
        try:
            await sandbox.read(path)
            return
        except FileNotFoundError:
            await asyncio.sleep(0)


async def test_folder_variables_functions_and_status_last(sandbox: NamespaceSandbox) -> None:
    assert await out(sandbox, "pwd") == "/work"
    await sandbox.exec(
        "cd /tmp; plain=1; export exported=2; declare -A map=([k]=3); f() { echo f$1; }; alias x=y"
    )
    assert (
        await out(sandbox, "pwd; echo $plain ${map[k]}; bash -c 'echo $exported'; f 4") == "/tmp\n1 3\n2\nf4"
    )
    assert (await sandbox.exec("(exit 9)")).exit_code == 9
    assert await out(sandbox, "echo $?") == "9"


@pytest.mark.parametrize(
    ("command", "stdout", "stderr", "code"),
    [
        ("echo out; echo err >&2; (exit 255)", b"out\n", b"err\n", 255),
        ("cat <<'X'\n$a 'quoted' \"x\"\nX", b"$a 'quoted' \"x\"\n", b"", 0),
        ("for i in 1 2\ndo\n  echo $i\ndone", b"1\n2\n", b"", 0),
        ("printf '\\0\\377\\n'", b"\0\xff\n", b"", 0),
        ("printf %s größe", "größe".encode(), b"", 0),
        (
            "echo 'unterminated",
            b"",
            b"bash: eval: line 1: unexpected EOF while looking for matching `''\n",
            2,
        ),
        ("if true; then", b"", b"bash: eval: line 2: syntax error: unexpected end of file\n", 2),
        ("true\n\nmissing", b"", b"bash: line 3: missing: command not found\n", 127),
        ("", b"", b"", 0),
        ("# nothing", b"", b"", 0),
        ("cat; read line; echo $?", b"1\n", b"", 0),
        ("continue", b"", b"", 0),
        ("for i in 1 2; do echo $i; break; done; break", b"1\n", b"", 0),
        ("/work", b"", b"bash: line 1: /work: Is a directory\n", 126),
    ],
)
async def test_output_and_exit_code_are_exact(
    command: str, stdout: bytes, stderr: bytes, code: int, sandbox: NamespaceSandbox
) -> None:
    result = await sandbox.exec(command)
    assert (result.stdout, result.stderr, result.exit_code) == (stdout, stderr, code)
    assert not (result.timed_out)
    assert not (result.truncated)
    assert not (result.shell_restarted)
    assert await out(sandbox, "echo still here") == "still here"


async def test_a_long_command_is_read_whole(sandbox: NamespaceSandbox) -> None:
    text = "0123456789" * 10_000
    assert await out(sandbox, f"x='{text}'; echo ${{#x}}") == "100000"


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800"])
async def test_a_command_without_bytes_is_refused(command: str, sandbox: NamespaceSandbox) -> None:
    with pytest.raises(ValueError, match="cannot contain a NUL"):
        await sandbox.exec(command)
    assert await out(sandbox, "echo still here") == "still here"


@pytest.mark.parametrize(
    ("command", "stdout", "code"),
    [
        ("echo a; exit 3", b"a\n", 3),
        ("kill -9 $$", b"", 137),
        ("kill -9 0", b"", 137),
        ("exec echo replaced", b"replaced\n", 0),
        ("set -e; false", b"", 1),
        ("kill -SEGV $$", b"", 139),
    ],
)
async def test_a_shell_that_ends_is_replaced(
    command: str, stdout: bytes, code: int, sandbox: NamespaceSandbox
) -> None:
    await sandbox.exec("mkdir inner; cd inner; lost=1; echo kept > file")
    result = await sandbox.exec(command)
    assert (result.stdout, result.exit_code, result.shell_restarted) == (stdout, code, True)
    assert await out(sandbox, "pwd; cat file; echo [$lost]") == "/work/inner\nkept\n[]"


async def test_a_shell_that_is_killed_between_commands_is_replaced(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("cd /tmp; (until [ -e go ]; do :; done; kill -9 $$; echo > gone) & disown")
    await sandbox.write("/tmp/go", b"")
    await appears(sandbox, "/tmp/gone")
    result = await sandbox.exec("pwd")
    assert result.duration_s < 5
    assert await out(sandbox, "pwd") == "/tmp"


async def test_a_time_out_ends_everything_the_command_started(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("cd /tmp; echo kept > file")
    orphans = "(sleep 63 &); setsid sleep 64 & disown"
    result = await sandbox.exec(f"echo before; {orphans}; (trap '' TERM INT HUP; sleep 62)", 0.3)
    assert (result.timed_out, result.exit_code, result.shell_restarted) == (True, 124, True)
    assert result.stdout == b"before\n"
    assert 0.3 <= result.duration_s < 5
    assert await out(sandbox, "pwd; cat file; pgrep -cf '^sleep 6' || true") == "/tmp\nkept\n0"


async def test_the_shell_itself_may_never_end(sandbox: NamespaceSandbox) -> None:
    assert (await sandbox.exec("while :; do :; done", 0.2)).timed_out
    assert (await sandbox.exec("trap '' TERM; while :; do :; done", 0.2)).timed_out
    assert (await sandbox.exec("kill -STOP $$", 0.2)).timed_out
    assert (await sandbox.exec("set -n", 0.2)).timed_out
    assert await out(sandbox, "echo still here") == "still here"


async def test_no_command_outlives_the_limit_of_the_sandbox() -> None:
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(command_timeout_s=0.2)) as sandbox:
        assert (await sandbox.exec("sleep 60", 50)).timed_out
        assert (await sandbox.exec("sleep 60")).timed_out


async def test_background_processes_do_not_hold_a_command_up(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.exec("sleep 60 & yes >&2 & echo done")
    assert (result.stdout, result.exit_code) == (b"done\n", 0)
    assert result.duration_s < 5
    await sandbox.exec("kill %2; wait %2")
    assert await out(sandbox, "pgrep -cf '^sleep 60'") == "1"


async def test_a_time_out_spares_what_ran_before(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("(while sleep 0.01; do date +%N > beat; done) & sleep 63 & mine=$!")
    await appears(sandbox, "/work/beat")
    await asyncio.sleep(0.02)  # the kernel dates processes to a hundredth of a second
    assert (await sandbox.exec("sleep 64 & sleep 65", 0.2)).timed_out
    assert await out(sandbox, "pgrep -af '^sleep 6' | cut -d' ' -f2-") == "sleep 63"
    assert (
        await out(sandbox, 'old=$(cat beat); until [ "$(cat beat)" != "$old" ]; do :; done; echo beats')
        == "beats"
    )


async def test_late_output_of_the_background_is_not_taken_for_a_later_commands(
    sandbox: NamespaceSandbox,
) -> None:
    await sandbox.exec("mkfifo go; (read < go; echo late; echo x > written) &")
    await sandbox.exec("echo > go; until [ -s written ]; do :; done")
    assert await out(sandbox, "echo own") == "own"


async def test_commands_cannot_report_in_place_of_their_shell(sandbox: NamespaceSandbox) -> None:
    forged = r"printf 'done 7 /tmp\0'"
    command = f'for fd in $(seq 3 254); do ({forged} >&$fd); bash -c "{forged} >&$fd"; done 2>/dev/null'
    command += (
        f"; for fd in /proc/1/fd/200 /proc/$$/fd/*; do ({forged} > $fd); done 2>/dev/null; echo own; (exit 5)"
    )
    result = await sandbox.exec(command)
    assert result.exit_code == 5
    assert result.stdout.endswith(b"own\n")
    assert await out(sandbox, "pwd") == "/work"


async def test_a_shell_that_reports_nonsense_harms_itself_alone(sandbox: NamespaceSandbox) -> None:
    for text in ("done x /", "done", "ended 0", "unpacked 0", "ready", r"done 9999999 /\0nonsense"):
        result = await sandbox.exec(
            f"for fd in {{3..20}}; do printf '{text}\\0' >&$fd; done 2>/dev/null; (exit 5)"
        )
        assert result.exit_code == 5, text
    assert await out(sandbox, "pwd") == "/work"


async def test_what_others_than_the_shell_say_is_not_kept(sandbox: NamespaceSandbox) -> None:
    begun = "for fd in {3..20}; do (printf '%015000d' 0 >&$fd); done 2>/dev/null"
    flood = "for fd in {3..20}; do (yes | head -c 300000 | tr '\\n' '\\0' >&$fd); done 2>/dev/null"
    result = await sandbox.exec(f"{begun}; {flood}; (exit 5)")
    assert result.exit_code == 5
    assert sandbox._shell is not None
    assert sandbox._shell._control is not None
    assert len(sandbox._shell._control._partial) < 100


async def test_traces_show_the_command_alone(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("set -x")
    result = await sandbox.exec("echo a")
    assert result.stderr == b"++ builtin eval 'echo a'\n+++ echo a\n"


async def test_a_cancelled_command_is_ended_and_the_sandbox_goes_on(sandbox: NamespaceSandbox) -> None:
    await sandbox.exec("cd /tmp")
    task = asyncio.ensure_future(sandbox.exec("sleep 61"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    task = asyncio.ensure_future(sandbox.exec("touch began; sleep 62; touch ended"))
    await appears(sandbox, "/tmp/began")
    task.cancel()
    await asyncio.wait([task])
    assert await out(sandbox, "pwd; ls; pgrep -cf '^sleep 6' || true") == "/tmp\nbegan\n0"


async def test_commands_given_at_once_run_one_after_the_other(sandbox: NamespaceSandbox) -> None:
    commands = [f"for i in 1 2 3; do echo {n} >> log; done; echo {n}" for n in range(8)]
    results = await asyncio.gather(*map(sandbox.exec, commands))
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]
    assert await out(sandbox, "uniq log | wc -l") == "8"


async def test_the_same_commands_give_the_same_results_in_every_sandbox() -> None:
    commands = [
        "echo $$ $BASHPID $RANDOM; sleep 0 & echo $!",
        "mkdir -p b/c a; touch z b/y a/x; find . | head; ls -lan | tail -n +4 | cut -c1-30",
        "git init -q . && git add . && git commit -q -m one && git log --format='%H %an %ad'",
        "hostname; id; env | sort; date +%Z; locale 2>/dev/null | head -1; tput cols 2>/dev/null",
        "python3 -c 'import os; print(hash(\"x\"), os.getpid())'",
        "exit 3",
        "echo $$",
    ]

    async def results() -> list[ExecResult]:
        async with NamespaceSandbox(SandboxSpec()) as sandbox:
            return [await sandbox.exec(command) for command in commands]

    first, second = await asyncio.gather(results(), results())
    assert [(r.stdout, r.stderr, r.exit_code) for r in first] == [
        (r.stdout, r.stderr, r.exit_code) for r in second
    ]
    assert first[0].stdout.startswith(b"2 2 ")


async def test_a_sandbox_starts_once_and_stops_twice() -> None:
    sandbox = NamespaceSandbox(SandboxSpec("once"))
    with pytest.raises(SandboxError, match="sandbox of once is not running"):
        await sandbox.exec("true")
    await sandbox.start()
    with pytest.raises(SandboxError, match="started before"):
        await sandbox.start()
    await sandbox.stop()
    await sandbox.stop()
    with pytest.raises(SandboxError, match="is not running"):
        await sandbox.exec("true")


async def test_stopping_ends_a_running_command() -> None:
    sandbox = NamespaceSandbox(SandboxSpec("stopped"))
    await sandbox.start()
    task = asyncio.ensure_future(sandbox.exec("touch began; sleep 60"))
    await appears(sandbox, "/work/began")
    await sandbox.stop()
    with pytest.raises(SandboxError, match="sandbox of stopped is not running"):
        await task


async def test_output_is_told_while_a_command_runs(sandbox: NamespaceSandbox) -> None:
    told: list[tuple[str, bytes]] = []

    def listen(stream: str, data: bytes) -> None:
        told.append((stream, data))
        (sandbox_go := asyncio.ensure_future(sandbox.write(f"/work/go{len(told)}", b""))).add_done_callback(
            lambda task: task.result()
        )
        waiting.append(sandbox_go)

    waiting: list[asyncio.Future[None]] = []
    # Each line is printed when the one before has been heard on the host.
    command = "echo 1; until [ -e go1 ]; do :; done; echo 2 >&2; until [ -e go2 ]; do :; done; echo 3"
    result = await sandbox.exec(command, on_output=listen)
    await asyncio.gather(*waiting)
    assert told == [("stdout", b"1\n"), ("stderr", b"2\n"), ("stdout", b"3\n")]
    assert (result.stdout, result.stderr, result.exit_code) == (b"1\n3\n", b"2\n", 0)


async def test_programs_apart_from_the_shell_are_told_of_too(sandbox: NamespaceSandbox) -> None:
    told: list[tuple[str, bytes]] = []
    result = await sandbox.run(
        ["sh", "-c", "echo out; echo err >&2"], 5, on_output=lambda *item: told.append(item)
    )
    assert sorted(told) == [("stderr", b"err\n"), ("stdout", b"out\n")]
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 0)


async def test_no_more_is_told_than_is_kept() -> None:
    told = bytearray()
    async with NamespaceSandbox(SandboxSpec(), SandboxLimits(output_bytes=1000)) as sandbox:
        result = await sandbox.exec("yes | head -c 300000", on_output=lambda _, data: told.extend(data))
    assert bytes(told) == result.stdout
    assert (len(told), result.truncated) == (1000, True)


async def test_a_program_has_its_user_folder_and_variables(sandbox: NamespaceSandbox) -> None:
    argv = ["sh", "-c", "id -u; pwd; echo $mine $HOME"]
    result = await sandbox.run(argv, 5, env={"mine": "1"})
    assert result.stdout == b"1000\n/work\n1 /home/agent\n"
    if not has_users():
        return
    result = await sandbox.run(argv, 5, user="root", cwd="/tmp", env={"HOME": "/root"})
    assert result.stdout == b"0\n/tmp\n/root\n"
    result = await sandbox.run(["id", "-u"], 5, user="1234:7")
    assert result.stdout == b"1234\n"


@pytest.mark.parametrize(
    ("argv", "options", "status", "message"),
    [
        (["missing"], {}, 127, b"missing: not found in the sandbox\n"),
        (["/work"], {}, 126, b"/work: Permission denied\n"),
        (["true"], {"cwd": "/nowhere"}, 127, b"/nowhere: not found in the sandbox\n"),
        (["true"], {"cwd": "/root"}, 126, b"/root: Permission denied\n"),
        (
            ["true"],
            {"user": "nobody-here"},
            126,
            b"there is no user 'nobody-here' in the sandbox's /etc/passwd\n",
        ),
    ],
)
async def test_a_program_that_cannot_run_says_why(
    argv: list[str], options: dict[str, str], status: int, message: bytes, sandbox: NamespaceSandbox
) -> None:
    if not has_users() and (options.get("cwd") == "/root" or "user" in options):
        pytest.skip("here a sandbox has one user only")
    result = await sandbox.run(argv, 5, **options)  # type: ignore[arg-type]
    assert (result.exit_code, result.stderr) == (status, message)


async def test_what_the_host_starts_meanwhile_is_spared(sandbox: NamespaceSandbox) -> None:
    command = asyncio.ensure_future(sandbox.exec("touch began; sleep 60", 0.3))
    await appears(sandbox, "/work/began")
    program = await sandbox.run(["sleep", "0.5"], 5)
    assert (await command).timed_out
    assert (program.exit_code, program.timed_out) == (0, False)
    result = await sandbox.run(["sleep", "60"], 0.05)
    assert result.timed_out
    assert not (await sandbox.exec("true")).shell_restarted


async def test_a_program_that_does_not_end_is_killed_with_its_children(sandbox: NamespaceSandbox) -> None:
    result = await sandbox.run(["sh", "-c", "setsid sleep 61 & echo begun; sleep 62"], 0.3)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 124, b"begun\n")
    assert await out(sandbox, "pgrep -cf '^sleep 6' || true") == "0"
