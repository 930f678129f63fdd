"""Every family: its expert solves the task, doing nothing does not, and the two splits share no content.

The experts of the slow families are at work in `test_slow_families.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.expert import demonstrate, with_slips
from tasks.families import ALL_FAMILIES, EVAL_SEED, FAMILIES
from tasks.harbor import load_task, write_task
from tasks.sandbox.namespace import NamespaceSandbox

SEEDS = [0, 1, EVAL_SEED, EVAL_SEED + 1]


@pytest.mark.parametrize("name", FAMILIES)
async def test_the_expert_reaches_reward_1_with_and_without_slips(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        generated = FAMILIES[name].generate(seed)
        task = load_task(write_task(generated, tmp_path))
        for slips in (0.0, 0.5):
            demonstration = await demonstrate(generated, task, NamespaceSandbox.for_task(task), slips)
            assert demonstration.reward == 1.0, demonstration
            assert demonstration.acts[-1].command is None


@pytest.mark.parametrize("name", FAMILIES)
async def test_an_untouched_sandbox_gets_reward_0(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        task = load_task(write_task(FAMILIES[name].generate(seed), tmp_path))
        async with NamespaceSandbox.for_task(task) as sandbox:
            assert await sandbox.verify(task) == 0.0, task.id


@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_a_task_is_a_pure_function_of_its_seed(name: str) -> None:
    first, second = (ALL_FAMILIES[name].generate(5) for _ in range(2))
    assert (first.instruction, first.files, first.test_sh) == (
        second.instruction,
        second.files,
        second.test_sh,
    )
    steps = [_commands(task.expert(), name) for task in (first, second, first)]
    assert steps[0] == steps[1] == steps[2]


@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_training_and_evaluation_share_no_file_content(name: str) -> None:
    training = {text for seed in range(300) for text in ALL_FAMILIES[name].generate(seed).files.values()}
    evaluation = {
        text for seed in range(300) for text in ALL_FAMILIES[name].generate(EVAL_SEED + seed).files.values()
    }
    assert len(evaluation) > 290
    assert not training & evaluation


def test_slips_change_only_commands_that_read() -> None:
    changed = 0
    for family in ALL_FAMILIES.values():
        for seed in range(20):
            generated = family.generate(seed)
            plain = _commands(generated.expert(), family.name)
            slipped = _commands(with_slips(generated.expert(), generated.id, 0.5), family.name)
            assert [step for step in slipped if step in plain] == plain
            changed += len(slipped) > len(plain)
    assert changed > len(ALL_FAMILIES)


def _commands(expert: object, name: str) -> list[str | None]:
    """The commands of an expert that is told nothing useful."""
    steps = []
    step = next(expert)  # type: ignore[call-overload]
    while True:
        steps.append(step.command)
        try:
            step = expert.send(f"nothing from {name}\n(exit_code=0)")  # type: ignore[attr-defined]
        except StopIteration:
            return steps
