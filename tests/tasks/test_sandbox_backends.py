"""What the local and the docker backend promise alike; the namespace backend has tests of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tasks.sandbox.base import ExecResult, SandboxError, SandboxLimits
from tasks.sandbox.docker import DockerSandbox
from tasks.sandbox.local import LocalSandbox
from tests.tasks import backends

AnySandbox = LocalSandbox | DockerSandbox
Make = Callable[..., Awaitable[AnySandbox]]


@pytest_asyncio.fixture(params=["local", "docker", "fake docker"])
async def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    made: list[AnySandbox] = []

    async def make(**arguments: object) -> AnySandbox:
        limits = SandboxLimits(**{"command_timeout_s": 10, **arguments.pop("limits", {})})  # type: ignore[dict-item]
        made.append(await backends.make(request.param, tmp_path / "docker", monkeypatch, limits, **arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for sandbox in made:
        await sandbox.stop()


@pytest_asyncio.fixture
async def sandbox(make: Make) -> AnySandbox:
    started = await make()
    await started.start()
    return started


async def out(sandbox: AnySandbox, command: str) -> str:
    """Standard output of a command that must succeed."""
    result = await sandbox.exec(command)
    assert result.exit_code == 0, result
    return result.stdout.decode().rstrip("\n")


async def appears(sandbox: AnySandbox, path: str) -> None:
    while True:
        try:
            await sandbox.read(path)
            return
        except FileNotFoundError:
            await asyncio.sleep(0.01)


async def run(sandbox: AnySandbox, script: str, timeout_s: float = 10, **options: object) -> ExecResult:
    return await sandbox.run(["bash", "-c", script], timeout_s, **options)  # type: ignore[arg-type]


ALIVE = (
    "for pid in $(cat pids); do read -r _ _ state _ < /proc/$pid/stat && [[ $state != Z ]] && echo alive;"
    " done 2>/dev/null; true"
)


async def test_folder_variables_functions_and_status_last(sandbox: AnySandbox) -> None:
    await sandbox.exec("mkdir -p a/b; cd a/b; plain=1; export exported=2; f() { echo f$1; }; set -x")
    command = "set +x; basename $PWD; echo $plain; bash -c 'echo $exported'; f 4"
    assert await out(sandbox, command) == "b\n1\n2\nf4"
    assert (await sandbox.exec("(exit 9)")).exit_code == 9
    assert await out(sandbox, "echo $? $SHLVL") == "9 1"


async def test_output_and_exit_code_are_exact(sandbox: AnySandbox) -> None:
    unterminated = b"bash: eval: line 1: unexpected EOF while looking for matching `''\n"
    for command, stdout, stderr, code in [
        ("echo out; echo err >&2; (exit 255)", b"out\n", b"err\n", 255),
        ("for i in 1 2\ndo\n  echo $i\ndone", b"1\n2\n", b"", 0),
        ("printf '\\0\\377'", b"\0\xff", b"", 0),
        ("printf '\\0\\0\\0' >&2", b"", b"\0\0\0", 0),
        ("echo 'x", b"", unterminated, 2),
        ("true\n\nmissing", b"", b"bash: line 3: missing: command not found\n", 127),
        ("", b"", b"", 0),
        ("# nothing", b"", b"", 0),
        ("cat; read line; echo $?", b"1\n", b"", 0),
        ("continue", b"", b"", 0),
        ("echo gone >&200; echo gone >&201; echo gone >&202", b"", None, 1),
    ]:
        result = await sandbox.exec(command)
        assert (result.stdout, result.exit_code) == (stdout, code), command
        if stderr is not None:
            assert result.stderr == stderr, command
        assert (result.timed_out, result.truncated, result.shell_restarted) == (False, False, False)


async def test_a_long_command_and_a_long_output_are_whole(sandbox: AnySandbox) -> None:
    assert await out(sandbox, f"x='{'0123456789' * 5_000}'; echo ${{#x}}") == "50000"
    result = await sandbox.exec("head -c 60000 /dev/zero; head -c 50000 /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr), result.truncated) == (60_000, 50_000, False)


async def test_output_is_told_as_it_comes(sandbox: AnySandbox) -> None:
    told: list[tuple[str, bytes]] = []
    heard = asyncio.Event()

    def listen(stream: str, data: bytes) -> None:
        told.append((stream, data))
        heard.set()

    command = "echo first; until [ -e go ]; do sleep 0.01; done; echo second >&2"
    running = asyncio.ensure_future(sandbox.exec(command, None, listen))
    await heard.wait()
    assert told == [("stdout", b"first\n")]
    await sandbox.write("go", b"")
    await running
    assert told == [("stdout", b"first\n"), ("stderr", b"second\n")]


async def test_a_shell_that_ends_is_replaced(sandbox: AnySandbox) -> None:
    await sandbox.exec("mkdir inner; cd inner; echo kept > file")
    for command, stdout, code in [
        ("lost=1; echo a; exit 3", b"a\n", 3),
        ("kill -9 $$", b"", 137),
        ("echo b; kill -9 0", b"b\n", 137),
        ("exec echo replaced", b"replaced\n", 0),
        ("set -e; false", b"", 1),
    ]:
        result = await sandbox.exec(command)
        assert (result.stdout, result.exit_code, result.shell_restarted) == (stdout, code, True), command
        assert await out(sandbox, "basename $PWD; cat file; echo [$lost]") == "inner\nkept\n[]"


async def test_a_shell_that_was_killed_in_the_background_is_replaced(sandbox: AnySandbox) -> None:
    await sandbox.exec(
        "echo $BASHPID > pid; (until [ -e go ]; do sleep 0.01; done; kill -9 $$; touch killed) &"
    )
    await run(sandbox, "touch go; until [ -e killed ]; do sleep 0.01; done")
    assert await out(sandbox, "[ $BASHPID != $(cat pid) ] && echo fresh") == "fresh"


async def test_a_time_out_ends_what_the_command_started_and_nothing_else(sandbox: AnySandbox) -> None:
    await sandbox.exec("sleep 70 & echo $! > pids; sleep 0.05")
    other = asyncio.ensure_future(run(sandbox, "touch began; sleep 1; echo done"))
    await appears(sandbox, "began")
    daemon, stubborn = "setsid sleep 61 & echo $! > pids2", "(trap '' TERM; echo $BASHPID >> pids2; sleep 62)"
    result = await sandbox.exec(f"echo before; {daemon}; {stubborn}", 0.3)
    assert (result.timed_out, result.exit_code, result.shell_restarted) == (True, 124, True)
    assert result.stdout == b"before\n"
    assert 0.3 <= result.duration_s < 8
    assert await out(sandbox, ALIVE) == "alive"
    assert await out(sandbox, ALIVE.replace("pids", "pids2")) == ""
    assert (await other).stdout == b"done\n"


@pytest.mark.parametrize("command", ["while :; do :; done", "kill -STOP $$", "set -n", "yes", "exec yes >&2"])
async def test_the_shell_itself_may_never_end(command: str, sandbox: AnySandbox) -> None:
    result = await sandbox.exec(command, 2 if "yes" in command else 0.3)  # time enough to print too much
    assert (result.timed_out, result.truncated) == (True, "yes" in command)
    assert await out(sandbox, "echo still here") == "still here"


async def test_background_processes_do_not_hold_a_command_up(sandbox: AnySandbox) -> None:
    result = await sandbox.exec("sleep 60 & yes >&2 & echo done")
    assert (result.stdout, result.exit_code) == (b"done\n", 0)
    assert result.duration_s < 5
    result = await sandbox.exec("echo own; kill %1 %2")
    assert (result.stdout, result.exit_code) == (b"own\n", 0)


async def test_late_output_of_the_background_is_not_taken_for_a_later_commands(sandbox: AnySandbox) -> None:
    await sandbox.exec("(until [ -e go ]; do sleep 0.01; done; echo late; echo late >&2; touch written) &")
    await run(sandbox, "touch go; until [ -e written ]; do sleep 0.01; done")
    result = await sandbox.exec("echo own")
    assert (result.stdout, result.stderr) == (b"own\n", b"")


async def test_what_runs_in_the_background_outlives_its_shell(sandbox: AnySandbox) -> None:
    """Also when it writes more than a pipe holds."""
    await sandbox.exec("(until [ -e go ]; do sleep 0.01; done; head -c 300000 /dev/zero; touch written) &")
    await sandbox.exec("exit")
    if isinstance(sandbox, LocalSandbox):
        pytest.skip("the local shell keeps one pipe, which a later command drains")
    await run(sandbox, "touch go; until [ -e written ]; do sleep 0.01; done")
    assert await out(sandbox, "echo own") == "own"


async def test_output_of_exactly_the_limit_is_not_truncated(make: Make) -> None:
    sandbox = await make(limits={"output_bytes": 1000})
    await sandbox.start()
    for count, truncated in ((1000, False), (1001, True)):
        result = await sandbox.exec(f"head -c {count} /dev/zero")
        assert (len(result.stdout), result.truncated) == (1000, truncated)
        result = await run(sandbox, f"head -c {count} /dev/zero >&2")
        assert (len(result.stderr), result.truncated) == (1000, truncated)


async def test_large_files_fail(make: Make) -> None:
    sandbox = await make(limits={"file_mb": 1})
    await sandbox.start()
    assert await out(sandbox, "head -c 2000000 /dev/zero > big; echo $?; stat -c %s big") == "153\n1048576"


async def test_a_cancelled_command_is_ended_and_the_sandbox_goes_on(sandbox: AnySandbox) -> None:
    command = asyncio.ensure_future(sandbox.exec("sleep 61"))
    await asyncio.sleep(0)
    command.cancel()
    await asyncio.wait([command])
    command = asyncio.ensure_future(sandbox.exec("echo $BASHPID > pids; touch began; sleep 62; touch ended"))
    await appears(sandbox, "began")
    command.cancel()
    await asyncio.wait([command])
    assert await out(sandbox, "ls ended 2>/dev/null; " + ALIVE) == ""


async def test_commands_given_at_once_run_one_after_the_other(sandbox: AnySandbox) -> None:
    commands = [f"for i in 1 2 3; do echo {n} >> log; done; echo {n}" for n in range(8)]
    results = await asyncio.gather(*map(sandbox.exec, commands))
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]
    assert await out(sandbox, "uniq log | wc -l") == "8"


async def test_a_program_runs_apart_from_the_shell(sandbox: AnySandbox) -> None:
    await sandbox.exec("mkdir sub; cd sub; export mine=1")
    script = "cat; basename $PWD; echo $mine$given; exit 7"
    result = await run(sandbox, script, env={"given": "x y"}, cwd="sub")
    assert (result.stdout, result.exit_code) == (b"sub\nx y\n", 7)
    result = await sandbox.run(["no-such-program"], 10)
    assert result.exit_code == 127
    assert b"no-such-program" in result.stderr
    assert (await run(sandbox, "kill -9 $$")).exit_code == 137


async def test_a_program_that_does_not_end_is_ended(sandbox: AnySandbox) -> None:
    result = await run(sandbox, "setsid sleep 63 & echo $! > pids; echo $$ >> pids; echo hi; sleep 64", 0.4)
    assert (result.stdout, result.timed_out, result.exit_code) == (b"hi\n", True, 124)
    assert await out(sandbox, ALIVE) == ""


async def test_a_program_is_over_whatever_it_left_in_the_background(sandbox: AnySandbox) -> None:
    result = await run(sandbox, "sleep 60 & echo $! > pids; exit 4")
    assert result.exit_code == 4
    assert result.duration_s < 5
    assert await out(sandbox, ALIVE) == "alive"


async def test_files_go_in_and_out(sandbox: AnySandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5_000
    await sandbox.write("new/folder/x y", data, 0o750)
    assert await sandbox.read("new/folder/x y") == data
    assert await out(sandbox, "stat -c %a new/folder/*; ln -s 'new/folder/x y' link; mkfifo pipe") == "750"
    for missing in ("nothing", "new", "pipe", "new/folder/x y/z"):
        with pytest.raises(FileNotFoundError, match=missing):
            await sandbox.read(missing)
    with pytest.raises(SandboxError, match="could not write new: "):
        await sandbox.write("new", b"")
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/sub/.hidden").write_bytes(b"\0")
    (tmp_path / "up/link").symlink_to("sub")
    await sandbox.upload(tmp_path / "up", "here")
    assert await sandbox.read("here/sub/.hidden") == b"\0"
    me = await out(sandbox, "id -un")
    assert await out(sandbox, "readlink here/link; stat -c '%a %U' here") == f"sub\n755 {me}"


async def test_a_snapshot_is_gone_back_to(sandbox: AnySandbox) -> None:
    await sandbox.exec("mkdir -p d/e; cd d; echo 1 > f; ln -s f l; chmod 600 f; cd e")
    snapshot = await sandbox.snapshot()
    await sandbox.exec("cd ..; rm -r e l; echo 2 > f; touch new; cd ..; lost=1; sleep 61 & sleep 0.05")
    second = await sandbox.snapshot()
    for _ in range(2):
        await sandbox.restore(snapshot)
        command = "cd ..; ls; cat l; stat -c %a f; basename $PWD; echo [$lost]"
        assert await out(sandbox, command) == "e\nf\nl\n1\n600\nd\n[]"
    await sandbox.restore(second)
    assert await out(sandbox, "cat d/f; ls d") == "2\nf\nnew"
    with pytest.raises(SandboxError, match="has no such snapshot"):
        await sandbox.restore(type(snapshot)("other", "/"))


async def test_all_that_runs_can_be_ended(sandbox: AnySandbox) -> None:
    await sandbox.exec("sleep 60 & echo $! > pids; setsid sleep 61 & echo $! >> pids; cd /; sleep 0.05")
    await sandbox.end_processes()
    assert await out(sandbox, "cd - >/dev/null; " + ALIVE) == ""


async def test_files_and_setup_are_there_at_the_start(make: Make, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/data").write_text("1")
    (tmp_path / "setup.sh").write_text("cat data data > twice; it=lost\n")
    sandbox = await make(files=tmp_path / "files", setup=tmp_path / "setup.sh")
    await sandbox.start()
    assert await out(sandbox, "cat twice; stat -c %Y data; echo [$it]") == "111704067200\n[]"


async def test_a_setup_script_that_fails_names_the_reason(make: Make, tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("echo the reason >&2\nexit 4\n")
    sandbox = await make(setup=tmp_path / "setup.sh")
    with pytest.raises(SandboxError, match=r"of test failed in .*setup.sh with exit code 4: the reason$"):
        await sandbox.start()
    with pytest.raises(SandboxError, match="is not running"):
        await sandbox.exec("true")


async def test_a_sandbox_starts_once_and_stops_twice(make: Make) -> None:
    sandbox = await make()
    with pytest.raises(SandboxError, match="sandbox of test is not running"):
        await sandbox.exec("true")
    await sandbox.start()
    with pytest.raises(SandboxError, match="started before"):
        await sandbox.start()
    with pytest.raises(ValueError, match="cannot contain a NUL"):
        await sandbox.exec("echo \0")
    await sandbox.stop()
    await sandbox.stop()
    with pytest.raises(SandboxError, match="is not running"):
        await sandbox.read("x")


async def test_stopping_ends_a_running_command(sandbox: AnySandbox) -> None:
    command = asyncio.ensure_future(sandbox.exec("touch began; sleep 60"))
    await appears(sandbox, "began")
    await sandbox.stop()
    with pytest.raises(SandboxError, match="sandbox of test"):
        await command
