from __future__ import annotations

import pytest

from orchestrator.atif import Brief, to_atif
from orchestrator.schema import (
    Limits,
    Outcome,
    Rollout,
    RolloutStatus,
    SegmentKind,
    SpeculationMode,
    ToolLatency,
)
from tasks import atif
from tests.orchestrator import qwen_like
from tests.orchestrator.virtual import run
from tests.orchestrator.worlds import DONE, TOKENIZER, Stage, bash, stage

BRIEF = Brief(qwen_like.SYSTEM, qwen_like.TOOLS, "List the files.", "qwen-like")


def exported(rollout: Rollout) -> atif.Trajectory:
    """As whoever reads the file sees it; every export keeps the rules of the format."""
    trajectory = atif.loads(atif.dumps(to_atif(rollout, BRIEF)))
    assert atif.problems(trajectory) == []
    assert trajectory.schema_version == "ATIF-v1.6"
    assert trajectory.session_id == rollout.id
    assert trajectory.extra
    assert trajectory.extra["status"] == rollout.status
    assert trajectory.extra["error"] == rollout.error
    assert trajectory.extra["reward"] == rollout.reward
    return trajectory


def agent_steps(trajectory: atif.Trajectory) -> list[tuple[atif.Step, atif.Metrics, dict[str, object]]]:
    steps = [step for step in trajectory.steps if step.source == "agent"]
    return [(step, step.metrics, step.extra) for step in steps if step.metrics and step.extra]


def ids_of(trajectory: atif.Trajectory) -> list[int]:
    """The token ids of the document, put together; each step's prompt is what all steps before it hold."""
    ids: list[int] = []
    for step in trajectory.steps:
        if step.metrics is not None and step.extra is not None:
            ids += step.metrics.prompt_token_ids or []
            assert step.metrics.prompt_tokens == len(ids)
            ids += step.metrics.completion_token_ids or []
            ids += [i for segment in step.extra["segments"] for i in segment["token_ids"]]
    return ids


def sampled_and_given(rollout: Rollout) -> list[int]:
    assert rollout.trajectory
    return rollout.trajectory.prompt_ids + [i for s in rollout.trajectory.segments for i in s.token_ids]


def test_a_rollout_reads_as_a_conversation() -> None:
    scene = stage()
    rollout = run(scene.run())
    trajectory = exported(rollout)
    assert (trajectory.agent.name, trajectory.agent.tool_definitions) == ("obsspec", qwen_like.TOOLS)
    assert [(step.source, step.message) for step in trajectory.steps] == [
        ("system", qwen_like.SYSTEM),
        ("user", "List the files."),
        *(("agent", turn.thought) for turn in rollout.turns),
    ]
    first, last = trajectory.steps[2], trajectory.steps[-1]
    assert first.tool_calls
    assert (first.tool_calls[0].function_name, first.tool_calls[0].arguments) == ("bash", {"command": "ls"})
    assert first.observation
    (result,) = first.observation.results
    assert (result.source_call_id, result.content) == (
        first.tool_calls[0].tool_call_id,
        "a.txt\n(exit_code=0)",
    )
    assert last.tool_calls
    assert (last.tool_calls[0].function_name, last.tool_calls[0].arguments) == ("done", {})
    assert last.observation is None
    assert all(step.timestamp is None for step in trajectory.steps)  # the record has no time of day


@pytest.mark.parametrize("mode", SpeculationMode)
def test_tokens_logprobs_and_masks_are_those_of_the_trajectory(mode: SpeculationMode) -> None:
    scene = stage()
    rollout = run(scene.run(scene.record(mode)))
    trajectory = exported(rollout)
    assert rollout.trajectory
    segments = rollout.trajectory.segments
    assert ids_of(trajectory) == sampled_and_given(rollout)
    actions = [segment for segment in segments if segment.kind is SegmentKind.ACTION]
    steps = agent_steps(trajectory)
    assert [(m.completion_token_ids, m.logprobs) for _, m, _ in steps] == [
        (s.token_ids, s.logprobs) for s in actions
    ]
    assert [m.prompt_token_ids is not None for _, m, _ in steps] == [True, False, False, False]
    followers = [segment for _, _, extra in steps for segment in extra["segments"]]  # type: ignore[attr-defined]
    others = [segment for segment in segments if segment.kind is not SegmentKind.ACTION]
    for follower, segment in zip(followers, others, strict=True):
        learned = [
            start <= i < end
            for i in range(len(segment.token_ids))
            for start, end in follower["world_model_ranges"]
        ]
        assert (follower["kind"], learned) == (segment.kind, segment.world_model_mask)


def test_speculation_and_times_are_under_extra() -> None:
    rollout = run(stage().run())
    trajectory = exported(rollout)
    steps = agent_steps(trajectory)
    outcomes = [extra["prediction"]["outcome"] for _, _, extra in steps if "prediction" in extra]  # type: ignore[index]
    assert outcomes == [Outcome.HIT, Outcome.HIT, Outcome.MISS]
    for turn, (_, _, extra) in zip(rollout.turns, steps, strict=True):
        assert (extra["speculated"], extra["generation_s"]) == (turn.speculated, turn.generation_s)
        assert (extra["action"], extra["weight_version"]) == (turn.text, "scripted")
        assert extra.get("tool_s") == (turn.tool_s if turn.prediction else None)
    assert trajectory.final_metrics
    assert trajectory.final_metrics.total_completion_tokens == rollout.totals.action_tokens
    assert trajectory.final_metrics.extra
    assert trajectory.final_metrics.extra["discarded_policy_tokens"] == rollout.totals.discarded_policy_tokens
    assert trajectory.extra
    assert len(trajectory.extra["spans"]) == len(rollout.spans)
    assert trajectory.extra["agent_latency_s"] == rollout.agent_latency_s
    assert trajectory.notes is None


def test_simulated_latency_is_called_simulated() -> None:
    scene = stage()
    rollout = run(scene.run(scene.record(tool_latency=ToolLatency(mean_s=1.0))))
    trajectory = exported(rollout)
    assert trajectory.notes
    assert "simulated" in trajectory.notes
    simulated = [extra.get("simulated_tool_s") for _, _, extra in agent_steps(trajectory)]
    assert simulated == [turn.simulated_s if turn.prediction else None for turn in rollout.turns]
    assert all(simulated[:3])


def test_a_malformed_action_is_exported_as_it_was_said() -> None:
    scene = Stage(["I forgot [b]the call.", bash("ls"), DONE], {"ls": ("a.txt", 1.0)}, ["", "nothing"])
    rollout = run(scene.run())
    step, metrics, extra = agent_steps(exported(rollout))[0]
    assert step.message == "I forgot [b]the call."
    assert (step.tool_calls, "action" in extra, "prediction" in extra, "tool_s" in extra) == (
        None,
        *[False] * 3,
    )
    assert step.observation
    (result,) = step.observation.results
    assert result.as_json() == {"content": rollout.turns[0].observation}
    assert [segment["kind"] for segment in extra["segments"]] == ["synthetic"]  # type: ignore[attr-defined]
    assert metrics.completion_token_ids
    assert TOKENIZER.decode(metrics.completion_token_ids).startswith("I forgot [b]the call.")


def test_a_cut_action_keeps_its_tokens() -> None:
    scene = Stage([bash("ls"), DONE], {})
    limits = Limits(max_action_tokens=20, max_turns=1, max_tokens=100_000)
    rollout = run(scene.run(scene.record(limits=limits)))
    trajectory = exported(rollout)
    ((_, metrics, extra),) = agent_steps(trajectory)
    assert metrics.completion_tokens == 20
    assert [segment["kind"] for segment in extra["segments"]] == ["synthetic", "synthetic"]  # type: ignore[attr-defined]
    assert ids_of(trajectory) == sampled_and_given(rollout)


@pytest.mark.parametrize("at", [0.2, 1.5, 3.3])
def test_a_truncated_rollout_ends_where_it_was_cut(at: float) -> None:
    rollout = run(stage().run(agent_timeout_s=at))
    trajectory = exported(rollout)
    assert rollout.status is RolloutStatus.TRUNCATED
    assert len(trajectory.steps) == 2 + len(rollout.turns)
    assert not rollout.turns or ids_of(trajectory) == sampled_and_given(rollout)
    if rollout.turns and rollout.turns[-1].observation is None:
        assert trajectory.steps[-1].observation is None
        assert "tool_s" not in (trajectory.steps[-1].extra or {})


@pytest.mark.parametrize("where", ["start", "exec", "verify"])
def test_a_failed_rollout_is_exported_as_it_is(where: str) -> None:
    rollout = run(stage(sandbox_error=where).run())
    trajectory = exported(rollout)
    assert rollout.status is RolloutStatus.FAILED
    assert len(trajectory.steps) == 2 + len(rollout.turns)


def test_a_cancelled_rollout_that_never_ran_is_what_it_was_asked_to_do() -> None:
    record = stage().record()
    record.end(RolloutStatus.CANCELLED, "cancelled")
    assert [step.source for step in exported(record.snapshot()).steps] == ["system", "user"]


def test_a_prompt_without_an_action_is_kept() -> None:
    scene = stage()
    rollout = run(scene.run(scene.record(limits=Limits(max_tokens=2))))
    trajectory = exported(rollout)
    assert (rollout.turns, rollout.status) == ([], RolloutStatus.TRUNCATED)
    assert trajectory.extra
    assert rollout.trajectory
    assert trajectory.extra["prompt_token_ids"] == rollout.trajectory.prompt_ids


def test_an_instruction_that_cannot_be_read_is_not_made_up() -> None:
    trajectory = to_atif(run(stage().run()), Brief(qwen_like.SYSTEM, [], None))
    assert [step.source for step in trajectory.steps[:2]] == ["system", "agent"]
    assert trajectory.notes == "The instruction of family/1 could not be read."
    assert atif.problems(trajectory) == []
