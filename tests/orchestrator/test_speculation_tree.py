"""Depth and breadth: branches on branches, and several side by side, in exact virtual times.

An action takes about a second to generate, a prediction a twentieth of one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from orchestrator.backends.scripted import ScriptedBackend
from orchestrator.history import History
from orchestrator.predictors.base import Candidate, PredictionContext
from orchestrator.report import report
from orchestrator.schema import (
    Fate,
    Limits,
    Outcome,
    Reason,
    RolloutStatus,
    ToolLatency,
)
from orchestrator.speculation.call import Call
from orchestrator.speculation.governor import Governor
from orchestrator.speculation.load import Load
from tests.orchestrator.scenes import (
    RIGHT,
    ROOM,
    WRONG,
    answer_s,
    engine,
    generation_s,
    guesses,
    play,
    predictions,
    scene,
    sequential,
    tree,
)
from tests.orchestrator.virtual import cancel_everywhere, run
from tests.orchestrator.worlds import (
    DONE,
    TOKENIZER,
    RecordingBackend,
    Stage,
    actor,
    bash,
    foreseen,
    foreteller_by_rank,
    printed,
)

# Depth


def test_at_depth_two_the_action_after_next_is_ready_before_its_tool_starts() -> None:
    tools = [10.0, 0.001]
    one, two = scene(tools), scene(tools)
    plain, shallow, deep = sequential(scene(tools)), play(one, tree(1)), play(two, tree(2))
    assert plain.trajectory == shallow.trajectory == deep.trajectory
    assert [p.outcome for p in predictions(shallow)] == [Outcome.HIT, Outcome.TOOL_FIRST]
    assert [p.outcome for p in predictions(deep)] == [Outcome.HIT, Outcome.HIT]
    assert [g.depth for g in guesses(deep)] == [1, 2]
    assert [b.parent for b in engine(two).opened] == [None, 0]
    first = generation_s(plain, 0)
    assert deep.agent_latency_s == pytest.approx(first + sum(tools))
    assert shallow.agent_latency_s == pytest.approx(first + sum(tools) + generation_s(plain, 2))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("tools", [(2.0, 2.0, 2.0, 2.0), (0.9, 0.1, 0.6, 0.02), (5.0, 0.01, 0.01, 0.01)])
def test_what_is_saved_adds_up_to_the_difference_in_latency(depth: int, tools: Sequence[float]) -> None:
    plain, ahead = sequential(scene(tools)), play(scene(tools), tree(depth))
    assert plain.agent_latency_s is not None
    assert ahead.agent_latency_s is not None
    assert ahead.totals.saved_s > 0
    assert plain.agent_latency_s - ahead.agent_latency_s == pytest.approx(ahead.totals.saved_s)
    for turn, prediction in enumerate(predictions(ahead)):
        if prediction.outcome is Outcome.HIT:
            assert prediction.saved_s + prediction.block_s == pytest.approx(generation_s(plain, turn + 1))


def test_a_branch_opened_on_another_survives_its_commit_and_streams_on() -> None:
    """The second tool returns when the branch on its observation has half of its tokens."""
    plain = sequential(scene([1.0, 0.1]))
    ready = answer_s(RIGHT[0][0]) + generation_s(plain, 1) + answer_s(RIGHT[1][0])
    tools = [ready + 0.2, 0.1]
    stage = scene(tools)
    deep = play(stage, tree(2))
    second = predictions(deep)[1]
    assert second.outcome is Outcome.HIT
    assert second.saved_s == pytest.approx(0.3)
    assert second.block_s == pytest.approx(generation_s(plain, 2) - 0.3)
    assert engine(stage).ends == [("commit", 0), ("commit", 1)]
    assert deep.trajectory == plain.trajectory


@pytest.mark.parametrize("late_s", [-0.03, 0.02])
def test_a_branch_that_is_opened_while_the_one_below_it_is_committed_is_opened_all_the_same(
    late_s: float,
) -> None:
    """The first tool returns a little before the second prediction, or while the branch on it is opened."""
    plain = sequential(scene([1.0, 3.0]))
    ready = answer_s(RIGHT[0][0]) + 0.05 + generation_s(plain, 1) + answer_s(RIGHT[1][0])
    stage = scene([ready + late_s, 3.0], opening_s=0.05)
    deep = play(stage, tree(2))
    assert [p.outcome for p in predictions(deep)] == [Outcome.HIT, Outcome.HIT]
    assert [p.error for p in predictions(deep)] == [None, None]
    assert engine(stage).ends == [("commit", branch.number) for branch in engine(stage).opened]
    assert deep.trajectory == plain.trajectory


def test_a_branch_that_still_runs_has_none_on_it() -> None:
    stage = scene([0.2, 10.0])
    deep = play(stage, tree(3))
    assert [b.parent for b in engine(stage).opened] == [None, None]
    assert [p.frontier for p in predictions(deep)] == [1, 1]


def test_the_depth_limit_bounds_the_turns_ahead() -> None:
    for depth in (1, 2, 3, 4):
        stage = scene([30.0, 0.1, 0.1, 0.1])
        deep = play(stage, tree(depth))
        assert predictions(deep)[0].frontier == depth
        assert max(g.depth for g in guesses(deep)) == depth


def test_the_depth_limit_moves_along_after_a_commit() -> None:
    deep = play(scene([30.0, 30.0, 30.0, 0.001]), tree(2))
    assert [p.frontier for p in predictions(deep)] == [2, 2, 2, 1]
    assert [g.depth for g in guesses(deep)] == [1, 2, 2, 2]


def test_the_depth_limit_moves_along_at_every_level() -> None:
    tools = [30.0, 30.0, 0.001, 0.001]
    plain, deep = sequential(scene(tools)), play(scene(tools), tree(3))
    assert [p.frontier for p in predictions(deep)] == [3, 3, 2, 1]
    assert deep.agent_latency_s == pytest.approx(generation_s(plain, 0) + sum(tools))


def test_a_dropped_branch_takes_those_that_were_opened_on_it_along_children_first() -> None:
    stage = scene([10.0, 0.1, 0.1, 0.1], [[WRONG], *RIGHT[1:]])
    deep = play(stage, tree(3))
    assert [b.parent for b in engine(stage).opened[:3]] == [None, 0, 1]
    assert engine(stage).ends[:3] == [("drop", 2), ("drop", 1), ("drop", 0)]
    miss = predictions(deep)[0]
    assert (miss.outcome, miss.frontier) == (Outcome.MISS, 3)
    assert deep.trajectory == sequential(scene([10.0, 0.1, 0.1, 0.1])).trajectory


def test_only_the_path_that_came_true_survives() -> None:
    """Two guesses at either level: of six branches one path is committed."""
    stage = scene([10.0, 0.1], [[WRONG, RIGHT[0][0]], [RIGHT[1][0], WRONG]])
    wide = play(stage, tree(2, breadth=2))
    assert [p.outcome for p in predictions(wide)] == [Outcome.HIT, Outcome.HIT]
    assert sorted(b.parent is None for b in engine(stage).opened) == [False] * 4 + [True] * 2
    kept = [number for how, number in engine(stage).ends if how == "commit"]
    (first, second) = (engine(stage).opened[number] for number in kept)
    assert second.parent == first.number


def test_an_imagined_call_is_never_run() -> None:
    stage = scene([10.0, 0.1], [[WRONG], [WRONG]])
    play(stage, tree(3))
    assert stage.sandboxes[0].calls == ["start", "ls", "cat a.txt", "verify", "stop"]


def test_what_is_known_of_an_imagined_call_is_asked_once() -> None:
    stage = scene([10.0, 10.0])
    play(stage, tree(2))
    assert isinstance(stage.world_model, RecordingBackend)
    assert stage.world_model.requests == 2


def test_a_question_about_an_imagined_call_goes_on_when_its_tool_starts() -> None:
    """The first tool returns while the world model answers about the second."""
    plain = sequential(scene([1.0, 1.0]))
    asked = answer_s(RIGHT[0][0]) + generation_s(plain, 1)
    tools = [asked + answer_s(RIGHT[1][0]) / 2, 2.0]
    stage = scene(tools)
    deep = play(stage, tree(2))
    assert isinstance(stage.world_model, RecordingBackend)
    assert stage.world_model.requests == 2
    assert [g.depth for g in guesses(deep)] == [1, 1]
    assert deep.totals.discarded_world_model_tokens == 0
    first = generation_s(plain, 0)
    assert deep.agent_latency_s == pytest.approx(first + sum(tools))


def test_nothing_is_imagined_after_done_or_a_malformed_action() -> None:
    for second in (DONE, "I forgot the call."):
        stage = scene([10.0], RIGHT, [bash("ls"), second, DONE])
        deep = play(stage, tree(3))
        assert len(engine(stage).opened) == 1
        assert predictions(deep)[0].outcome is Outcome.HIT
        assert deep.trajectory == sequential(scene([10.0], RIGHT, [bash("ls"), second, DONE])).trajectory


def test_nothing_is_imagined_after_an_action_that_was_cut() -> None:
    limits = ROOM.model_copy(update={"max_action_tokens": 20, "max_turns": 3})
    actions = ["Look.\n" + bash("ls").partition("\n")[2], bash("cat a.txt and much more"), DONE]
    tokens = [len(TOKENIZER.encode(text)) + 1 for text in actions]
    limits = limits.model_copy(update={"max_action_tokens": tokens[0]})
    assert tokens[1] > tokens[0]
    stage = scene([10.0], RIGHT, actions)
    cut = play(stage, tree(3), limits)
    assert len(engine(stage).opened) == 1
    assert cut.trajectory == sequential(scene([10.0], RIGHT, actions), limits).trajectory
    assert "cut" in str(cut.turns[1].observation)


def test_nothing_is_speculated_on_the_last_turn() -> None:
    stage = scene([10.0, 10.0, 10.0])
    deep = play(stage, tree(3), ROOM.model_copy(update={"max_turns": 3}))
    assert len(engine(stage).opened) == 2
    assert [p.outcome for p in predictions(deep)] == [Outcome.HIT, Outcome.HIT, Outcome.NOT_ATTEMPTED]


def test_no_branch_is_opened_past_the_longest_trajectory() -> None:
    whole = sequential(scene([10.0, 10.0, 10.0]))
    assert whole.trajectory is not None
    lengths = [len(segment.token_ids) for segment in whole.trajectory.segments]
    limits = Limits(max_tokens=len(whole.trajectory.prompt_ids) + sum(lengths[:4]))
    stage = scene([10.0, 10.0, 10.0])
    deep, plain = play(stage, tree(3), limits), sequential(scene([10.0, 10.0, 10.0]), limits)
    assert deep.status is plain.status is RolloutStatus.TRUNCATED
    assert (deep.error, deep.trajectory) == (plain.error, plain.trajectory)
    assert predictions(deep)[1].outcome is Outcome.BRANCH_FAILED


def test_the_rollout_ends_with_branches_open_on_what_will_never_run() -> None:
    """The agent's time is over while branches at every depth are open."""
    stage = scene([1.0, 100.0, 0.1, 0.1], [[RIGHT[0][0], WRONG]] * 4)
    record = stage.record(tree(3, breadth=2), limits=ROOM)
    rollout = run(stage.run(record, agent_timeout_s=30.0))
    assert rollout.status is RolloutStatus.TRUNCATED
    assert rollout.agent_latency_s == pytest.approx(30.0)
    engine(stage).check_each_branch_ended_once()


# Breadth


def test_breadth_is_so_many_branches_of_one_call() -> None:
    for breadth in (1, 2, 3, 4):
        stage = scene([10.0], [["one", "two", "three", "four"]])
        wide = play(stage, tree(1, breadth))
        assert len(engine(stage).opened) == breadth
        assert {g.text for g in guesses(wide)} == set(["one", "two", "three", "four"][:breadth])
        assert {g.text for g in guesses(wide) if g.source == "world_model/greedy"} == {"one"}


def test_guesses_that_say_the_same_are_one() -> None:
    stage = scene([10.0], [[WRONG, WRONG, RIGHT[0][0], WRONG]])
    wide = play(stage, tree(1, breadth=4))
    assert {g.text for g in guesses(wide)} == {WRONG, RIGHT[0][0]}
    assert len(engine(stage).opened) == 2


def test_any_of_several_guesses_is_a_hit() -> None:
    for rank in range(3):
        answers = [f"wrong {i}" for i in range(3)]
        answers[rank] = RIGHT[0][0]
        wide = play(scene([10.0], [answers]), tree(1, breadth=3))
        assert predictions(wide)[0].outcome is Outcome.HIT
        assert [g.fate for g in guesses(wide)].count(Fate.COMMITTED) == 1
        assert [g.text for g in guesses(wide) if g.fate is Fate.COMMITTED] == [RIGHT[0][0]]


def test_a_complete_prediction_starts_its_branch_while_others_are_still_predicted() -> None:
    long = "x" * 150
    assert answer_s(long) > 0.5
    stage = scene([0.5], [[long, RIGHT[0][0]]])
    wide = play(stage, tree(1, breadth=2))
    (hit,) = predictions(wide)
    assert hit.outcome is Outcome.HIT
    assert hit.saved_s == pytest.approx(0.5 - answer_s(RIGHT[0][0]))
    assert hit.cancelled == 1
    assert hit.cancelled_s == pytest.approx(0.5)


def test_a_likelier_guess_takes_the_place_of_the_least_likely() -> None:
    stage = foreseen(scene([10.0]), ("weak", 0.05, 0.1), ("fair", 0.3, 0.1), (RIGHT[0][0], 0.95, 1.0))
    wide = play(stage, tree(1, breadth=2))
    assert {g.text: g.fate for g in guesses(wide)} == {
        "weak": Fate.OUTBID,
        "fair": Fate.DROPPED,
        RIGHT[0][0]: Fate.COMMITTED,
    }
    (hit,) = predictions(wide)
    assert (hit.cancelled, hit.cancelled_s) == (1, pytest.approx(0.9))
    assert hit.discarded_policy_tokens == engine(stage).tokens - wide.totals.action_tokens


def test_a_less_likely_guess_takes_nobodys_place() -> None:
    stage = foreseen(scene([10.0]), (RIGHT[0][0], 0.9, 0.1), ("weak", 0.05, 0.2))
    wide = play(stage, tree(1, breadth=1))
    assert [(g.fate, g.reason) for g in guesses(wide)] == [
        (Fate.COMMITTED, Reason.ALWAYS),
        (Fate.UNUSED, Reason.BREADTH),
    ]
    assert len(engine(stage).opened) == 1


def test_a_guess_outbid_before_its_branch_was_there_counts_from_when_it_was_asked_for() -> None:
    """Both guesses come in the same instant, in the second turn: the weak one's branch had not begun."""
    stage = scene([5.0, 5.0], opening_s=0.5)
    foreseen(stage, ("weak", 0.1, 1.0), ("strong", 0.9, 1.0))
    wide = play(stage, tree(1, breadth=1))
    assert [p.cancelled for p in predictions(wide)] == [1, 1]
    assert [p.cancelled_s for p in predictions(wide)] == pytest.approx([0.0, 0.0])


def test_the_engine_may_take_its_time_to_open_a_branch() -> None:
    stage = scene([10.0, 0.1], opening_s=0.5)
    deep = play(stage, tree(2))
    assert [p.outcome for p in predictions(deep)] == [Outcome.HIT, Outcome.HIT]
    late = scene([0.3, 10.0], opening_s=0.5)
    rollout = play(late, tree(2))
    assert predictions(rollout)[0].outcome is Outcome.TOOL_FIRST
    assert len(engine(late).opened) == 1


# Early drop


def printing(*lines: str, tool_s: float) -> Stage:
    """One tool call that prints its lines one after another."""
    stage = scene([tool_s])
    stage.answers["ls"] = ("".join(f"{line}\n" for line in lines), tool_s)
    return stage


def test_what_the_tool_has_printed_ends_a_branch_that_it_contradicts() -> None:
    stage = foreseen(printing("a", "b", "c", "d", tool_s=4.0), (printed("a\nx"), 0.9, 0.1))
    rollout = play(stage, tree(1, early_drop=True))
    (guess,) = guesses(rollout)
    assert (guess.fate, guess.reason) == (Fate.CONTRADICTED, Reason.CONTRADICTED)
    assert guess.overlap_s == pytest.approx(generation_s(rollout, 1), abs=0.1)
    (miss,) = predictions(rollout)
    assert (miss.outcome, miss.cancelled, miss.frontier) == (Outcome.MISS, 1, 0)
    assert miss.cancelled_s == pytest.approx(2.0 - 0.1)
    kept = play(foreseen(printing("a", "b", "c", "d", tool_s=4.0), (printed("a\nx"), 0.9, 0.1)), tree(1))
    assert [g.fate for g in guesses(kept)] == [Fate.DROPPED]
    assert kept.trajectory == rollout.trajectory


def test_early_drop_ends_what_was_opened_on_the_branch_too() -> None:
    stage = scene([10.0, 0.1, 0.1], [[WRONG]] * 3)
    stage.answers["ls"] = ("a\nb\n", 10.0)
    play(stage, tree(3, early_drop=True))
    assert engine(stage).ends[:3] == [("drop", 2), ("drop", 1), ("drop", 0)]


def test_a_guess_that_comes_after_the_contradiction_gets_no_branch() -> None:
    stage = foreseen(printing("a", "b", tool_s=4.0), ("x\n(exit_code=0)", 0.9, 3.0))
    rollout = play(stage, tree(1, early_drop=True))
    assert [(g.fate, g.reason) for g in guesses(rollout)] == [(Fate.UNUSED, Reason.CONTRADICTED)]
    assert engine(stage).opened == []


def a_call() -> Call:
    owner = SimpleNamespace(settings=tree(1), observation_limit=100, turn=0, governor=Governor(Load()))
    context = PredictionContext((), "task", "files", History(), "ls", 0, 0)
    return Call(owner, context, "ls")  # type: ignore[arg-type]


def test_a_guess_that_the_output_has_ruled_out_counts_for_nothing() -> None:
    call = a_call()
    call._add(Candidate("a", "memo/exact", 0.9), "memo", 0.0)
    call._add(Candidate("b", "memo/exact", 0.5), "memo", 0.0)
    assert call._p_known() == pytest.approx(0.95)
    call.guesses["a"].reason = Reason.CONTRADICTED
    assert call._p_known() == pytest.approx(0.5)


def test_a_guess_is_that_of_the_predictor_that_is_surest_of_it() -> None:
    call = a_call()
    call._add(Candidate("a", "memo/command", 0.3), "memo", 0.0)
    call._add(Candidate("a", "world_model/greedy", 0.9), "world_model", 0.1)
    call._add(Candidate("a", "world_model/sampled", 0.2), "world_model", 0.2)
    (guess,) = call.guesses.values()
    assert (guess.predictor, guess.candidate.source) == ("world_model", "world_model/greedy")
    assert (guess.predictor_s, guess.p_hit) == (0.1, pytest.approx(0.9))


def test_a_place_freed_by_an_early_drop_goes_to_the_next_guess() -> None:
    right = printed("a\nb")
    stage = foreseen(printing("a", "b", tool_s=4.0), ("x\n(exit_code=0)", 0.9, 0.1), (right, 0.3, 0.1))
    rollout = play(stage, tree(1, early_drop=True))
    assert [g.fate for g in guesses(rollout)] == [Fate.CONTRADICTED, Fate.COMMITTED]


def test_simulated_latency_drops_nothing_early() -> None:
    stage = foreseen(printing("a", "b", tool_s=4.0), ("x\n(exit_code=0)", 0.9, 0.1))
    latency = ToolLatency(mean_s=5.0)
    rollout = run(stage.run(stage.record(tree(1, early_drop=True), limits=ROOM, tool_latency=latency)))
    assert [g.fate for g in guesses(rollout)] == [Fate.DROPPED]


# Every branch ends once


@pytest.mark.parametrize(
    ("tools", "told", "options"),
    [
        ([1.5, 0.3], [["a", RIGHT[0][0], "b"], ["c", "d", RIGHT[1][0]]], {}),
        ([0.4, 0.4], [["a", RIGHT[0][0], "b"], ["c", "d", RIGHT[1][0]]], {"opening_s": 0.05}),
        ([2.5, 0.3], [["a", "b", "c"], ["d", "e", "f"]], {}),
    ],
)
def test_a_cancellation_at_any_await_ends_every_branch_once(
    tools: list[float], told: list[list[str]], options: dict[str, float]
) -> None:
    stages: list[Stage] = []

    async def rollout() -> None:
        stage = scene(tools, told, **options)
        stage.policy._token_s = stage.world_model._token_s = 0.01  # fewer iterations of the loop
        stage.policy._chunk_tokens = stage.world_model._chunk_tokens = 10
        stages.append(stage)
        await stage.run(stage.record(tree(3, breadth=3), limits=ROOM))

    def check() -> None:
        for stage in stages:
            stage.check_nothing_left()
            engine(stage).check_each_branch_ended_once()
        stages.clear()

    assert cancel_everywhere(rollout, check) > 50


# Figures


@pytest.mark.parametrize("early_drop", [False, True])
def test_the_figures_are_what_the_engines_did(early_drop: bool) -> None:
    tools = [2.0, 0.5, 1.0, 0.01]
    told = [
        [WRONG, RIGHT[0][0]],
        [RIGHT[1][0], "else"],
        ["other", WRONG],
        [RIGHT[3][0], WRONG],
    ]
    stage = scene(tools, told)
    rollout = play(stage, tree(3, breadth=2, early_drop=early_drop))
    figures = report([rollout]).speculation
    assert isinstance(stage.world_model, RecordingBackend)
    assert rollout.totals.discarded_policy_tokens == engine(stage).tokens - rollout.totals.action_tokens
    kept = sum(g.tokens for g in guesses(rollout) if g.fate is Fate.COMMITTED)
    assert rollout.totals.discarded_world_model_tokens == stage.world_model.tokens - kept
    assert figures.overlap_s == pytest.approx(sum(g.overlap_s for g in guesses(rollout)))
    plain = sequential(scene(tools))
    assert plain.agent_latency_s is not None
    assert rollout.agent_latency_s is not None
    assert figures.saved_s == pytest.approx(plain.agent_latency_s - rollout.agent_latency_s)
    assert figures.tool_calls == 4


def test_the_figures_by_hand() -> None:
    """Two guesses a call at two depths: one call hit, one missed, one whose tool was first."""
    told = [[RIGHT[0][0], WRONG], [WRONG, "else"], ["x" * 150]]
    stage = scene([9.0, 9.0, 0.01], told)
    rollout = play(stage, tree(2, breadth=2))
    figures = report([rollout]).speculation
    assert [p.outcome for p in predictions(rollout)] == [Outcome.HIT, Outcome.MISS, Outcome.TOOL_FIRST]
    assert (figures.tool_calls, figures.attempted, figures.exact, figures.exec_won) == (3, 3, 1, 1)
    assert (figures.exact_frac, figures.hit_frac) == (0.5, pytest.approx(1 / 3))
    assert {depth: (d.compared, d.exact_frac) for depth, d in figures.by_depth.items()} == {
        1: (2, 0.5),
        2: (2, 0.0),
    }
    # at depth 1 both branches of the first call are whole; those of the second began while its tool was ahead
    assert figures.saved_s == pytest.approx(generation_s(rollout, 1))
    assert figures.block_s == pytest.approx(0.0)
    assert figures.overlap_s > 3 * figures.saved_s
    assert figures.frontier == pytest.approx((2 + 2 + 0) / 3)
    asked = 2
    assert (figures.cancelled, figures.cancelled_s) == (asked, pytest.approx(asked * 0.01))
    assert figures.sources == {"world_model/greedy": 1}
    assert figures.waste_per_saved_s == pytest.approx(figures.discarded_policy_tokens / figures.saved_s)


def test_what_was_thrown_away_when_the_agents_time_was_over_is_counted() -> None:
    stage = scene([1.0, 100.0])
    rollout = run(stage.run(stage.record(tree(2, breadth=2), limits=ROOM), agent_timeout_s=30.0))
    assert rollout.status is RolloutStatus.TRUNCATED
    assert rollout.totals.discarded_policy_tokens == engine(stage).tokens - rollout.totals.action_tokens


def test_a_turn_costs_no_more_after_many_hits() -> None:
    def seconds(depth: int, turns: int = 300) -> float:
        actions = [bash("ls")] * turns + [DONE]
        stage = Stage(actions, {"ls": ("a\n", 100.0)})
        stage.policy = ScriptedBackend(actor(actions), tokens_per_s=1000, chunk_tokens=100)
        told = foreteller_by_rank([[printed("a")]] * turns)
        stage.predict_with(ScriptedBackend(told, tokens_per_s=1000, chunk_tokens=100))
        limits = Limits(max_turns=turns + 1, max_tokens=10**7)
        start = time.process_time()
        rollout = run(stage.run(stage.record(tree(depth), limits=limits), agent_timeout_s=1e9))
        assert [p.outcome for p in predictions(rollout)] == [Outcome.HIT] * turns
        return time.process_time() - start

    assert seconds(depth=2) < 4 * seconds(depth=1)
