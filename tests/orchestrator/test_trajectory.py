from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.chat import Rendered
from orchestrator.schema import Segment, SegmentKind, Trajectory
from orchestrator.trajectory import GrowingTrajectory, TokenView

tokens = st.lists(st.integers(0, 500), max_size=12)
actions = st.tuples(
    st.just("action"), st.lists(st.tuples(st.integers(0, 500), st.floats(-20, 0)), max_size=12)
)
synthetic = st.tuples(st.just("synthetic"), tokens)
observations = st.tuples(
    st.just("observation"), tokens, st.lists(st.integers(0, 500), min_size=1, max_size=5), tokens
)


@given(prompt=tokens, steps=st.lists(actions | observations | synthetic, max_size=10))
def test_schema_ids_are_the_ids_fed_to_the_engine_at_every_turn(
    prompt: list[int], steps: list[tuple]
) -> None:
    trajectory = GrowingTrajectory(prompt)
    fed = [trajectory.ids]
    for step in steps:
        match step:
            case ("action", sampled):
                trajectory.append_action([t for t, _ in sampled], [p for _, p in sampled], "v1")
            case ("observation", before, body, after):
                ids = (*before, *body, *after)
                trajectory.append_observation(Rendered(ids, len(before), len(before) + len(body)))
            case ("synthetic", ids):
                trajectory.append_synthetic(ids)
        fed.append(trajectory.ids)

    schema = trajectory.to_schema()
    assert schema.prompt_ids == prompt == list(fed[0])
    concatenated = list(prompt)
    for segment, view, step in zip(schema.segments, fed[1:], steps, strict=True):
        concatenated += segment.token_ids
        assert list(view) == concatenated
        assert segment.kind == step[0]
        assert len(segment.policy_mask) == len(segment.world_model_mask) == len(segment.token_ids)
        learned = [t for t, learn in zip(segment.token_ids, segment.world_model_mask, strict=True) if learn]
        assert learned == (step[2] if step[0] == "observation" else [])
        assert segment.policy_mask == [step[0] == "action"] * len(segment.token_ids)
        if step[0] == "action":
            assert segment.logprobs == [p for _, p in step[1]]
            assert segment.weight_version == "v1"
    assert len(trajectory) == len(concatenated)
    assert Trajectory.model_validate_json(schema.model_dump_json()) == schema


@given(ids=tokens, later=tokens, data=st.data())
def test_a_view_is_the_sequence_it_was_when_it_was_taken(
    ids: list[int], later: list[int], data: st.DataObject
) -> None:
    grown = list(ids)
    view = TokenView(grown, len(grown))
    grown.extend(later)
    assert list(view) == ids
    assert len(view) == len(ids)
    a, b = data.draw(st.integers(-15, 15)), data.draw(st.integers(-15, 15))
    assert view[a:b] == ids[a:b]
    if ids:
        assert view[-1] == ids[-1]
    with pytest.raises(IndexError):
        view[len(ids)]


def test_an_action_needs_one_logprob_a_token() -> None:
    with pytest.raises(ValueError, match="1 logprobs for 2 tokens"):
        GrowingTrajectory([1]).append_action([1, 2], [-0.1], None)


def test_a_segment_whose_lists_differ_in_length_is_refused() -> None:
    with pytest.raises(ValueError, match="policy_mask has 1 entries for 2 token ids"):
        Segment(
            kind=SegmentKind.SYNTHETIC, token_ids=[1, 2], policy_mask=[False], world_model_mask=[False] * 2
        )
    with pytest.raises(ValueError, match="logprobs belong to actions"):
        Segment(
            kind=SegmentKind.OBSERVATION,
            token_ids=[1],
            logprobs=[0.0],
            policy_mask=[False],
            world_model_mask=[True],
        )
