"""The copy curriculum: synthetic sequences that can only be predicted by copying from context.

Two kinds, drawn at random: *repeats*, where segments of random tokens return later in the sequence
(what induction heads learn), and *look-ups*, where a table of key → value rows is followed by keys
whose values must be recalled, some fixed tokens after the key, as a file's text follows its name.
Every token that context determines is marked; the others cannot be predicted by anyone. Lengths
and the number of distinct tokens grow over the phase. The same seed gives the same sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.config import CopyConfig


@dataclass(frozen=True)
class CopySample:
    """A synthetic sequence and the tokens that its own context determines."""

    ids: np.ndarray
    """(T,) int64."""
    copied: np.ndarray
    """(T,) bool."""


def _between(ends: tuple[int, int], share: float) -> int:
    return round(ends[0] + (ends[1] - ends[0]) * share)


class CopyCurriculum:
    """Draws batches; `progress` (0..1) sets their difficulty."""

    def __init__(self, config: CopyConfig, token_ids: np.ndarray, seed: int) -> None:
        """`token_ids`: the ordinary tokens of the vocabulary, which sequences draw from."""
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.token_ids = self.rng.permutation(token_ids)  # the easy stage is a random subset

    def batch(self, tokens: int, progress: float) -> list[CopySample]:
        """Sequences of equal length, about `tokens` tokens in all."""
        share = min(1.0, progress / self.config.grow_until)
        length = _between(self.config.length, share)
        symbols = min(_between(self.config.symbols, share), len(self.token_ids))
        return [self._sample(length, symbols) for _ in range(max(1, tokens // length))]

    def _sample(self, length: int, symbols: int) -> CopySample:
        lookup = self.rng.random() < self.config.lookup
        ids, copied = (self._lookup if lookup else self._repeats)(length, symbols)
        return CopySample(self.token_ids[ids[:length]], copied[:length])

    def _repeats(self, length: int, symbols: int) -> tuple[np.ndarray, np.ndarray]:
        """Random segments; with probability `repeat` the next one copies an earlier stretch."""
        rng, (low, high) = self.rng, self.config.segment
        ids = rng.integers(symbols, size=length + high)
        copied = np.zeros(length + high, bool)
        at = int(rng.integers(low, high + 1))
        while at < length:
            size = int(rng.integers(low, high + 1))
            if at >= size and rng.random() < self.config.repeat:
                start = int(rng.integers(0, at - size + 1))
                ids[at : at + size] = ids[start : start + size]
                copied[at + 1 : at + size] = True  # the first token of a copy is a free choice
            at += size
        return ids, copied

    def _lookup(self, length: int, symbols: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows key filler value1..n, each key once; then keys in random order, each with its row.

        The filler is the same in all rows of a sequence: the value must be found by the key behind it.
        """
        rng = self.rng
        width, gap = int(rng.integers(1, 5)), int(rng.integers(self.config.gap[0], self.config.gap[1] + 1))
        row = 1 + gap + width
        rows = max(1, int(length * rng.uniform(0.2, 0.6)) // row)
        keys = rng.choice(symbols, size=min(rows, symbols), replace=False)
        filler = np.broadcast_to(rng.integers(symbols, size=gap), (len(keys), gap))
        table = np.column_stack((keys, filler, rng.integers(symbols, size=(len(keys), width))))
        asked = table[rng.integers(len(table), size=-(-length // row))]
        copied = np.zeros_like(asked, bool)
        copied[:, 1 + gap :] = True
        ids = np.concatenate((table.ravel(), asked.ravel()))
        return ids, np.concatenate((np.zeros(table.size, bool), copied.ravel()))
