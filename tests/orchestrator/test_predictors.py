"""What each predictor knows, how it comes to it, and what rollouts of a group learn from one another."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import predictors
from orchestrator.backends.base import Chunk, SamplingParams
from orchestrator.backends.scripted import ScriptedBackend
from orchestrator.history import History
from orchestrator.predictors.base import Candidate, PredictionContext, TokenMeter, Unavailable
from orchestrator.predictors.memo import Memo
from orchestrator.predictors.oracle import Oracle
from orchestrator.predictors.usual import Usual, form
from orchestrator.predictors.world_model import WorldModelPredictor
from orchestrator.rollout import run_rollout
from orchestrator.schema import Outcome, Rollout, SpeculationMode, SpeculationSettings
from orchestrator.seeds import derive
from orchestrator.speculation import Scopes
from tests.orchestrator.scenes import (
    RIGHT,
    WRONG,
    generation_s,
    group,
    guesses,
    play,
    scene,
    sequential,
    tree,
)
from tests.orchestrator.scenes import predictions as outcomes
from tests.orchestrator.virtual import run
from tests.orchestrator.worlds import CHAT, Stage, foreteller, stage, task

A, B, C = (f"{text}\n(exit_code=0)" for text in "abc")


def context(
    command: str = "ls",
    before: Sequence[str] = (),
    task: str = "family/1",
    environment: str = "",
    seed: int = 0,
) -> PredictionContext:
    history = History()
    for earlier in before:
        history = history.then(earlier)
    turn = len(before)
    return PredictionContext([1, 2, 3], task, environment, history, command, turn, seed)


# memo


def texts(memo: Memo, *args: object, **kwargs: object) -> list[str]:
    return [candidate.text for candidate in memo.recall(context(*args, **kwargs))]  # type: ignore[arg-type]


def test_a_memo_knows_what_was_seen_after_the_same_commands() -> None:
    memo = Memo(100)
    assert texts(memo) == []
    memo.learn(context("ls", ["rm x"]), A)
    assert texts(memo, "ls", ["rm x"]) == [A]
    assert texts(memo, "pwd", ["rm x"]) == []
    assert texts(memo, "ls", ["rm x"], task="family/2") == []
    assert texts(memo, "ls", ["rm x"], environment="other files") == []


def test_a_memo_knows_what_was_seen_after_the_same_commands_but_for_those_that_read() -> None:
    memo = Memo(100)
    memo.learn(context("ls", ["cat a", "rm x"]), A)
    (candidate,) = memo.recall(context("ls", ["rm x", "pwd"]))
    assert (candidate.text, candidate.source) == (A, "memo/effects")
    (candidate,) = memo.recall(context("ls", ["cat a", "rm x"]))
    assert candidate.source == "memo/exact"


def test_a_memo_knows_what_was_seen_whatever_came_before() -> None:
    memo = Memo(100)
    memo.learn(context("ls", ["rm x"]), A)
    for history in ([], ["rm y"], ["rm x", "rm x"]):
        (candidate,) = memo.recall(context("ls", history))
        assert (candidate.text, candidate.source) == (A, "memo/command")


def test_where_more_is_known_the_loosest_likeness_is_left_out() -> None:
    memo = Memo(100)
    memo.learn(context("ls", ["rm x"]), A)
    memo.learn(context("ls"), B)
    assert texts(memo, "ls") == texts(memo, "ls", ["pwd"]) == [B]


def test_of_observations_seen_as_often_the_latest_comes_first() -> None:
    memo = Memo(100)
    memo.learn(context(), A)
    memo.learn(context(), B)
    assert texts(memo) == [B, A]


def test_what_was_seen_after_exactly_the_same_comes_first() -> None:
    memo = Memo(100)
    memo.learn(context("ls", ["pwd"]), A)
    memo.learn(context("ls"), B)
    assert [(c.text, c.source) for c in memo.recall(context("ls"))] == [
        (B, "memo/exact"),
        (A, "memo/effects"),
    ]


def test_what_was_seen_more_often_is_likelier() -> None:
    memo = Memo(100)
    for text in (A, B, A):
        memo.learn(context(), text)
    first, second = memo.recall(context())
    assert (first.text, second.text) == (A, B)
    assert first.confidence == pytest.approx(3 / 6)
    assert second.confidence == pytest.approx(2 / 6)
    assert first.confidence + second.confidence < 1


def test_confidence_grows_with_what_was_seen() -> None:
    memo = Memo(100)
    seen = []
    for _ in range(20):
        memo.learn(context(), A)
        seen += [candidate.confidence for candidate in memo.recall(context())]
    assert seen == sorted(seen)
    assert 0.5 < seen[0] < seen[-1] < 1


def test_a_memo_forgets_what_was_used_longest_ago() -> None:
    memo = Memo(6)
    memo.learn(context("a"), A)
    memo.learn(context("b"), B)
    assert texts(memo, "a") == [A]
    memo.learn(context("c"), C)
    assert (texts(memo, "a"), texts(memo, "b"), texts(memo, "c")) == ([A], [], [C])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 30)), max_size=60),
    st.integers(1, 10),
)
def test_a_memo_is_bounded(seen: list[tuple[str, int]], capacity: int) -> None:
    memo = Memo(capacity)
    for command, text in seen:
        memo.learn(context(command), str(text))
        assert len(memo) <= capacity
    for command in "abcdef":
        candidates = memo.recall(context(command))
        assert len({candidate.text for candidate in candidates}) == len(candidates) <= 8
        assert all(0 < candidate.confidence < 1 for candidate in candidates)


def test_a_world_that_answers_differently_every_time_is_known_to() -> None:
    memo = Memo(100)
    for number in range(50):
        memo.learn(context("date"), f"{number}")
    assert all(candidate.confidence < 0.3 for candidate in memo.recall(context("date")))


async def listen(memo: Memo, heard: list[str]) -> None:
    async for candidate in memo.predict(context(), 0, TokenMeter()):
        heard.append(candidate.text)  # noqa: PERF401


def test_a_memo_says_what_is_learned_while_it_is_asked() -> None:
    async def main() -> None:
        memo = Memo(100)
        memo.learn(context(), A)
        heard: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(listen(memo, heard))
            await asyncio.sleep(1)
            for command, text in (("pwd", C), ("ls", A), ("ls", B), ("ls", B)):
                memo.learn(context(command), text)
                await asyncio.sleep(1)
            assert heard == [B]
            memo.learn(context("ls", ["pwd"]), C)
            await asyncio.sleep(1)
            assert heard == [B, C]
            listening.cancel()
        assert not memo._waiting

    run(main())


def test_two_observations_learned_at_once_are_both_said() -> None:
    async def main() -> list[str]:
        memo = Memo(100)
        heard: list[str] = []
        listening = asyncio.create_task(listen(memo, heard))
        await asyncio.sleep(1)
        memo.learn(context(), A)
        memo.learn(context(), B)
        await asyncio.sleep(1)
        listening.cancel()
        await asyncio.wait({listening})
        return heard

    assert sorted(run(main())) == [A, B]


# world model


class Recorder(ScriptedBackend):
    """Predicts `text`; remembers what it was asked."""

    def __init__(self, text: str = A):
        rendered = CHAT.observation(text)
        ids = rendered.token_ids[rendered.body_start : rendered.body_end]
        super().__init__(lambda _, __: ids)
        self.asked: list[tuple[list[int], SamplingParams]] = []

    async def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[Chunk]:
        self.asked.append((list(token_ids), params))
        async for chunk in super().generate(token_ids, params):
            yield chunk


async def ask(predictor: WorldModelPredictor, where: PredictionContext, rank: int = 0) -> list[Candidate]:
    meter = TokenMeter()
    candidates = [candidate async for candidate in predictor.predict(where, rank, meter)]
    assert meter.tokens == len(candidates[0].logprobs)
    return candidates


def test_the_world_model_reads_the_trajectory_and_the_opening_of_the_response() -> None:
    backend = Recorder()
    (candidate,) = run(ask(WorldModelPredictor(backend, CHAT, 50), context()))
    ((ids, params),) = backend.asked
    assert ids == [1, 2, 3, *CHAT.opening]
    assert params == SamplingParams(
        50, temperature=0.0, stop_token_ids=(CHAT.world_model_stop_id, CHAT.end_id)
    )
    assert (candidate.text, candidate.source) == (A, "world_model/greedy")
    assert candidate.confidence == pytest.approx(math.exp(sum(candidate.logprobs)))


def test_a_long_trajectory_is_cut_from_the_left() -> None:
    backend = Recorder()
    for most, kept in ((2, [2, 3]), (3, [1, 2, 3]), (9, [1, 2, 3])):
        run(ask(WorldModelPredictor(backend, CHAT, 50, context_tokens=most), context()))
        assert backend.asked[-1][0] == [*kept, *CHAT.opening]


def test_samples_have_seeds_that_depend_on_everything_and_never_on_when() -> None:
    backend = Recorder()
    predictor = WorldModelPredictor(backend, CHAT, 50)
    asked = [
        (context(seed=seed, task=task, before=["ls"] * turn), rank)
        for seed in (0, 1)
        for task in ("family/1", "family/2")
        for turn in (0, 1)
        for rank in (1, 2, 3)
    ]
    for where, rank in [*asked, *asked]:
        (candidate,) = run(ask(predictor, where, rank))
        assert candidate.source == predictor.source(rank) == "world_model/sampled"
    seeds = [params.seed for _, params in backend.asked]
    assert all(params.temperature == 1.0 for _, params in backend.asked)
    assert seeds[: len(asked)] == seeds[len(asked) :]
    assert len(set(seeds)) == len(asked)
    actions = {
        derive("action", task, seed, turn) for task in ("family/1",) for seed in (0, 1) for turn in (0, 1, 2)
    }
    assert not actions & set(seeds)


def test_what_a_cancelled_prediction_cost_is_counted() -> None:
    async def main() -> None:
        backend = Recorder()
        meter = TokenMeter()
        predictor = WorldModelPredictor(backend, CHAT, 50)

        async def listen() -> None:
            async for _ in predictor.predict(context(), 0, meter):
                raise AssertionError

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.035)  # 100 tokens a second
        assert backend.running == 1
        listening.cancel()
        await asyncio.wait({listening})
        assert (meter.tokens, backend.running) == (3, 0)

    run(main())


def test_a_certain_prediction_is_one_however_its_numbers_are_rounded() -> None:
    class Rounded(Recorder):
        async def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[Chunk]:
            async for chunk in super().generate(token_ids, params):
                yield replace(chunk, logprobs=(1e-7,) * len(chunk.token_ids))

    stage = scene([2.0])
    stage.predict_with(Rounded(RIGHT[0][0]))
    rollout = play(stage, tree(1))
    assert [p.outcome for p in outcomes(rollout)] == [Outcome.HIT]


# oracle


def test_the_oracle_knows_what_a_sequential_rollout_saw() -> None:
    plain = sequential(scene([1.0, 1.0]))
    oracle = Oracle(lambda task, seed: plain if (task, seed) == ("family/1", 0) else None)
    (candidate,) = oracle.recall(context("ls"))
    assert (candidate.text, candidate.confidence) == (RIGHT[0][0], 1.0)
    assert [c.text for c in oracle.recall(context("cat a.txt", ["ls"]))] == [RIGHT[1][0]]
    for other in (
        context("ls", seed=1),
        context("ls", task="family/2"),
        context("ls", ["cat a.txt"]),
        context("pwd"),
        context("ls", ["ls"] * 2),  # done was called there
        context("ls", ["ls"] * 3),  # it ended before
    ):
        assert oracle.recall(other) == ()


def oracle_of(plain: Rollout, tool_s: Sequence[float]) -> Stage:
    stage = scene(tool_s)
    stage.tools = replace(stage.tools, recorded=lambda task, seed: plain)
    stage.scopes = Scopes(partial(predictors.create, tools=stage.tools))
    return stage


def test_the_oracle_saves_all_that_one_turn_ahead_can_save() -> None:
    tools = [2.0, 0.3, 0.1]
    plain = sequential(scene(tools))
    rollout = play(oracle_of(plain, tools), tree(1, predictors=("oracle",)))
    assert [p.outcome for p in outcomes(rollout)] == [Outcome.HIT] * 3
    best = sum(min(generation_s(plain, turn + 1), tool_s) for turn, tool_s in enumerate(tools))
    assert rollout.totals.saved_s == pytest.approx(best)
    assert rollout.totals.discarded_policy_tokens == 0
    assert rollout.trajectory == plain.trajectory


# by name


def test_predictors_are_found_by_name() -> None:
    assert predictors.NAMES == ["memo", "oracle", "usual", "world_model"]
    tools = stage().tools
    for name in predictors.NAMES:
        assert predictors.create(name, tools).name == name
    with pytest.raises(
        Unavailable, match="no predictor 'base': the predictors are memo, oracle, usual, world_model"
    ):
        predictors.create("base", tools)
    with pytest.raises(Unavailable, match="needs an engine, and this service has none"):
        predictors.create("world_model", replace(tools, world_model=None))


# a group


def memo(depth: int = 1, breadth: int = 1) -> SpeculationSettings:
    return tree(depth, breadth, predictors=("memo",))


def test_a_second_rollout_knows_what_the_first_saw() -> None:
    first, second = group(scene([2.0, 2.0]), [0.0, 100.0], memo())
    assert [p.outcome for p in outcomes(first)] == [Outcome.NO_PREDICTION] * 2
    assert [p.outcome for p in outcomes(second)] == [Outcome.HIT] * 2
    assert [g.source for g in guesses(second)] == ["memo/exact"] * 2
    assert second.totals.saved_s == pytest.approx(generation_s(second, 1) + generation_s(second, 2))


def test_a_rollout_learns_what_another_sees_while_its_own_tool_runs() -> None:
    first, second = group(scene([2.0, 2.0]), [0.0, 0.5], memo())
    assert outcomes(first)[0].outcome is Outcome.NO_PREDICTION
    hit = outcomes(second)[0]
    behind_s = 0.5 + generation_s(second, 0) - generation_s(first, 0)
    assert hit.outcome is Outcome.HIT
    assert hit.saved_s == pytest.approx(min(behind_s, generation_s(second, 1)))
    assert hit.guesses[0].predictor_s == pytest.approx(2.0 - behind_s)


def test_what_a_group_knows_is_known_several_turns_ahead() -> None:
    _, second = group(scene([9.0, 0.01, 0.01]), [0.0, 100.0], memo(depth=3))
    assert [p.outcome for p in outcomes(second)] == [Outcome.HIT] * 3
    assert [g.depth for g in guesses(second)] == [1, 2, 3]
    assert second.agent_latency_s == pytest.approx(generation_s(second, 0) + 9.02)


def test_a_deeper_guess_may_come_from_a_rollout_that_is_ahead() -> None:
    """The second rollout imagines the call that the first one's tool is answering."""
    first, second = group(scene([3.0, 3.0]), [0.0, 2.9], memo(depth=2))
    assert [p.outcome for p in outcomes(second)] == [Outcome.HIT] * 2
    assert first.trajectory != second.trajectory


def test_a_group_learns_an_observation_when_it_is_there() -> None:
    """The first rollout has a hit, and then waits for its branch; the second one's tool still runs."""
    stage = scene([0.5, 0.5], [[RIGHT[0][0]]] * 2)
    stage.world_model._token_s = 0.03
    first, second = group(stage, [0.0, 0.3], tree(1, predictors=("memo", "world_model")))
    assert outcomes(first)[0].outcome is Outcome.HIT
    assert outcomes(first)[0].block_s > 0.5
    assert [g.source for g in outcomes(second)[0].guesses] == ["memo/exact"]


def test_another_environment_knows_nothing() -> None:
    async def main() -> list[Rollout]:
        rollouts = []
        for environment in ("one", "two", "one"):
            record = theatre.record(memo())
            record.environment = environment
            await run_rollout(theatre.world, task(), record)
            rollouts.append(record.snapshot())
        return rollouts

    theatre = scene([2.0])
    assert [outcomes(r)[0].outcome for r in run(main())] == [
        Outcome.NO_PREDICTION,
        Outcome.NO_PREDICTION,
        Outcome.HIT,
    ]


def test_other_scopes_know_nothing() -> None:
    theatre = scene([2.0])
    settings = [memo().model_copy(update={"scope": scope}) for scope in ("", "other", "")]
    seen = [outcomes(run(theatre.run(theatre.record(each))))[0].outcome for each in settings]
    assert seen == [Outcome.NO_PREDICTION, Outcome.NO_PREDICTION, Outcome.HIT]


def test_a_sequential_rollout_teaches_the_others_of_its_scope() -> None:
    theatre = scene([2.0])
    for mode in (memo(), memo().model_copy(update={"mode": SpeculationMode.NEVER}), memo()):
        rollout = run(theatre.run(theatre.record(mode, seed=1)))
    (guess,) = guesses(rollout)
    assert guess.confidence == pytest.approx(3 / 4)


# failures


class Failing:
    """Raises in the method that it names."""

    name = "failing"

    def __init__(self, where: str):
        self._where = where

    def _fail(self, where: str) -> None:
        if where == self._where:
            raise RuntimeError(f"a defect in {where}")

    @property
    def ranks(self) -> int | None:
        self._fail("ranks")
        return 1

    def recall(self, context: PredictionContext) -> Sequence[Candidate]:
        self._fail("recall")
        return [Candidate(WRONG, "failing", math.nan)] if self._where == "confidence" else []

    def source(self, rank: int) -> str:
        self._fail("source")
        return "failing"

    async def predict(
        self, context: PredictionContext, rank: int, meter: TokenMeter
    ) -> AsyncGenerator[Candidate]:
        self._fail("predict")
        yield Candidate(WRONG, "failing", math.nan if self._where == "prediction's confidence" else 0.5)

    def learn(self, context: PredictionContext, observation: str) -> None:
        self._fail("learn")


@pytest.mark.parametrize("mode", [SpeculationMode.ALWAYS, SpeculationMode.GOVERNED])
@pytest.mark.parametrize(
    "where", ["recall", "predict", "prediction's confidence", "ranks", "source", "learn", "confidence"]
)
def test_a_predictor_may_raise_anything_anywhere(where: str, mode: SpeculationMode) -> None:
    theatre = scene([2.0, 2.0])
    theatre.scopes = Scopes(lambda name: Failing(where))
    rollout = play(theatre, tree(2, mode=mode))
    assert rollout.trajectory == sequential(scene([2.0, 2.0])).trajectory
    if where == "predict":
        assert [p.outcome for p in outcomes(rollout)] == [Outcome.PREDICTOR_FAILED] * 2
        assert [p.error for p in outcomes(rollout)] == ["failing: a defect in predict"] * 2


# What is usual


def told(command: str, task_id: str = "family/1") -> PredictionContext:
    return PredictionContext([1, 2], task_id, "", History(), command, turn=0, seed=0)


def test_a_form_leaves_out_what_a_command_is_about() -> None:
    assert form("sed -i s/a/b/ f.txt") == form("sed -i s/x/y/ other") == "sed -i _ _"
    assert form("cat a | grep -c b > c && ls") == "cat _ | grep -c _ > _ && ls"
    assert form("mkdir a") != form("rm a")
    assert len(form("echo " + "x " * 1000)) < 40


def test_what_nearly_always_comes_is_said_in_other_tasks_too() -> None:
    usual = Usual()
    assert usual.recall(told("mkdir a")) == ()
    for i in range(20):
        usual.learn(told(f"mkdir d{i}", f"family/{i}"), "(no output)\n(exit_code=0)")
        usual.learn(told(f"cat f{i}"), f"text {i}\n(exit_code=0)")
    (candidate,) = usual.recall(told("mkdir new", "other/7"))
    assert (candidate.text, candidate.source) == ("(no output)\n(exit_code=0)", "usual")
    assert 0.9 < candidate.confidence < 1
    assert usual.recall(told("cat new")) == ()
    assert usual.recall(told("mkdir -p new")) == ()


def test_what_is_usual_may_change() -> None:
    usual = Usual()
    for text in ["one"] * 20 + ["two"] * 200:
        usual.learn(told("git status"), text)
    assert [candidate.text for candidate in usual.recall(told("git status"))] == ["two"]


def test_the_forms_that_are_kept_are_bounded() -> None:
    usual = Usual()
    for i in range(5000):
        usual.learn(told(f"program{i}"), "text")
    assert len(usual._forms) == 4096


# Predictions that are not finished


def test_a_world_model_stops_where_a_prediction_is_of_no_use() -> None:
    theatre = stage()
    unsure = ScriptedBackend(foreteller([RIGHT[0][0]]), tokens_per_s=100)
    predictor = WorldModelPredictor(unsure, CHAT, 100)

    async def main(least: float) -> tuple[list[Candidate], int]:
        meter = TokenMeter(hopeless=lambda confidence: confidence < least)
        context = replace(told("ls"), token_ids=[*CHAT.prompt("List the files."), CHAT.end_id])
        found = [candidate async for candidate in predictor.predict(context, 0, meter)]
        return found, meter.tokens

    whole, tokens = run(main(0.0))
    nothing, few = run(main(0.9))
    assert len(whole) == 1
    assert tokens == len(whole[0].logprobs)
    assert (nothing, few < tokens) == ([], True)
    assert theatre.policy.running == unsure.running == 0
