"""Task directories: what is written reads back, and each defect gets a sentence."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.families.base import Expert, GeneratedTask, Step
from tasks.harbor import check, load_task, resolve_env, write_task
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.task import Healthcheck, TaskError
from tests.tasks.harbor_tasks import make


def expert() -> Expert:
    yield Step("I make it.", "echo made > result")


TASK = GeneratedTask(
    family="making",
    seed=7,
    instruction="Make the file result.",
    files={"notes/a.txt": "größe\n", "run.sh": "#!/bin/bash\necho ran\n"},
    test_sh='[ "$(cat result)" = made ]\n[ -s setup.txt ]\n',
    expert=expert,
    setup_sh="date +%Z > setup.txt\n",
    executable=frozenset({"run.sh"}),
)


def test_a_written_task_reads_back(tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path)
    task = load_task(path)
    assert path == tmp_path / "making" / "7"
    assert (task.id, task.family, task.instruction) == ("making/7", "making", "Make the file result.")
    assert (task.agent_timeout_s, task.verifier_timeout_s, task.memory_mb) == (120.0, 30.0, 512)
    assert task.metadata["seed"] == 7
    assert task.setup == path / "environment" / "setup.sh"
    assert (task.files / "notes/a.txt").read_text() == "größe\n"
    assert (task.files / "run.sh").stat().st_mode & 0o777 == 0o755


def test_writing_again_replaces_the_whole(tmp_path: Path) -> None:
    path = write_task(TASK, tmp_path)
    (path / "environment/files/stale").touch()
    assert write_task(dataclasses.replace(TASK, setup_sh=None, executable=frozenset()), tmp_path) == path
    assert not (path / "environment/files/stale").exists()
    assert load_task(path).setup is None
    assert [child.name for child in path.parent.iterdir()] == ["7"]


async def test_the_checks_decide_the_reward(tmp_path: Path) -> None:
    task = load_task(write_task(TASK, tmp_path))
    for command, reward in (("true", 0.0), ("echo wrong > result", 0.0), ("echo made > result", 1.0)):
        async with NamespaceSandbox.for_task(task) as sandbox:
            assert (await sandbox.exec("./run.sh && cat setup.txt")).stdout == b"ran\nUTC\n"
            await sandbox.exec(command)
            assert await sandbox.verify(task) == reward


PLANT = "echo 1 > /logs/verifier/reward.txt; chmod 400 /logs/verifier/reward.txt"


@pytest.mark.parametrize(
    ("script", "reward"),
    [
        (PLANT, 0.0),
        (f"{PLANT}; chmod 500 /logs/verifier /logs", 0.0),
        ("mkdir -p /logs/verifier/reward.txt/x; chmod 0 /logs/verifier/reward.txt", 0.0),
        (
            f"setsid bash -c 'while :; do rm -f /logs/verifier/reward.txt; {PLANT}; done' > /dev/null 2>&1 &",
            0.0,
        ),
        ("echo 'echo 1 > /logs/verifier/reward.txt' | tee -a /tests/*.sh", 0.0),
        (": > /tests/check.sh", 0.0),
        (f"{PLANT}; for p in /proc/[0-9]*; do prlimit --pid ${{p#/proc/}} --nproc=1; done", 0.0),
        (
            f"{PLANT}; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || kill -9 ${{p#/proc/}}; done",
            0.0 if os.geteuid() == 0 else None,  # with one user it kills the verifier, which is no verdict
        ),
    ],
)
async def test_what_a_check_runs_of_the_agents_work_gives_no_reward(
    script: str, reward: float | None, tmp_path: Path
) -> None:
    generated = dataclasses.replace(TASK, test_sh="bash mine.sh\nfalse\n")
    task = load_task(write_task(generated, tmp_path))
    async with NamespaceSandbox.for_task(task) as sandbox:
        await sandbox.write("/work/mine.sh", script.encode())
        if reward is None:
            with pytest.raises(SandboxError, match="has no verdict"):
                await sandbox.verify(task)
        else:
            assert await sandbox.verify(task) == reward


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../x": ""}},
        {"files": {"/etc/x": ""}},
        {"executable": frozenset({"missing"})},
    ],
)
def test_a_task_that_cannot_be_written_leaves_nothing(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="making/7"):
        write_task(dataclasses.replace(TASK, **change), tmp_path)  # type: ignore[arg-type]
    assert list((tmp_path / "making").iterdir()) == []


def test_a_task_of_others_is_read_with_harbors_defaults(tmp_path: Path) -> None:
    path = make(tmp_path / "set" / "make-result", {"task.toml": ""})
    task = load_task(path)
    assert (task.id, task.family) == ("set/make-result", "set")
    assert task.instruction == "Make the file `result`.\n\nIt holds one word."
    assert (task.agent_timeout_s, task.verifier_timeout_s, task.build_timeout_s) == (600.0, 600.0, 600.0)
    assert (task.memory_mb, task.storage_mb, task.cpus, task.gpus) == (None, None, None, 0)
    assert (task.allow_internet, task.agent_user, task.docker_image, task.healthcheck) == (
        True,
        None,
        None,
        None,
    )
    assert task.dockerfile == path / "environment/Dockerfile"
    assert task.solution == path / "solution/solve.sh"
    assert task.setup is None
    (path / "solution/solve.sh").unlink()
    assert task.solution is None


EVERYTHING = """\
schema_version = "1.1"
future = { kept = true }

[task]
name = "someone/thing"
description = "A thing."
authors = [{ name = "A", email = "a@example.com" }]
keywords = ["one"]

[metadata]
seed = 5
anything = [1, "two"]

[agent]
timeout_sec = 90
user = "dev"

[verifier]
timeout_sec = 120.5
user = 1000
env = { KEY = "${KEY:-none}", PORT = 8080 }

[solution]
env = { TOKEN = "${TOKEN}" }

[environment]
build_timeout_sec = 1200
docker_image = "python:3.12"
cpus = 2
memory = "4G"
storage_mb = 512
allow_internet = false
workdir = "/srv"
env = { MODE = "test" }
mcp_servers = [{ name = "m", url = "http://m:8000/sse" }]
new_field = 3

[environment.healthcheck]
command = "pg_isready"
interval_sec = 1
retries = 10
"""


def test_all_fields_are_read_and_unknown_ones_are_kept(tmp_path: Path) -> None:
    task = load_task(make(tmp_path / "t", {"task.toml": EVERYTHING, "environment/Dockerfile": None}), "id/1")
    assert (task.id, task.family) == ("id/1", tmp_path.name)
    assert (task.agent_timeout_s, task.verifier_timeout_s, task.build_timeout_s) == (90.0, 120.5, 1200.0)
    assert (task.memory_mb, task.storage_mb, task.cpus) == (4096, 512, 2.0)
    assert (task.agent_user, task.verifier_user, task.workdir) == ("dev", "1000", "/srv")
    assert (task.docker_image, task.allow_internet) == ("python:3.12", False)
    assert task.verifier_env == {"KEY": "${KEY:-none}", "PORT": "8080"}
    assert (task.solution_env, task.environment_env) == ({"TOKEN": "${TOKEN}"}, {"MODE": "test"})
    assert task.healthcheck == Healthcheck("pg_isready", interval_s=1.0, retries=10)
    assert task.metadata == {"seed": 5, "anything": [1, "two"]}
    assert task.settings == tomllib.loads(EVERYTHING)


@pytest.mark.parametrize(
    ("memory", "megabytes"),
    [
        ('memory = "4G"', 4096),
        ('memory = "512M"', 512),
        ('memory = "2Gi"', 2048),
        ('memory = "1.5gb"', 1536),
        ('memory = "100mb"', 100),
        ('memory = "1048576k"', 1024),
        ('memory = "1T"', 1 << 20),
        ('memory = "268435456"', 256),
        ("memory = 268435456", 256),
        ("memory_mb = 2048.0", 2048),
        ('memory_mb = "300"', 300),
        ('memory_mb = 100\nmemory = "1G"', 1024),
    ],
)
def test_sizes(memory: str, megabytes: int, tmp_path: Path) -> None:
    toml = f"[environment]\n{memory}\n" + memory.replace("memory", "storage") + "\n"
    task = load_task(make(tmp_path / "t", {"task.toml": toml}))
    assert (task.memory_mb, task.storage_mb) == (megabytes, megabytes)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ("", True),
        ("allow_internet = false", False),
        ('network_mode = "no-network"', False),
        ('allow_internet = false\nnetwork_mode = "public"', True),
        ('network_mode = "allowlist"\nallowed_hosts = ["example.com"]', False),
        ('allowed_hosts = ["example.com"]', False),
    ],
)
def test_internet(fields: str, allowed: bool, tmp_path: Path) -> None:
    path = make(tmp_path / "t", {"task.toml": f"[environment]\n{fields}\n"})
    assert load_task(path).allow_internet is allowed


def test_variables_are_taken_from_the_host_only_as_a_whole_value() -> None:
    values = {"A": "${A}", "B": "${B:-b}", "C": "${C:-}", "D": "x${A}", "E": "$A", "F": "plain"}
    assert resolve_env(values, {"A": "1", "B": "2"}) == {
        "A": "1",
        "B": "2",
        "C": "",
        "D": "x${A}",
        "E": "$A",
        "F": "plain",
    }
    with pytest.raises(TaskError, match=r"A = '\$\{A\}' needs the variable A: set it"):
        resolve_env(values, {})


def edit(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(text)


def toml(text: str) -> Callable[[Path], object]:
    return edit("task.toml", text)


def remove(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).rename(path.parent / "elsewhere")


def folder(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return change


def link(name: str, target: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(target)

    return change


DEFECTS: list[tuple[Callable[[Path], object], str]] = [
    (remove("task.toml"), r"task.toml is missing"),
    (remove("instruction.md"), r"instruction.md is missing"),
    (remove("tests"), r"tests/test.sh is missing"),
    (remove("tests/test.sh"), r"tests/test.sh is missing: test_result.py alone is not run; add"),
    (remove("environment"), r"Dockerfile is missing: add it, or name environment.docker_image"),
    (edit("environment/docker-compose.yaml", "services: {}"), r"docker-compose.yaml describes several"),
    (edit("instruction.md", " \n"), r"instruction.md is empty"),
    (folder("instruction.md"), r"instruction.md is not a file"),
    (folder("environment/Dockerfile"), r"Dockerfile is not a file"),
    (link("instruction.md", "/etc/hostname"), r"instruction.md is a link that leaves the task directory"),
    (link("instruction.md", "instruction.md"), r"instruction.md cannot be read"),
    (link("solution/solve.sh", "/etc/hostname"), r"solve.sh is a link that leaves the task directory"),
    (
        lambda path: (path / "environment/setup.sh").symlink_to("/etc/hostname"),
        r"setup.sh is a link that leaves the task directory",
    ),
    (
        lambda path: (path / "environment/files").symlink_to("/etc"),
        r"environment/files is a link that leaves the task directory",
    ),
    (lambda path: (path / "instruction.md").write_bytes(b"\xff"), r"instruction.md is not UTF-8"),
    (toml("= 3"), r"task.toml:1 is not valid TOML \(Invalid statement\)"),
    (toml("a = " + "[" * 100_000), r"task.toml is not valid TOML \(it is nested too deeply\)"),
    (toml("a = " + "9" * 5_000), r"task.toml is not valid TOML"),
    (toml("agent = 3"), r"task.toml:1 has agent = 3: it must be a table"),
    (
        toml('[agent]\n\ntimeout_sec = "soon"'),
        r"task.toml:3 has agent.timeout_sec = 'soon': it must be a number",
    ),
    (toml("[agent]\ntimeout_sec = true"), r"agent.timeout_sec = True: it must be a number above 0"),
    (toml("[verifier]\ntimeout_sec = 0"), r"verifier.timeout_sec = 0: it must be a number above 0"),
    (toml("[verifier]\ntimeout_sec = inf"), r"verifier.timeout_sec = inf: it must be a number"),
    (toml("[verifier]\ntimeout_sec = 0x" + "f" * 5_000), r"timeout_sec = a very long number"),
    (toml("[verifier]\nenv = { A = [1] }"), r"verifier.env.A = \[1\]: it must be text"),
    (toml("[environment]\nmemory_mb = []"), r"environment.memory_mb = \[\]: it must be a number"),
    (toml('[environment]\nmemory = "much"'), r"environment.memory = 'much': it must be a size like"),
    (toml("[environment]\nmemory = 2048"), r"memory = 2048: it must be a size .*bare number counts bytes"),
    (toml("[environment]\ncpus = -1"), r"environment.cpus = -1: it must be a number above 0"),
    (toml("[environment]\ngpus = 0.5"), r"environment.gpus = 0.5: it must be a whole number"),
    (toml('[environment]\nallow_internet = "maybe"'), r"allow_internet = 'maybe': it must be true or false"),
    (toml('[environment]\nnetwork_mode = "x"'), r"network_mode = 'x': it must be 'public', 'no-network' or"),
    (toml('[environment]\ndocker_image = ""'), r"docker_image = '': it must be text that is not empty"),
    (toml("[environment.healthcheck]\nretries = 3"), r"task.toml:1 lacks environment.healthcheck.command"),
    (toml('[environment]\nos = "windows"'), r"task.toml:2 names environment.os = 'windows': only linux"),
    (
        toml('[verifier]\nenvironment_mode = "separate"'),
        r"task.toml:1 asks for an environment of the verifier",
    ),
    (toml('[[steps]]\nname = "one"'), r"task.toml:1 has \[\[steps\]\], which cannot be run"),
]


@pytest.mark.parametrize(("change", "says"), DEFECTS)
def test_each_defect_gets_a_sentence(change: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    path = make(tmp_path / "task")
    change(path)
    with pytest.raises(TaskError, match=says) as error:
        load_task(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    errors = [
        f"{path / problem.where} {problem.what}" for problem in check(path) if problem.severity == "error"
    ]
    assert str(error.value) in errors


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is not a folder"):
        load_task(tmp_path / "nowhere")
    assert [problem.severity for problem in check(tmp_path / "nowhere")] == ["error"]


def test_a_good_task_has_no_problems(tmp_path: Path) -> None:
    assert check(make(tmp_path / "task")) == []
    assert check(write_task(TASK, tmp_path)) == []


def test_check_names_every_problem(tmp_path: Path) -> None:
    text = '[agent]\ntimeout_sec = "x"\n[environment]\ncpus = 0\nmemory_mb = "y"\n'
    path = make(
        tmp_path / "task",
        {
            "task.toml": text,
            "instruction.md": None,
            "tests/test.sh": "true\r\n",
            "environment/Dockerfile": "FROM debian:12\nRUN true\nCOPPY a b\n",
        },
    )
    assert [(problem.severity, problem.where) for problem in check(path)] == [
        ("error", "task.toml:2"),
        ("error", "task.toml:4"),
        ("error", "task.toml:5"),
        ("error", "instruction.md"),
        ("error", "environment/Dockerfile:3"),
        ("warning", "tests/test.sh:1"),
        ("warning", "tests/test.sh:1"),
        ("warning", "tests/test.sh"),
    ]


@pytest.mark.parametrize(
    ("changes", "where", "says"),
    [
        ({"task.toml": ""}, "task.toml", "names no version"),
        ({"task.toml": 'schema_version = "1.4"'}, "task.toml:1", "has version '1.4'"),
        (
            {"task.toml": 'version = "1.0"\n[agent]\ntimout_sec = 3'},
            "task.toml:3",
            "unknown field agent.timout_sec: did you mean 'timeout_sec'?",
        ),
        (
            {"task.toml": 'version = "1.0"\n[environment]\nzzz = 3'},
            "task.toml:3",
            "unknown field environment.zzz: it is kept, and not followed",
        ),
        ({"task.toml": 'version = "1.0"\n[task]\nname = 3'}, "task.toml:3", "task.name = 3: it must be text"),
        ({"task.toml": 'version = "1.0"\n[environment]\ngpus = 1'}, "task.toml:3", "has environment.gpus"),
        (
            {"task.toml": 'version = "1.0"\n[environment]\nmemory_mb = 1\nmemory = "2G"'},
            "task.toml:4",
            "has both environment.memory and memory_mb",
        ),
        (
            {"task.toml": 'version = "1.0"\n[agent]\nnetwork_mode = "no-network"'},
            "task.toml:3",
            "has a network of the agent's own",
        ),
        ({"tests/test.sh": "#!/bin/bash\ntrue\n"}, "tests/test.sh", "writes no reward.txt or reward.json"),
        ({"tests/test.sh": "echo 1 > reward.txt\n"}, "tests/test.sh:1", "has no #! line"),
        ({"solution/solve.sh": "#!/bin/sh\n\nls\r\n"}, "solution/solve.sh:3", "has Windows line ends"),
        ({"solution/solve.sh": b"#!/bin/sh\n\xff\n"}, "solution/solve.sh:2", "is not UTF-8 text"),
    ],
)
def test_each_warning(changes: dict[str, str], where: str, says: str, tmp_path: Path) -> None:
    path = make(tmp_path / "task", changes)
    (problem,) = check(path)
    assert (problem.severity, problem.where) == ("warning", where)
    assert says in problem.what
    assert load_task(path)


def test_scripts_that_are_not_executable_and_links_that_leave(tmp_path: Path) -> None:
    path = make(tmp_path / "task")
    (path / "tests/test.sh").chmod(0o644)
    (path / "environment/inside").symlink_to("Dockerfile")
    (path / "environment/outside").symlink_to("/etc")
    assert [(problem.where, problem.what.partition(":")[0]) for problem in check(path)] == [
        ("environment/outside", "is a link to /etc"),
        ("tests/test.sh", "is not executable"),
    ]


def test_a_problem_is_one_line_whatever_names_the_task_uses(tmp_path: Path) -> None:
    path = make(tmp_path / "task", {"task.toml": 'version = "1.0"\n[agent]\n"a\\nb" = 1\n'})
    odd = os.fsdecode(b"tests/\xff\n\x1b[2J.sh")
    (path / odd).write_text("#!/bin/bash\r\n")
    (path / "tests/link").symlink_to("/a\nb")
    problems = check(path)
    assert len(problems) == 3
    for problem in problems:
        assert f"{problem.where} {problem.what}".isprintable()


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("COPY app.py /app/", True),
        ("COPY sub/../app.py /app/", True),
        ("ADD data.tar /app/", True),
        ("COPY ../Dockerfile /app/", False),
        ("COPY . /app/", False),
        ("COPY *.py /app/", False),
        ("COPY $NAME /app/", False),
        ("COPY --from=base app.py /app/", False),
        ("COPY <<EOF /app/app.py\nx\nEOF", False),
        ("ADD https://example.com/app.py /app/", False),
    ],
)
def test_files_to_copy_that_are_not_there(line: str, missing: bool, tmp_path: Path) -> None:
    path = make(tmp_path / "task", {"environment/Dockerfile": f"FROM debian:12 AS base\n{line}\n"})
    found = [(problem.severity, problem.where) for problem in check(path)]
    assert found == ([("error", "environment/Dockerfile:2")] if missing else [])


KEYS = st.sampled_from(
    ["agent", "environment", "verifier", "task", "steps", "memory", "timeout_sec", "env", "x"]
)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=9).map(json.dumps),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4) | st.text())
def test_check_never_raises_and_agrees_with_load(value: dict[str, object] | str) -> None:
    text = value if isinstance(value, str) else "\n".join(f"{k} = {as_toml(v)}" for k, v in value.items())
    with TemporaryDirectory() as folder:
        path = make(Path(folder) / "task", {"task.toml": text.encode(errors="surrogatepass")})
        problems = check(path)
        assert all("\n" not in problem.what for problem in problems)
        if any(problem.severity == "error" for problem in problems):
            with pytest.raises(TaskError):
                load_task(path)
        else:
            load_task(path)
