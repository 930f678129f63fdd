import numpy as np
import pytest

from trainer.config import BudgetConfig, CopyConfig
from trainer.copying import CopyCurriculum, CopySample

TOKENS = np.arange(100, 1100)


def curriculum(seed: int = 0, **changes: object) -> CopyCurriculum:
    config = CopyConfig(budget=BudgetConfig(steps=1), length=(32, 96), symbols=(64, 512), **changes)
    return CopyCurriculum(config, TOKENS, seed)


def determined(sample: CopySample, at: int) -> bool:
    """Whether the token at `at` follows, somewhere earlier, the same token as it does here."""
    before = sample.ids[: at - 1]
    return bool(np.any((before == sample.ids[at - 1]) & (sample.ids[1:at] == sample.ids[at])))


@pytest.mark.parametrize("lookup", [0.0, 1.0])
def test_marked_tokens_can_be_copied_from_context(lookup: float) -> None:
    for sample in curriculum(lookup=lookup, gap=(0, 0)).batch(4096, 0.5):
        marked = np.flatnonzero(sample.copied)
        assert len(marked) > 0
        assert all(determined(sample, at) for at in marked)


def test_a_gap_parts_key_and_value_by_the_same_filler_everywhere() -> None:
    for sample in curriculum(lookup=1.0, gap=(3, 3)).batch(4096, 1.0):
        first = int(np.flatnonzero(sample.copied)[0])
        key, filler = sample.ids[first - 4], sample.ids[first - 3 : first]
        rows = [
            i for i in np.flatnonzero(sample.ids == key) if np.array_equal(sample.ids[i + 1 : i + 4], filler)
        ]
        assert len(rows) >= 2
        assert sample.ids[rows[0] + 4] == sample.ids[first]


def test_the_same_seed_gives_the_same_sequences() -> None:
    one, two, other = (curriculum(seed).batch(2048, 0.3) for seed in (1, 1, 2))
    assert all(
        np.array_equal(a.ids, b.ids) and np.array_equal(a.copied, b.copied)
        for a, b in zip(one, two, strict=True)
    )
    assert not all(np.array_equal(a.ids, b.ids) for a, b in zip(one, other, strict=True))


def test_lengths_and_symbols_grow() -> None:
    source = curriculum()
    early, late = source.batch(2048, 0.0), source.batch(2048, 1.0)
    assert {len(s.ids) for s in early} == {32}
    assert {len(s.ids) for s in late} == {96}
    distinct = [len(np.unique(np.concatenate([s.ids for s in batch]))) for batch in (early, late)]
    assert distinct[0] <= 64 < distinct[1]
    assert all(np.isin(s.ids, TOKENS).all() and len(s.ids) == len(s.copied) for s in early + late)
