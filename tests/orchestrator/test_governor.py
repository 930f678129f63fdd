"""The governor's arithmetic by hand, and what it learns: how far predictions hold, times, and the load."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.schema import Outcome, Reason, Rollout, SpeculationMode, SpeculationSettings
from orchestrator.speculation.calibration import Calibration, Reliability
from orchestrator.speculation.governor import Governor, Tool
from orchestrator.speculation.load import Gauge, Load
from orchestrator.speculation.times import Times
from tests.orchestrator.scenes import (
    RIGHT,
    WRONG,
    engine,
    guesses,
    predictions,
    scene,
    sequential,
    tree,
)
from tests.orchestrator.virtual import run
from tests.orchestrator.worlds import RecordingBackend, Stage, foreseen

GOVERNED = SpeculationSettings(mode=SpeculationMode.GOVERNED, waste=0.25)
ALWAYS = SpeculationSettings(mode=SpeculationMode.ALWAYS)


class FixedLoad(Load):
    """An action takes a second, opening a branch nothing; what is taken and what remains is given."""

    def __init__(
        self,
        by_branch: float = 0.0,
        by_prediction: float = 0.0,
        opening_s: float = 0.0,
        by_opening: float = 0.0,
        remains: float = 1.0,
        others: float = 0.0,
    ):
        super().__init__()
        self._taken = by_branch, by_prediction
        self._by_opening, self._remains, self._others = by_opening, remains, others
        self.opening_s.add(opening_s)

    @property
    def known(self) -> bool:
        return True

    def generation_s(self) -> float:
        return 1.0

    def taken_by_branch(self) -> float:
        return self._taken[0]

    def taken_by_prediction(self) -> float:
        return self._taken[1]

    def taken_by_opening(self, p_hit: float) -> float:
        return self._by_opening * (1 - p_hit)

    def others(self) -> float:
        return self._others

    def net(self) -> float:
        return self._remains


def governor(tool_s: Sequence[float] = (), answer_s: float | None = None, **load: float) -> Governor:
    """It has seen tools of such seconds, often."""
    wise = Governor(FixedLoad(**load))
    for seconds in tool_s:
        for _ in range(8):
            wise.tools.add("ls", seconds)
    if answer_s is not None:
        wise.answers.add("model", answer_s)
    return wise


def running(elapsed_s: float = 0.0) -> Tool:
    return Tool("ls", elapsed_s)


# Branches


@pytest.mark.parametrize(
    ("p", "tool_s", "elapsed_s", "reason", "gain_s"),
    [
        # the whole action is saved, or three quarters of a second a second of it are worth nothing
        (0.8, [2.0], 0.0, Reason.PAYS, 0.8 - 0.2 * 0.25),
        (0.21, [2.0], 0.0, Reason.PAYS, 0.21 - 0.79 * 0.25),
        (0.2, [2.0], 0.0, Reason.UNLIKELY, 0.0),
        (0.1, [2.0], 0.0, Reason.UNLIKELY, 0.1 - 0.9 * 0.25),
        # a tool that returns before the action is whole
        (0.8, [0.5], 0.0, Reason.PAYS, 0.5 * (0.8 - 0.2 * 0.25)),
        (0.8, [2.0], 1.6, Reason.PAYS, 0.4 * (0.8 - 0.2 * 0.25)),
        # half of the tools are short: 0.25 s and 1 s are saved
        (0.8, [0.25, 4.0], 0.0, Reason.PAYS, 0.625 * (0.8 - 0.2 * 0.25)),
        # those that were are over
        (0.8, [0.25, 4.0], 0.5, Reason.PAYS, 0.8 - 0.2 * 0.25),
        # it has outlived all: as long again
        (0.8, [0.1], 0.5, Reason.PAYS, 0.5 * (0.8 - 0.2 * 0.25)),
        (1.0, [0.0005], 0.0, Reason.TOO_SHORT, 0.0005),
    ],
)
def test_a_branch_pays_where_hits_save_more_than_misses_waste(
    p: float, tool_s: list[float], elapsed_s: float, reason: Reason, gain_s: float
) -> None:
    decision = governor(tool_s).branch(GOVERNED, running(elapsed_s), p)
    assert (decision.yes, decision.reason) == (reason is Reason.PAYS, reason)
    assert decision.gain_s == pytest.approx(gain_s)


def test_waste_is_priced_as_the_settings_say() -> None:
    for waste, least in ((0.0, 0.0), (0.25, 0.2), (1.0, 0.5), (4.0, 0.8)):
        settings = GOVERNED.model_copy(update={"waste": waste})
        assert not governor([2.0]).branch(settings, running(), least - 0.001).yes
        assert governor([2.0]).branch(settings, running(), least + 0.001).yes


def test_a_branch_that_takes_more_from_others_than_it_saves_does_not_pay() -> None:
    decision = governor([2.0], by_branch=3.0).branch(GOVERNED, running(), 0.7)
    assert (decision.yes, decision.reason) == (False, Reason.LOAD)
    assert decision.gain_s == pytest.approx(0.7 - 0.3 * 0.25 - 0.3 * 3.0)
    decision = governor([2.0], by_branch=3.0).branch(GOVERNED, running(), 0.8)
    assert (decision.yes, decision.reason) == (True, Reason.PAYS)
    assert decision.gain_s == pytest.approx(0.8 - 0.2 * 0.25 - 0.2 * 3.0)


def test_opening_a_branch_costs_time() -> None:
    decision = governor([2.0], opening_s=0.1).branch(GOVERNED, running(), 0.8)
    assert decision.gain_s == pytest.approx(0.8 - 0.2 * 0.25 - 0.1)
    assert governor([0.1], opening_s=0.1).branch(GOVERNED, running(), 0.9).reason is Reason.UNLIKELY


def test_a_branch_ahead_of_its_tool_saves_what_one_opened_later_would_not() -> None:
    """The tool takes 0.25 s and starts in 3 s, with even odds."""
    ahead = Tool("ls", None, lead_s=3.0, p_path=0.5)
    decision = governor([0.25]).branch(GOVERNED, ahead, 0.8)
    wasted = 0.5 * 1.0 + 0.5 * 0.2 * 0.75
    assert decision.yes
    assert decision.gain_s == pytest.approx(0.5 * 0.8 * 0.75 - 0.25 * wasted)
    assert governor([2.0]).branch(GOVERNED, ahead, 0.8).reason is Reason.TOO_SHORT


def test_what_was_never_measured_is_tried() -> None:
    assert governor().branch(GOVERNED, running(), 0.001).reason is Reason.UNKNOWN_TIMES
    assert governor().branch(GOVERNED, running(), 0.001).yes
    unloaded = Governor(Load())
    unloaded.tools.add("ls", 1.0)
    assert unloaded.branch(GOVERNED, running(), 0.001).reason is Reason.UNKNOWN_TIMES


@given(st.floats(0, 1), st.floats(0, 100), st.floats(0, 100), st.floats(0, 10))
def test_a_likelier_guess_is_never_worth_less(
    p: float, tool_s: float, elapsed_s: float, taken: float
) -> None:
    wise = governor([tool_s], by_branch=taken)
    gains = [wise.branch(GOVERNED, running(elapsed_s), each).gain_s or 0.0 for each in (p / 2, p)]
    assert gains[0] <= gains[1] + 1e-12


def test_always_asks_no_questions() -> None:
    wise = governor([0.0], answer_s=100.0, by_branch=100.0, by_prediction=100.0)
    assert wise.branch(ALWAYS, running(), 0.0).reason is Reason.ALWAYS
    assert wise.ask(ALWAYS, running(), "model", 1.0).reason is Reason.ALWAYS


# Questions


def known(wise: Governor, source: str = "model", first: float = 0.6) -> Governor:
    """Its predictor was right before others in so many of a thousand answers."""
    for number in range(1000):
        wise.calibration.learn_source(source, "ls", number % 10 < first * 10)
    return wise


@pytest.mark.parametrize(
    ("tool_s", "answer_s", "p_known", "reason", "gain_s"),
    [
        (3.0, 0.5, 0.0, Reason.PAYS, 0.6 * 1.0 - 0.4 * 0.5 * 0.25),
        (1.25, 0.5, 0.0, Reason.PAYS, 0.6 * 0.75 - 0.4 * 0.5 * 0.25),
        (3.0, 0.5, 0.75, Reason.PAYS, 0.15 * 1.0 - 0.85 * 0.5 * 0.25),
        (3.0, 0.5, 0.9, Reason.UNLIKELY, 0.06 * 1.0 - 0.94 * 0.5 * 0.25),
        (0.5, 0.5, 0.0, Reason.TOO_SHORT, -0.4 * 0.5 * 0.25),
        (0.4, 0.5, 0.0, Reason.TOO_SHORT, -0.4 * 0.4 * 0.25),
    ],
)
def test_a_question_pays_where_the_answer_comes_in_time(
    tool_s: float, answer_s: float, p_known: float, reason: Reason, gain_s: float
) -> None:
    decision = known(governor([tool_s], answer_s)).ask(GOVERNED, running(), "model", p_known)
    assert (decision.yes, decision.reason) == (reason is Reason.PAYS, reason)
    assert decision.gain_s == pytest.approx(gain_s, abs=0.01)


def test_a_question_takes_from_others_while_it_is_answered() -> None:
    decision = known(governor([3.0], answer_s=0.5, by_prediction=2.0)).ask(GOVERNED, running(), "model", 0.0)
    assert (decision.yes, decision.reason) == (False, Reason.LOAD)
    assert decision.gain_s == pytest.approx(0.6 - 0.4 * 0.5 * 0.25 - 0.5 * 2.0, abs=0.01)


def test_in_a_full_engine_little_remains_of_what_is_saved() -> None:
    full, busy = governor([2.0], remains=0.2), governor([2.0], by_opening=1.0)
    assert full.branch(GOVERNED, running(), 0.8).gain_s == pytest.approx(0.2 * (0.8 - 0.2 * 0.25))
    loaded = governor([2.0], remains=0.2, by_branch=1.0)
    assert loaded.branch(GOVERNED, running(), 0.5).reason is Reason.LOAD
    decision = busy.branch(GOVERNED, running(), 0.8)
    assert decision.gain_s == pytest.approx(0.8 - 0.2 * 0.25 - 0.2)
    assert busy.branch(GOVERNED, running(), 0.5).reason is Reason.LOAD
    asked = known(governor([3.0], answer_s=0.5, remains=0.2)).ask(GOVERNED, running(), "model", 0.0)
    assert asked.gain_s == pytest.approx(0.2 * (0.6 - 0.4 * 0.5 * 0.25), abs=0.01)


def test_a_source_that_is_never_right_is_asked_no_more() -> None:
    wise = known(governor([3.0], answer_s=0.5, by_prediction=0.1), first=0.0)
    assert not wise.ask(GOVERNED, running(), "model", 0.0).yes


@pytest.mark.parametrize(
    ("tool_s", "first", "others", "cost_s"),
    [
        (3.0, 0.0, 0.0, 0.5 * 0.25),  # never right so far: were it right, it would pay
        (3.0, 0.0, 10.0, 0.5 * (0.25 + 10 * 0.05)),
        (0.4, 0.6, 0.0, 0.4 * 0.25 * 10),  # too late, however right
        (0.001, 0.6, 0.0, 0.05 * 0.25 * 10),
    ],
)
def test_refused_questions_are_explored_within_a_small_part_of_the_time(
    tool_s: float, first: float, others: float, cost_s: float
) -> None:
    wise = known(governor([tool_s], answer_s=0.5, others=others, by_prediction=others * 0.01), first=first)
    assert not wise.ask(GOVERNED, running(), "model", 0.0).yes
    turns, explored = 3000, 0
    for _ in range(turns):
        wise.returned("ls", tool_s)
        assert not wise.ask(GOVERNED, running(), "model", 0.0, again=True).yes
        decision = wise.ask(GOVERNED, running(), "model", 0.0)
        assert decision.yes == (decision.reason is Reason.EXPLORE)
        explored += decision.yes
    allowed_s = 0.005 * turns * (tool_s + 1.0)
    assert explored * cost_s == pytest.approx(allowed_s, rel=0.35)
    assert explored * cost_s <= allowed_s


def test_a_question_about_a_later_tool_saves_what_asking_then_would_not() -> None:
    ahead = Tool("ls", None, lead_s=3.0, p_path=0.5)
    decision = known(governor([1.0], answer_s=0.5)).ask(GOVERNED, ahead, "model", 0.0)
    p = 0.5 * 0.6
    assert decision.gain_s == pytest.approx(p * (1.0 - 0.5) - (1 - p) * 0.5 * 0.25, abs=0.01)
    assert known(governor([9.0], answer_s=0.5)).ask(GOVERNED, ahead, "model", 0.0).reason is Reason.TOO_SHORT


def test_an_answer_that_comes_after_the_later_tool_has_returned_saves_nothing() -> None:
    """The tool starts in a second and takes a tenth of one; the answer takes five."""
    ahead = Tool("ls", None, lead_s=1.0, p_path=1.0)
    decision = known(governor([0.1], answer_s=5.0)).ask(GOVERNED, ahead, "model", 0.0)
    assert (decision.yes, decision.reason) == (False, Reason.TOO_SHORT)


# Calibration


def test_before_anything_came_of_a_prediction_it_is_taken_at_its_word() -> None:
    for confidence in (0.0, 0.1, 0.5, 0.99, 1.0):
        assert Calibration().p_hit("model", confidence, "ls") == pytest.approx(confidence)


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_become_those_with_which_predictions_hold(seed: int) -> None:
    """A model that says c is right with probability c², half as often for `date`."""
    rng = random.Random(seed)
    calibration = Calibration()
    late = Reliability()
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for number in range(6000):
        confidence, kind = rng.random(), rng.choice(["ls", "date"])
        hit = rng.random() < confidence**2 * (0.5 if kind == "date" else 1.0)
        p = calibration.p_hit("model", confidence, kind)
        if number > 3000:
            late.add(p, hit)
            bins[int(p * 10)].append((p, hit))
        calibration.learn("model", confidence, kind, p, hit)
    for each in bins.values():
        if len(each) > 100:
            assert mean(hit for _, hit in each) == pytest.approx(mean(p for p, _ in each), abs=0.1)
    assert late.brier is not None
    # the best that can be: the mean of q(1 − q) over both kinds, 0.5 (1/3 − 1/5) + 0.5 (1/6 − 1/20)
    assert late.brier == pytest.approx(0.125, abs=0.015)
    assert calibration.reliability.count == 6000


def test_what_held_long_ago_is_forgotten() -> None:
    rng = random.Random(0)
    calibration = Calibration()
    for share in (0.9, 0.1):
        for _ in range(1500):
            calibration.learn("model", 0.7, "ls", 0.5, rng.random() < share)
            calibration.learn_source("model", "ls", rng.random() < share)
        assert calibration.p_hit("model", 0.7, "ls") == pytest.approx(share, abs=0.1)
        assert calibration.p_source("model", "ls") == pytest.approx(share, abs=0.1)


def test_a_kind_that_was_never_met_leans_on_all_kinds() -> None:
    calibration = Calibration()
    for number in range(1000):
        calibration.learn("model", 0.7, "ls", 0.5, number % 4 == 0)
    assert calibration.p_hit("model", 0.7, "new") == pytest.approx(0.25, abs=0.02)
    assert calibration.p_hit("other", 0.7, "new") == pytest.approx(0.7)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.sampled_from(["ls", "cat"])), max_size=50),
    st.floats(0, 1),
)
def test_a_probability_is_one(learned: list[tuple[float, bool, str]], confidence: float) -> None:
    calibration = Calibration()
    for each, hit, kind in learned:
        calibration.learn("model", each, kind, calibration.p_hit("model", each, kind), hit)
        calibration.learn_source("model", kind, hit)
        assert 0 <= calibration.p_source("model", kind) <= 1
    assert 0 <= calibration.p_hit("model", confidence, "ls") <= 1


def test_what_is_learned_of_kinds_is_bounded() -> None:
    calibration = Calibration()
    for number in range(12_000):
        calibration.learn("model", 0.7, f"kind {number}", 0.5, True)
        calibration.learn_source("model", f"kind {number}", True)
        calibration.p_hit("model", 0.1, f"other {number}")
        calibration.p_source("other", f"kind {number}")
    assert len(calibration._answers_by_kind) == len(calibration._sources_by_kind) == 10_000


def test_the_brier_score_by_hand() -> None:
    reliability = Reliability()
    assert reliability.brier is None
    for p, hit in ((0.7, True), (0.75, False), (0.1, False), (1.0, True)):
        reliability.add(p, hit)
    assert reliability.brier == pytest.approx((0.09 + 0.5625 + 0.01 + 0.0) / 4)


# Times


def test_what_is_left_is_what_tools_that_lasted_so_long_had_left() -> None:
    times = Times()
    for seconds in (1.0, 2.0, 4.0, 8.0) * 2:
        times.add("make", seconds)
    assert sorted(times.remaining("make", 2.0)) == [2.0, 2.0, 6.0, 6.0]
    assert times.remaining("make", 9.0) == [9.0]
    assert times.mean("make") == pytest.approx(3.75)


def test_a_kind_with_few_samples_borrows_and_then_stands_alone() -> None:
    times = Times()
    assert times.mean("ls") is None
    assert times.remaining("ls", 1.0) == []
    for _ in range(20):
        times.add("make", 10.0)
    assert times.mean("ls") == 10.0
    means = []
    for _ in range(8):
        times.add("ls", 0.1)
        means.append(times.mean("ls") or 0.0)
    assert means == sorted(means, reverse=True)
    assert 0.1 < means[0] < 10.0
    assert means[-1] == pytest.approx(0.1)


def test_only_the_latest_times_count() -> None:
    times = Times()
    for seconds in [10.0] * 100 + [1.0] * 64:
        times.add("ls", seconds)
    assert times.mean("ls") == pytest.approx(1.0)


def test_kinds_are_bounded() -> None:
    times = Times()
    for number in range(3000):
        times.add(f"./run{number}", 1.0)
    assert len(times._kinds) <= 1000


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=100), st.floats(0, 1000))
def test_something_is_always_expected_of_a_tool_that_was_met(seen: list[float], elapsed_s: float) -> None:
    times = Times()
    for seconds in seen:
        times.add("ls", seconds)
    left = times.remaining("ls", elapsed_s)
    assert left
    assert all(seconds >= 0 for seconds in left)


# Load


def test_a_gauge_is_integrated() -> None:
    gauge = Gauge()
    gauge.add(2, 1.0)
    gauge.add(-1, 4.0)
    assert gauge.area(10.0) == pytest.approx(2 * 3 + 1 * 6)
    assert gauge.area(10.0) == pytest.approx(12.0)


@dataclass(frozen=True)
class Engine:
    """Seconds a token: a base, and more for everything that runs beside."""

    base: float = 0.02
    ordinary: float = 0.002
    branch: float = 0.001
    prediction: float = 0.0005
    first_s: float = 0.1
    noise: float = 0.0

    def token_s(self, load: Load) -> float:
        """Of a request that `load` counts."""
        return (
            self.base
            + self.ordinary * (load.ordinary.value - 1)
            + self.branch * load.branches.value
            + self.prediction * load.predictions.value
        )


async def _nothing(load: Load) -> None: ...


def learned(
    engine: Engine,
    actions: int,
    seed: int = 0,
    most: int = 10,
    then: Callable[[Load], Awaitable[None]] = _nothing,
) -> Load:
    """After so many actions beside a load that changes between and within them."""
    rng = random.Random(seed)

    async def main() -> Load:
        load = Load()
        loop = asyncio.get_running_loop()
        for _ in range(actions):
            for gauge in (load.ordinary, load.branches, load.predictions):
                gauge.add(rng.randrange(most + 1) - gauge.value, loop.time())
            with load.measured() as measured:
                tokens = rng.randrange(2, 60)
                slower = rng.lognormvariate(0, engine.noise)
                await asyncio.sleep(engine.first_s)
                for _ in range(tokens - 1):
                    await asyncio.sleep(engine.token_s(load) * slower)
                measured.read(tokens, engine.first_s)
        await then(load)
        return load

    return run(main())


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_speed_of_an_engine_is_found(noise: float) -> None:
    engine = Engine(noise=noise)
    load = learned(engine, 600)
    assert load._fit is not None
    base, ordinary, branch, prediction, *_ = load._fit.parts
    exact = noise == 0
    assert base == pytest.approx(0.02, rel=0.02 if exact else 0.25)
    assert ordinary == pytest.approx(0.002, rel=0.02 if exact else 0.5)
    assert branch == pytest.approx(0.001, rel=0.05 if exact else 0.7)
    assert prediction == pytest.approx(0.0005, rel=0.1 if exact else 1.0)


def runs(load: Load, ordinary: int, branches: int = 0, predictions: int = 0) -> None:
    now = asyncio.get_running_loop().time()
    for gauge, value in (
        (load.ordinary, ordinary),
        (load.branches, branches),
        (load.predictions, predictions),
    ):
        gauge.add(value - gauge.value, now)


def test_expected_times_are_those_beside_what_runs_now() -> None:
    async def then(load: Load) -> None:
        runs(load, 4, 2, 6)
        await asyncio.sleep(100.0)
        token_s = 0.02 + 4 * 0.002 + 2 * 0.001 + 6 * 0.0005
        assert load.token_s() == pytest.approx(token_s, rel=0.02)
        assert load.generation_s() == pytest.approx(0.1 + load.action_tokens * token_s, rel=0.02)
        assert load.action_tokens == pytest.approx(30, rel=0.4)
        assert load.taken_by_branch() == pytest.approx(6 * 0.001 / token_s, rel=0.06)
        assert load.taken_by_prediction() == pytest.approx(6 * 0.0005 / token_s, rel=0.1)

    learned(Engine(), 600, then=then)


def test_what_ran_lately_is_expected_to_run_again() -> None:
    async def then(load: Load) -> None:
        runs(load, 4)
        await asyncio.sleep(100.0)
        full = load.taken_by_prediction() * load.token_s()
        runs(load, 0)
        idle = load.taken_by_prediction() * load.token_s()
        assert idle == pytest.approx(full / 2, rel=0.01)
        with load.counted(load.rollouts), load.counted(load.rollouts):  # one of two was the own rollout
            assert load.taken_by_prediction() * load.token_s() == pytest.approx(full / 4, rel=0.01)
        with load.counted(load.rollouts):
            assert load.taken_by_prediction() == 0
        await asyncio.sleep(100.0)
        assert load.taken_by_prediction() == pytest.approx(0, abs=1e-9)

    learned(Engine(), 600, then=then)


def test_an_engine_that_does_not_mind_is_found_not_to() -> None:
    async def then(load: Load) -> None:
        assert load.parts()["base"] == pytest.approx(0.02, abs=0.0005)
        assert [load.parts()[part] for part in ("ordinary", "branch", "prediction")] == pytest.approx(
            [0.0, 0.0, 0.0], abs=0.0005
        )
        assert load.taken_by_branch() < 0.05

    learned(Engine(ordinary=0.0, branch=0.0, prediction=0.0), 600, then=then)


def stalling() -> Load:
    """After 600 actions on an engine that each request or branch that begins stalls for 50 ms: while an
    action runs, one or the other begins at every tenth token, and is soon over."""
    rng = random.Random(0)

    async def main() -> Load:
        load = Load()
        for _ in range(600):
            with load.measured() as measured:
                await asyncio.sleep(0.1)
                for _ in range(39):
                    begins = rng.choice((load.ordinary, load.branches)) if rng.random() < 0.1 else None
                    stall_s = 0.05 if begins else 0.0
                    with load.counted(begins) if begins else nullcontext():
                        await asyncio.sleep(0.02 + stall_s)
                measured.read(40, 0.1)
        return load

    return run(main())


def test_what_a_request_stalls_that_begins_is_found() -> None:
    parts = stalling().parts()
    assert parts["base"] == pytest.approx(0.02, rel=0.1)
    assert parts["begins"] == pytest.approx(0.05, rel=0.25)


def test_a_second_saved_is_a_second_where_nobody_else_is() -> None:
    async def then(load: Load) -> None:
        with load.counted(load.rollouts):
            assert load.net() == pytest.approx(1.0)
            runs(load, 4, 4, 4)
            await asyncio.sleep(100.0)
            assert load.net() == pytest.approx(1.0)
            assert load.taken_by_opening(0.0) > 0  # requests that nobody here knows of run at this moment
        assert load.net() < 0.6

    learned(Engine(ordinary=0.005, branch=0.005), 600, then=then)


def test_a_hit_saves_the_reading_of_an_ordinary_request() -> None:
    async def then(load: Load) -> None:
        runs(load, 4)
        await asyncio.sleep(100.0)
        missed, hit = load.taken_by_opening(0.0), load.taken_by_opening(1.0)
        assert missed == pytest.approx(4 * load.parts()["begins"])
        assert hit == pytest.approx(0, abs=1e-9)
        assert missed > hit

    learned(Engine(), 600, then=then)


def test_an_engine_that_becomes_slower_is_followed() -> None:
    async def main() -> float:
        load = Load()
        for token_s in [0.01] * 300 + [0.05] * 300:
            with load.measured() as measured:
                await asyncio.sleep(0.1 + token_s * 19)
                measured.read(20, 0.1)
        return load.token_s()

    assert run(main()) == pytest.approx(0.05, rel=0.1)


def test_actions_that_were_not_read_to_their_end_teach_nothing() -> None:
    async def main() -> None:
        load = Load()
        with load.measured():
            await asyncio.sleep(100.0)
        with pytest.raises(ZeroDivisionError), load.measured():
            raise ZeroDivisionError
        assert not load.known
        assert load.ordinary.value == 0

    run(main())


def test_whatever_ends_it_is_counted_no_longer() -> None:
    stage = scene([0.3, 2.0, 0.5], [[WRONG, "x"], [RIGHT[1][0], "x"], [WRONG]])
    for settings in (tree(3, breadth=2), tree(3, breadth=2, mode=SpeculationMode.GOVERNED)):
        run(stage.run(stage.record(settings)))
        load = stage.scopes.load
        assert (load.ordinary.value, load.branches.value, load.predictions.value) == (0, 0, 0)


# Rollouts


def governed(depth: int = 1, breadth: int = 1, **options: object) -> SpeculationSettings:
    return tree(depth, breadth, mode=SpeculationMode.GOVERNED, **options)


def many(stage: Stage, settings: SpeculationSettings, count: int) -> list[Rollout]:
    return [run(stage.run(stage.record(settings))) for _ in range(count)]


def asked(stage: Stage) -> int:
    assert isinstance(stage.world_model, RecordingBackend)
    return stage.world_model.requests


def test_tools_of_a_millisecond_are_not_speculated_on_once_they_are_known() -> None:
    stage = scene([5.0, 5.0])
    many(stage, governed(), 10)
    before = asked(stage), len(engine(stage).opened)
    assert before[0] == 20
    stage.answers = {command: (text, 0.001) for command, (text, _) in stage.answers.items()}
    many(stage, governed(), 80)
    after = asked(stage), len(engine(stage).opened)
    last = many(stage, governed(), 60)
    assert asked(stage) <= after[0] + 30  # of 120: now and then it sees whether that still holds
    assert len(engine(stage).opened) == after[1]
    reasons = Counter(p.reason for r in last for p in predictions(r) if p.outcome is Outcome.DECLINED)
    assert reasons == {Reason.TOO_SHORT: 120 - (asked(stage) - after[0])}


def test_tools_that_always_outrun_the_predictor_end_the_questions() -> None:
    stage = scene([0.001, 0.001])
    many(stage, governed(), 30)
    before = asked(stage)
    many(stage, governed(), 60)
    assert asked(stage) <= before + 20  # of 120


def test_a_predictor_that_is_right_is_made_use_of() -> None:
    rollouts = many(scene([2.0, 2.0]), governed(), 20)
    assert [p.outcome for p in predictions(rollouts[-1])] == [Outcome.HIT] * 2
    assert {g.reason for g in guesses(rollouts[-1])} == {Reason.PAYS}
    assert all(g.p_hit > 0.9 for g in guesses(rollouts[-1]))


def test_a_predictor_that_is_wrong_gets_no_branches_after_a_while() -> None:
    stage = scene([2.0, 2.0], [[WRONG]] * 2)
    rollouts = many(stage, governed(), 100)
    assert len(engine(stage).opened) < 60
    for prediction in predictions(rollouts[-1]):
        assert prediction.outcome is Outcome.DECLINED
        assert Reason.UNLIKELY in (prediction.reason, *(guess.reason for guess in prediction.guesses))
    brier = stage.scopes[""].governor.calibration.reliability.brier
    assert brier is not None
    assert brier < 0.05


def test_a_guess_that_becomes_hopeless_gives_up_its_branch() -> None:
    """A sure guess comes a second after one that, beside it, nearly cannot come true."""
    stage = scene([5.0])
    many(stage, governed(), 5)
    foreseen(stage, ("weak", 0.3, 0.1), (RIGHT[0][0], 0.99, 1.1))
    stage.scopes.load._fit = learned(Engine(), 10)._fit
    (rollout,) = many(stage, governed(breadth=2), 1)
    fates = {g.text: g.fate.value for g in guesses(rollout)}
    assert fates == {"weak": "outbid", RIGHT[0][0]: "committed"}


def test_a_tool_that_lasts_longer_than_expected_is_looked_at_again() -> None:
    """Its kind was known to take a millisecond; now it takes ten seconds."""
    stage = foreseen(scene([0.001]), (RIGHT[0][0], 0.9, 0.05))
    run(stage.run(stage.record(SpeculationMode.NEVER)))
    wise = stage.scopes[""].governor
    for _ in range(64):
        wise.tools.add("ls", 0.001)
        wise.answers.add("world_model/0", 0.05)
    stage.answers["ls"] = (stage.answers["ls"][0], 10.0)
    rollout = run(stage.run(stage.record(governed())))
    assert [p.outcome for p in predictions(rollout)] == [Outcome.HIT]
    assert predictions(rollout)[0].saved_s > 0.5


def test_running_branches_are_kept_within_a_budget_of_tokens() -> None:
    """Four guesses are there at once; the first branch still runs when the tool returns."""
    stage = scene([0.5])
    many(stage, governed(), 8)
    action_tokens = stage.scopes.load.action_tokens
    says = [(f"guess {number}", 0.5, 0.0) for number in range(4)]
    for most, branches in ((1, 0), (1.5 * action_tokens, 1), (3.5 * action_tokens, 3), (None, 4)):
        foreseen(stage, *says, at_once=True)
        before = len(engine(stage).opened)
        (rollout,) = many(stage, governed(breadth=4, max_open_tokens=most and round(most), waste=0.0), 1)
        assert len(engine(stage).opened) == before + branches
        assert [g.reason for g in guesses(rollout)].count(Reason.BUDGET) == 4 - branches


class Moody(RecordingBackend):
    """A world model that can be made slow."""

    def slow(self, tokens_per_s: float) -> None:
        self._token_s = 1 / tokens_per_s


def test_a_predictor_that_was_too_slow_is_tried_again_now_and_then() -> None:
    stage = scene([60.0, 60.0])
    world_model = Moody(stage.world_model._script)
    stage.predict_with(world_model)
    world_model.slow(1.0)
    many(stage, governed(), 3)
    stage.answers = {command: (text, 3.0) for command, (text, _) in stage.answers.items()}
    many(stage, governed(), 80)
    world_model.slow(200.0)
    before = asked(stage)
    many(stage, governed(), 250)
    assert asked(stage) > before


def test_governed_rollouts_are_the_same_as_sequential_ones() -> None:
    stage = scene([2.0, 0.01, 0.5], [[WRONG, RIGHT[0][0]], [RIGHT[1][0]], [WRONG]])
    plain = sequential(scene([2.0, 0.01, 0.5]))
    for rollout in many(stage, governed(3, 3), 20):
        assert rollout.trajectory == plain.trajectory
        assert rollout.agent_latency_s is not None
        assert plain.agent_latency_s is not None
        assert rollout.agent_latency_s <= plain.agent_latency_s + 1e-9
    engine(stage).check_each_branch_ended_once()
