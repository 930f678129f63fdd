"""Trajectories as verl reads them: jagged (no-padding) batches with a loss mask, cut by tokens.

A sample's first token never counts in the loss: verl shifts the mask over the flattened batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import ValidationError
from tensordict import TensorDict

from orchestrator.schema import Trajectory
from trainer import worker as _worker  # noqa: F401  (verl settles on a device when first imported)

Loss = Literal["all", "observations", "actions"]


@dataclass(frozen=True)
class Sample:
    """One token sequence and, a token each, who may learn from it."""

    ids: np.ndarray
    """(T,) int64."""
    actions: np.ndarray
    """(T,) bool: sampled by the policy."""
    observations: np.ndarray
    """(T,) bool: an observation's body and its closing tag."""

    def __len__(self) -> int:
        return len(self.ids)

    def mask(self, loss: Loss) -> np.ndarray:
        """(T,) bool: tokens the loss counts; the first never does."""
        mask = {
            "all": self.actions | self.observations,
            "observations": self.observations,
            "actions": self.actions,
        }[loss].copy()
        mask[:1] = False
        return mask


def sample(trajectory: Trajectory) -> Sample:
    """The token sequence of a trajectory, prompt first."""
    ids = list(trajectory.prompt_ids)
    actions = [False] * len(ids)
    observations = [False] * len(ids)
    for segment in trajectory.segments:
        ids += segment.token_ids
        actions += segment.policy_mask
        observations += segment.world_model_mask
    return Sample(np.array(ids, np.int64), np.array(actions, bool), np.array(observations, bool))


def read(path: Path, limit: int | None = None) -> list[Sample]:
    """Samples of a JSONL file of trajectories, one a line.

    Raises ValueError, naming file and line, for a line that is no trajectory, and for an empty file.
    """
    samples: list[Sample] = []
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and len(samples) >= limit:
                break
            try:
                samples.append(sample(Trajectory.model_validate_json(line)))
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise ValueError(f"{path}:{number} is not a trajectory: {reason}") from None
    if not samples:
        raise ValueError(f"{path} holds no trajectories")
    return samples


def plan(lengths: Sequence[int], tokens: int, bucket: int, rng: np.random.Generator) -> list[list[int]]:
    """One epoch: indices grouped into batches of at most `tokens` tokens, padding included.

    Shuffled, then sorted by length within runs of about `bucket` batches, so that the sequences of
    a batch are of similar length; then the batches are shuffled.
    """
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)[order]
    run = np.cumsum(sizes) // (tokens * bucket)
    order = order[np.lexsort((sizes, run))]
    batches: list[list[int]] = []
    batch: list[int] = []
    longest = 0
    for i in order.tolist():
        longest = max(longest, lengths[i])
        if batch and longest * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch, longest = [], lengths[i]
        batch.append(i)
    if batch:
        batches.append(batch)
    return [batches[i] for i in rng.permutation(len(batches))]


def epochs(
    samples: Sequence[Sample], tokens: int, bucket: int, rng: np.random.Generator
) -> Iterator[list[Sample]]:
    """Batches without end, each sample once an epoch."""
    lengths = [len(s) for s in samples]
    while True:
        for batch in plan(lengths, tokens, bucket, rng):
            yield [samples[i] for i in batch]


def collate(ids: Sequence[np.ndarray], masks: Sequence[np.ndarray], pad_id: int) -> TensorDict:
    """verl's batch: nested `input_ids`, `position_ids`, `loss_mask` and the keys its engine asks for."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.dataset_utils import DatasetPadMode

    def jagged(rows: Sequence[np.ndarray]) -> torch.Tensor:
        values = torch.from_numpy(np.concatenate(rows))
        offsets = torch.tensor([0, *np.cumsum([len(r) for r in rows])])
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    return tu.get_tensordict(
        {
            "input_ids": jagged(ids),
            "position_ids": jagged([np.arange(len(row)) for row in ids]),
            "loss_mask": jagged([mask.astype(np.int64) for mask in masks]),
        },
        non_tensor_dict={
            "temperature": 1.0,
            "pad_mode": DatasetPadMode.NO_PADDING,
            "pad_token_id": pad_id,
            "global_batch_size": len(ids),
        },
    )
