"""Engine figures from rollouts: where those come from engines of known figures, the same are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.schema import PRESETS, Rollout, RolloutStatus
from orchestrator.simulation.batching import EngineSpeed
from orchestrator.simulation.fit import Calibration, FitError, fit
from orchestrator.simulation.play import Engines, play
from orchestrator.simulation.replay import Predictions, compare, plan
from orchestrator.simulation.workload import Workload

ENGINES = Engines(
    EngineSpeed(0.008, 0.002, 0.03, call_s=0.002),
    EngineSpeed(0.004, 0.001, 0.02, call_s=0.002),
    slowdown=0.2,
)
WORKLOAD = Workload(tasks=4, group=4, turns=4, action_tokens=25, observation_tokens=15, tool_s=0.4)
CONCURRENCY = 4


def recorded(preset: str, workload: Workload = WORKLOAD, concurrency: int = CONCURRENCY) -> list[Rollout]:
    """By the simulator itself, in place of real engines."""
    settings = PRESETS[preset]  # type: ignore[index]
    return play(workload.plans(), settings, ENGINES, concurrency, wave=4, trajectories=True).rollouts


def calibration() -> Calibration:
    few = replace(WORKLOAD, tasks=2, group=2, seed=9)
    under_load = replace(WORKLOAD, seed=9)
    return Calibration(
        alone=[*recorded("sequential", few, 1), *recorded("paper", few, 1)],
        sequential=play(
            under_load.plans(), PRESETS["sequential"], ENGINES, CONCURRENCY, trajectories=True
        ).rollouts,
        paper=play(under_load.plans(), PRESETS["paper"], ENGINES, CONCURRENCY, trajectories=True).rollouts,
        concurrency=CONCURRENCY,
    )


def test_known_engines_are_found_again_and_their_rollouts_replayed() -> None:
    found = fit(calibration())
    assert found.policy.decode_step_s(1) == pytest.approx(0.010, rel=0.03)
    assert found.policy.sequence_s == pytest.approx(0.002, rel=0.25)
    assert found.policy.prefill_s == pytest.approx(0.03, rel=0.1)
    assert found.world_model.decode_step_s(1) == pytest.approx(0.005, rel=0.1)
    assert found.slowdown == pytest.approx(0.2, rel=0.3)
    real = {name: recorded(name) for name in ("sequential", "paper", "default")}
    compared = compare(real, found, CONCURRENCY, wave=4)
    assert {name: each.rollouts for name, each in compared.items()} == dict.fromkeys(real, 16)
    for each in compared.values():
        assert each.error == pytest.approx(0.0, abs=0.02)


def test_what_is_compared_can_differ() -> None:
    slower = replace(ENGINES, policy=ENGINES.policy.faster(0.5))
    compared = compare({"sequential": recorded("sequential")}, slower, CONCURRENCY, wave=4)
    assert compared["sequential"].error > 0.2


def test_a_recorded_rollout_is_the_plan_that_it_was_played_from() -> None:
    original = WORKLOAD.plans()
    paper = recorded("paper")
    said = Predictions(paper)
    for planned, rollout in zip(original, paper, strict=True):
        again = plan(rollout, said)
        assert (again.task, again.seed, again.prompt_tokens) == (planned.task, planned.seed, 400)
        for turn, other in zip(again.turns, planned.turns, strict=True):
            assert (turn.action, turn.command, turn.observation) == (
                other.action,
                other.command,
                other.observation,
            )
            assert turn.action_tokens == other.action_tokens
            assert turn.tool_s == pytest.approx(other.tool_s)
            if turn.command is not None and turn.foretold[0].text == other.foretold[0].text:
                assert turn.foretold[0].confidence == pytest.approx(other.foretold[0].confidence)


def test_a_rollout_that_was_cut_off_in_a_tool_is_not_compared() -> None:
    whole = recorded("sequential")
    cut = whole[0]
    unreturned = cut.turns[0].model_copy(update={"observation": None})
    cut = cut.model_copy(update={"turns": (unreturned,), "status": RolloutStatus.TRUNCATED})
    compared = compare({"sequential": [cut, *whole[1:]]}, ENGINES, CONCURRENCY, wave=4)
    assert compared["sequential"].rollouts == len(whole) - 1


def test_too_few_rollouts_are_said_to_be_too_few() -> None:
    with pytest.raises(FitError, match="0 actions of rollouts by themselves are too few"):
        fit(replace(calibration(), alone=[]))
    with pytest.raises(FitError, match="no rollout of the calibration under load has ended well"):
        fit(replace(calibration(), paper=[]))
