"""Held-out figures of a model: loss, and how often greedy decoding would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from trainer import batches
from trainer.worker import Worker

EMPTY = "(no output)"


def validate(
    worker: Worker, tokenizer: PreTrainedTokenizerBase, samples: Sequence[batches.Sample], micro_tokens: int
) -> dict[str, float]:
    """Loss (nats a token) and share of greedy tokens, for actions and for observations.

    `exact` is the share of observations whose tokens are all the greedy choice given the real
    context before them: what greedy decoding would give; `exact_nonempty` leaves out `(no output)`.
    """
    total = {kind: np.zeros(3) for kind in ("actions", "observations")}
    exact: list[tuple[bool, bool]] = []
    empty = tokenizer.encode(EMPTY, add_special_tokens=False)
    groups = batches.plan([len(s) for s in samples], micro_tokens, 1 << 30, np.random.default_rng(0))
    for group in groups:
        part = [samples[i] for i in group]
        masks = [s.mask("all") for s in part]
        output = worker.infer_batch(batches.collate([s.ids for s in part], masks, tokenizer.pad_token_id))
        for sample, *tensors in zip(
            part, output["log_probs"].unbind(), output["greedy"].unbind(), strict=True
        ):
            lp, hit = (np.roll(t.float().numpy(), 1) for t in tensors)  # onto the token predicted
            for kind in ("actions", "observations"):
                mask = sample.mask(kind)
                total[kind] += (-lp[mask].sum(), hit[mask].sum(), mask.sum())
            for a, b in runs(sample.observations):
                exact.append((bool(hit[a:b].all()), sample.ids[a : a + len(empty)].tolist() == empty))
    full = [hit for hit, is_empty in exact if not is_empty]
    figures = {
        "exact": float(np.mean([hit for hit, _ in exact])) if exact else 0.0,
        "exact_nonempty": float(np.mean(full)) if full else 0.0,
    }
    for kind, (nats, hits, count) in total.items():
        figures[f"{kind}_loss"] = float(nats / max(count, 1))
        figures[f"{kind}_greedy"] = float(hits / max(count, 1))
    return figures


def runs(mask: np.ndarray) -> Iterator[tuple[int, int]]:
    """Stretches [a, b) of True in a boolean array."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
