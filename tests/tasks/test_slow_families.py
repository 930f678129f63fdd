"""The slow families: real work, short observations that two runs share, and no reward without the work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.expert import demonstrate
from tasks.families import ALL_FAMILIES, EVAL_SEED, FAMILIES, SLOW_FAMILIES, GeneratedTask, family
from tasks.families.slow.mixing import header, mix
from tasks.families.slow.test_suite import KINDS
from tasks.harbor import load_task, write_task
from tasks.observation import canonical
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.task import Task, TaskError

LONGEST = 330
"""Characters of an observation, so that a whole trajectory fits in the tiny models' context."""


@pytest.mark.parametrize("name", SLOW_FAMILIES)
async def test_the_expert_reaches_reward_1_and_two_runs_see_the_same(name: str, tmp_path: Path) -> None:
    generated, task = _task(name, EVAL_SEED, tmp_path)
    first, second = [await demonstrate(generated, task, NamespaceSandbox.for_task(task)) for _ in range(2)]
    assert first.reward == 1.0, first
    assert first == second
    assert max(len(act.observation or "") for act in first.acts) <= LONGEST


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_FAMILIES)
async def test_the_expert_reaches_reward_1_with_slips(name: str, tmp_path: Path) -> None:
    for seed in (*range(4), *range(EVAL_SEED, EVAL_SEED + 4)):
        generated, task = _task(name, seed, tmp_path)
        demonstration = await demonstrate(generated, task, NamespaceSandbox.for_task(task), 0.5)
        assert demonstration.reward == 1.0, demonstration


@pytest.mark.parametrize("name", SLOW_FAMILIES)
async def test_an_expert_who_leaves_out_the_work_gets_reward_0(name: str, tmp_path: Path) -> None:
    generated, task = _task(name, 1, tmp_path)
    needed = {"compile": "make", "install": "./install.py", "service": "./start.sh", "test_suite": "sed"}[
        name
    ]
    async with NamespaceSandbox.for_task(task) as sandbox:
        expert = generated.expert()
        step = next(expert)
        while step.command is not None:
            if not step.command.startswith(needed):
                await sandbox.exec(step.command)
            step = expert.send("")
        assert await sandbox.verify(task) == 0.0


@pytest.mark.parametrize("name", SLOW_FAMILIES)
async def test_an_untouched_sandbox_gets_reward_0(name: str, tmp_path: Path) -> None:
    for seed in (0, EVAL_SEED + 1):
        _, task = _task(name, seed, tmp_path)
        async with NamespaceSandbox.for_task(task) as sandbox:
            assert await sandbox.verify(task) == 0.0, task.id


@pytest.mark.parametrize("name", ["compile", "install"])
async def test_the_right_answer_without_the_work_gets_reward_0(name: str, tmp_path: Path) -> None:
    generated, task = _task(name, 0, tmp_path)
    answer = re.match(r"\[ \"\$\(cat (?P<path>\S+)\)\" = '(?P<text>.*)' \]", generated.test_sh)
    assert answer is not None
    async with NamespaceSandbox.for_task(task) as sandbox:
        await sandbox.write(f"/work/{answer['path']}", answer["text"].encode())
        assert await sandbox.verify(task) == 0.0


@pytest.mark.parametrize("name", SLOW_FAMILIES)
def test_no_task_sleeps(name: str) -> None:
    generated = SLOW_FAMILIES[name].generate(2)
    texts = [*generated.files.values(), generated.test_sh, generated.setup_sh or ""]
    assert not any("sleep" in text for text in texts)


async def test_a_test_that_is_changed_in_place_of_the_function_gets_reward_0(tmp_path: Path) -> None:
    _, task = _task("test_suite", 0, tmp_path)
    async with NamespaceSandbox.for_task(task) as sandbox:
        await sandbox.exec("sed -i 's/self.assert.*/pass/' tests/*")
        assert canonical(await sandbox.exec("./run_tests.py")).endswith("ok\n(exit_code=0)")
        assert await sandbox.verify(task) == 0.0


async def test_a_service_answers_one_way_whenever_it_is_asked(tmp_path: Path) -> None:
    generated, task = _task("service", 0, tmp_path)
    name = next(text for path, text in generated.files.items() if path.endswith(".tsv")).split()[0]
    async with NamespaceSandbox.for_task(task) as sandbox:

        async def see(command: str) -> str:
            return canonical(await sandbox.exec(command))

        assert await see("./poll.sh") == "the service does not run\n(exit_code=1)"
        assert await see("./start.sh") == "started\n(exit_code=0)"
        assert await see("./start.sh") == "the service runs already\n(exit_code=1)"
        early = await see(f"./ask.sh {name}")
        assert re.fullmatch(rf"{name} \d+\n\(exit_code=0\)", early)
        assert await see("./poll.sh") == "ready, 3 names\n(exit_code=0)"
        assert await see(f"./ask.sh {name}") == early
        assert await see("./ask.sh nobody") == "nobody is unknown\n(exit_code=1)"


async def test_an_installer_refuses_what_is_damaged_and_does_not_repeat_itself(tmp_path: Path) -> None:
    generated, task = _task("install", 0, tmp_path)
    pins = dict(line.split() for line in generated.files["pins.txt"].splitlines())
    base, top, other = pins
    async with NamespaceSandbox.for_task(task) as sandbox:

        async def see(command: str) -> str:
            return canonical(await sandbox.exec(command))

        assert await see("./run.py nothing") == "nothing is not installed\n(exit_code=1)"
        assert await see("./install.py nothing") == "no nothing in pins.txt\n(exit_code=1)"
        installed = [f"installed {name} {pins[name]}" for name in (base, top)]
        assert await see(f"./install.py {top}") == "\n".join([*installed, "(exit_code=0)"])
        assert await see(f"./install.py {top}") == f"{top} {pins[top]} is there already\n(exit_code=0)"
        archive = f"{other}-{pins[other]}.sdist"
        await sandbox.exec(f"echo >> index/{archive}")
        assert await see(f"./install.py {other}") == f"{archive} is damaged\n(exit_code=1)"


async def test_the_compiler_and_python_agree_on_what_is_mixed(tmp_path: Path) -> None:
    main = (
        '#include <stdio.h>\n#include "mix.h"\nint main(void) { unsigned x = 7; MIX(x) printf("%u", x); }\n'
    )
    async with NamespaceSandbox.for_task(_task("compile", 0, tmp_path)[1]) as sandbox:
        await sandbox.write("/tmp/mix.h", header("amber_fox").encode())
        await sandbox.write("/tmp/main.c", main.encode())
        result = await sandbox.exec("gcc -O0 -o /tmp/main /tmp/main.c && /tmp/main")
    assert result.stdout.decode() == str(mix(7)), result


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.says)
def test_a_hidden_test_tells_a_broken_function_from_the_right_one(kind: object) -> None:
    assert isinstance(kind, type(KINDS[0]))
    expression, value = kind.hidden
    assert kind.body.count(kind.right) == 1
    values = []
    for body in (kind.body, kind.body.replace(kind.right, kind.wrong)):
        names: dict[str, object] = {}
        exec(body, names)
        values.append(str(eval(expression, names)))
    assert values[0] == value != values[1]


def test_a_family_is_found_by_name_slow_or_not() -> None:
    assert family("compile").name == "compile"
    assert family("csv_edit") is FAMILIES["csv_edit"]
    assert len(ALL_FAMILIES) == len(FAMILIES) + len(SLOW_FAMILIES)
    with pytest.raises(TaskError, match="no family 'compiles': the families are archive, "):
        family("compiles")


def _task(name: str, seed: int, root: Path) -> tuple[GeneratedTask, Task]:
    generated = SLOW_FAMILIES[name].generate(seed)
    return generated, load_task(write_task(generated, root))
