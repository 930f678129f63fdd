import json
import random
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from orchestrator.schema import Trajectory
from tests.trainer.conftest import trajectory
from trainer import batches


def test_masks_are_the_trajectory_s_own(tokenizer: PreTrainedTokenizerFast) -> None:
    raw = trajectory(tokenizer, random.Random(1))
    sample = batches.sample(Trajectory.model_validate(raw))
    assert sample.ids.tolist() == raw["prompt_ids"] + [i for s in raw["segments"] for i in s["token_ids"]]
    observed = tokenizer.decode(sample.ids[sample.mask("observations")])
    acted = tokenizer.decode(sample.ids[sample.mask("actions")])
    assert observed.count("\n</tool_response>") == 3
    assert "tool_call" not in observed
    assert acted.count("<|im_end|>") == 3
    assert "tool_response" not in acted
    assert (sample.mask("all") == (sample.mask("actions") | sample.mask("observations"))).all()
    assert not sample.mask("all")[: len(raw["prompt_ids"])].any()


def test_the_first_token_never_counts() -> None:
    every = np.ones(4, bool)
    sample = batches.Sample(np.arange(4), every, every)
    assert sample.mask("all").tolist() == [False, True, True, True]
    assert sample.actions.all()  # the sample itself is untouched


def test_an_epoch_holds_each_sample_once_within_the_token_limit() -> None:
    lengths = np.random.default_rng(0).integers(20, 400, size=500).tolist()
    plan = batches.plan(lengths, 2048, bucket=32, rng=np.random.default_rng(1))
    assert sorted(i for batch in plan for i in batch) == list(range(500))
    padded = [max(lengths[i] for i in batch) * len(batch) for batch in plan]
    assert max(padded) <= 2048
    assert sum(padded) / sum(lengths) < 1.1
    again = batches.plan(lengths, 2048, bucket=32, rng=np.random.default_rng(1))
    assert plan == again


def test_collate_is_jagged() -> None:
    batch = batches.collate([np.arange(3), np.arange(5)], [np.array([0, 1, 1]), np.array([0, 0, 1, 1, 1])], 0)
    assert batch["input_ids"].offsets().tolist() == [0, 3, 8]
    assert batch["position_ids"].values().tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert batch["loss_mask"].values().sum() == 5


def test_a_bad_line_is_named(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    good = json.dumps(trajectory(tokenizer, random.Random(0)))
    (tmp_path / "x.jsonl").write_text(good + '\n{"prompt_ids": "a"}\n')
    with pytest.raises(ValueError, match=r"x\.jsonl:2 is not a trajectory"):
        batches.read(tmp_path / "x.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no trajectories"):
        batches.read(tmp_path / "empty.jsonl")
