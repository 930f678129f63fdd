"""Samples depend on seed, position and logits alone; SGLang's own sampler runs here, on our hash."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sglang.srt.layers import sampler
from sglang.srt.sampling import sampling_batch_info
from sglang.srt.sampling.sampling_params import TOP_K_ALL, SamplingParams

from sglang_ext import sampling

VOCABULARY = 1956
GREATEST_HASH = (21688, 7, 7394)
"""A seed, a position and a token whose hash is 2^32 - 1."""
LEAST_HASH = (376, 7, 32745)
"""Those whose hash is 0."""
OF_CHANCE = {11: 37.4, 9: 33.7}
"""Chi-square by degrees of freedom: exceeded once in 10,000 times."""


def reference(data: bytes, seed: int = 0) -> int:
    """MurmurHash3_x86_32, from its description."""

    def rotate(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    def scramble(word: int) -> int:
        return rotate(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    whole, state = len(data) // 4 * 4, seed
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        state = (rotate(state ^ scramble(word), 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= scramble(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & 0xFFFFFFFF
    return state


class Batch:
    device = "cpu"

    def __init__(self, requests: tuple[SimpleNamespace, ...]) -> None:
        self.reqs = list(requests)


@pytest.fixture(autouse=True)
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SGLang's sampler with our hooks, without its compiler."""
    monkeypatch.setattr(sampler, "murmur_hash32", functools.partial(sampling._hash, sampler.murmur_hash32))
    name = "top_k_top_p_min_p_sampling_from_probs_torch"
    monkeypatch.setattr(sampler, name, functools.partial(sampling._sample_filtered, getattr(sampler, name)))
    settings = SimpleNamespace(
        sampling_backend="pytorch", enable_deterministic_inference=False, enable_custom_logit_processor=False
    )
    for module in (sampler, sampling_batch_info):
        monkeypatch.setattr(module, "get_global_server_args", lambda: settings)
    with torch.compiler.set_stance("force_eager"):
        yield


def request(**params: Any) -> SimpleNamespace:
    sampling_params = SamplingParams(**params)
    sampling_params.normalize(None)
    return SimpleNamespace(sampling_params=sampling_params, custom_logit_processor=None)


def info_of(*requests: SimpleNamespace) -> Any:
    """What SGLang keeps of a batch for sampling, after our hook."""
    batch = Batch(requests)
    info = sampling_batch_info.SamplingBatchInfo.from_schedule_batch(batch, VOCABULARY)
    sampling._fill_seeds(info, type(info), batch, VOCABULARY)
    return info


def sample(info: Any, logits: torch.Tensor, positions: torch.Tensor) -> list[int]:
    """As the sampler of SGLang goes about it, with its own choice of path."""
    if info.is_all_greedy:
        return list(logits.argmax(-1).tolist())
    probs = torch.softmax(logits / info.temperatures, dim=-1)
    simple = not (info.need_top_p_sampling or info.need_top_k_sampling or info.need_min_p_sampling)
    return list(sampler.Sampler._sample_from_probs(None, probs, info, positions, simple).tolist())


def seeds_of(info: Any) -> list[int]:
    return list(info.sampling_seed.tolist())


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x00\x00\x00\x00", 0, 0x2362F9DE),
        (b"aaaa", 0x9747B28C, 0x5A97808A),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_the_reference_agrees_with_published_vectors(data: bytes, seed: int, expected: int) -> None:
    assert reference(data, seed) == expected


@pytest.mark.parametrize("as_sglang", [True, False], ids=["as SGLang passes them", "signed"])
def test_the_hash_is_murmur3_of_seed_position_and_token(as_sglang: bool) -> None:
    seeds, positions = [0, 1, 42, 2**32, 2**63 - 1, -1, -(2**63)], [0, 1, 7, 511, 2**31, 5, 2047]
    given = torch.tensor(seeds)
    hashed = sampling._hash(
        _fails, given.to(torch.uint64) if as_sglang else given, torch.tensor(positions), torch.arange(300)
    )
    assert hashed.dtype == torch.uint32
    assert hashed.tolist() == [
        [reference(struct.pack("<QII", seed % 2**64, position, column)) for column in range(300)]
        for seed, position in zip(seeds, positions, strict=True)
    ]


def test_elsewhere_than_on_a_cpu_the_original_hashes() -> None:
    seed = SimpleNamespace(is_cpu=False)
    assert sampling._hash(lambda *given: given, seed, 1, 2) == (seed, 1, 2)


def test_only_the_greatest_hash_is_changed_because_its_noise_is_infinite() -> None:
    (seed, position, column), columns = GREATEST_HASH, torch.arange(49152)
    hashed = sampling._hash(_fails, torch.tensor([seed]), torch.tensor([position]), columns).numpy()
    exact = sampling.murmur3(np.array([seed]), np.array([position]), columns.numpy())
    assert exact[0, column] == 2**32 - 1
    assert hashed[0, column] == 2**32 - 2
    assert (np.delete(hashed, column) == np.delete(exact, column)).all()


@pytest.mark.parametrize("edge", [GREATEST_HASH, LEAST_HASH], ids=["greatest", "least"])
@pytest.mark.parametrize("probability", [0.0, 1e-30, 1.0])
def test_the_extreme_hashes_choose_no_impossible_token(
    edge: tuple[int, int, int], probability: float
) -> None:
    seed, position, token = edge
    probs = torch.zeros(1, 49152)
    probs[0, 5] = 1 - probability
    probs[0, token] = probability
    sampled = sampler.sampling_from_probs_torch(probs, torch.tensor([seed]), torch.tensor([position]))
    assert sampled.tolist() == [token if probability == 1 else 5]


@pytest.mark.parametrize("varied", ["seed", "position"])
def test_frequencies_follow_the_distribution(varied: str) -> None:
    draws, weights = 40_000, torch.tensor([40.0, 20, 10, 8, 6, 5, 4, 3, 2, 1, 0.6, 0.4])
    probs = weights / weights.sum()
    many, one = torch.arange(draws), torch.full((draws,), 11)
    seeds, positions = (many, one) if varied == "seed" else (one, many)
    sampled = sampler.sampling_from_probs_torch(probs.expand(draws, -1), seeds, positions)
    assert _chi_square(torch.bincount(sampled, minlength=12), probs * draws) < OF_CHANCE[11]


def test_one_position_says_nothing_about_the_next() -> None:
    draws, probs = 40_000, torch.tensor([0.4, 0.3, 0.2, 0.1])
    here, there = (
        sampler.sampling_from_probs_torch(
            probs.expand(draws, -1), torch.arange(draws), torch.full((draws,), at)
        )
        for at in (100, 101)
    )
    pairs = torch.bincount(here.long() * 4 + there.long(), minlength=16).view(4, 4).float()
    independent = pairs.sum(1, keepdim=True) * pairs.sum(0, keepdim=True) / draws
    assert _chi_square(pairs, independent) < OF_CHANCE[9]


KINDS: dict[str, dict[str, Any]] = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.7": {"temperature": 0.7},
    "greedy": {"temperature": 0.0},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
    "top-k": {"temperature": 1.0, "top_k": 50},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
    "all three": {"temperature": 1.2, "top_k": 100, "top_p": 0.8, "min_p": 0.01},
}


@pytest.mark.parametrize("neighbour", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_gets_its_tokens_whatever_is_beside_it(kind: str, neighbour: str) -> None:
    count, generator = 24, torch.Generator().manual_seed(3)
    logits = torch.randn(count, VOCABULARY, generator=generator) * 3
    positions = torch.randint(2000, (count,), generator=generator)
    requests = [
        request(**(KINDS[kind] if row % 3 else KINDS[neighbour]), sampling_seed=1000 + row)
        for row in range(count)
    ]
    alone = [
        sample(info_of(requests[row]), logits[row : row + 1], positions[row : row + 1])[0]
        for row in range(count)
    ]
    assert sample(info_of(*requests), logits, positions) == alone


def test_top_k_top_p_and_min_p_keep_what_sglang_keeps() -> None:
    requests = [request(**params) for params in KINDS.values()] * 3
    info = info_of(*requests)
    probs = torch.softmax(torch.randn(len(requests), VOCABULARY, generator=_generator()) * 2, dim=-1)
    before = probs.clone()
    ours = sampling.kept(probs, info.top_ks, info.top_ps, info.min_ps) > 0
    assert torch.equal(probs, before)
    possible = torch.stack([_sglang_keeps(probs, info) for _ in range(400)]).any(0)
    assert (ours | ~possible).all()
    ranked = probs.sort(-1, descending=True)
    mass = ranked.values.cumsum(-1)
    for row, one in enumerate(requests):
        params = one.sampling_params
        allowed = min(params.top_k, VOCABULARY)
        if params.top_p < 1:
            allowed = min(allowed, 1 + int((mass[row] <= params.top_p).sum()))
        if params.min_p:
            allowed = min(allowed, int((probs[row] >= probs[row].max() * params.min_p).sum()))
        assert set(ours[row].nonzero()[:, 0].tolist()) == set(ranked.indices[row, :allowed].tolist())


def _sglang_keeps(probs: torch.Tensor, info: Any) -> torch.Tensor:
    """Where one unseeded draw of SGLang's own function fell."""
    original = sampler.top_k_top_p_min_p_sampling_from_probs_torch.args[0]
    drawn = original(probs, info.top_ks, info.top_ps, info.min_ps, True, None, None)
    return torch.zeros_like(probs).scatter_(-1, drawn.long()[:, None], 1) > 0


def test_min_p_with_seeds_would_end_an_engine_without_the_hook() -> None:
    info = info_of(request(min_p=0.1))
    original = sampler.top_k_top_p_min_p_sampling_from_probs_torch.args[0]
    with pytest.raises(AssertionError, match="sampling seed"):
        original(torch.ones(1, 4), info.top_ks, info.top_ps, info.min_ps, True, info.sampling_seed, None)


def test_without_seeds_sglang_samples_as_ever() -> None:
    given = (1, 2, 3, 4, True, None, 5)
    assert sampling._sample_filtered(lambda *args: args, *given) == given


def test_a_request_without_a_seed_has_one_of_its_own_and_keeps_it() -> None:
    requests = [request() for _ in range(8)]
    seeds = seeds_of(info_of(*requests))
    assert len(set(seeds)) == 8
    assert seeds_of(info_of(*requests[::-1])) == seeds[::-1], "retracted, and prefilled again"
    assert all(one.sampling_params.sampling_seed is None for one in requests)


def test_samples_of_requests_without_a_seed_are_independent() -> None:
    requests = [request() for _ in range(500)]
    logits = torch.zeros(500, VOCABULARY)
    tokens = sample(info_of(*requests), logits, torch.full((500,), 9))
    assert len(set(tokens)) > 400


def test_seeds_drawn_follow_the_random_seed_of_the_engine() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append([sampling.seed_of(request()) for _ in range(4)])
    assert drawn[0] == drawn[1]


def test_merged_and_filtered_batches_keep_the_seeds() -> None:
    unseeded = request(min_p=0.1)
    info = info_of(request(sampling_seed=1), unseeded, request(sampling_seed=3))
    info.merge_batch(info_of(request(sampling_seed=-4), request(sampling_seed=2**63 - 1)))
    assert seeds_of(info) == [1, sampling.seed_of(unseeded), 3, -4, 2**63 - 1]
    keep = [0, 3, 4]
    info.filter_batch(keep, torch.tensor(keep))
    assert seeds_of(info) == [1, -4, 2**63 - 1]


def test_an_empty_batch_has_no_seeds() -> None:
    assert seeds_of(info_of()) == []


def test_on_a_gpu_and_with_deterministic_inference_sglang_has_its_way() -> None:
    batch = SimpleNamespace(reqs=[request(sampling_seed=1)], device="cuda")
    info = SimpleNamespace(sampling_seed=None, device="cuda")
    sampling._fill_seeds(info, object, batch, VOCABULARY)
    assert info.sampling_seed is None
    info = SimpleNamespace(sampling_seed="of SGLang", device="cpu")
    sampling._fill_seeds(info, object, batch, VOCABULARY)
    assert info.sampling_seed == "of SGLang"


@pytest.mark.parametrize("seed", [2**63, -1, 1.5, "7", [1]])
def test_a_seed_that_would_end_the_scheduler_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match="sampling_seed must be a whole number from 0 to "):
        sampling._check_seed(None, SimpleNamespace(sampling_seed=seed), VOCABULARY)


@pytest.mark.parametrize("seed", [None, 0, 2**63 - 1])
def test_other_seeds_are_not(seed: int | None) -> None:
    sampling._check_seed(None, SimpleNamespace(sampling_seed=seed), VOCABULARY)


def test_top_k_all_is_more_than_any_vocabulary() -> None:
    assert TOP_K_ALL > 2**20


def _chi_square(observed: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(8)


_fails: Callable[..., torch.Tensor] = functools.partial(pytest.fail, "the original was called")


@pytest.mark.parametrize(
    ("seeds", "used"), [(None, False), ([-5, -6], False), ([-5, 7], True), ([0, 0], True)]
)
def test_where_nobody_asks_for_a_seed_sglang_samples_as_it_does_alone(
    seeds: list[int] | None, used: bool
) -> None:
    seen: list[torch.Tensor | None] = []

    def original(probs: torch.Tensor, seed: torch.Tensor | None, positions: object) -> torch.Tensor:
        seen.append(seed)
        return probs

    given = None if seeds is None else torch.tensor(seeds)
    sampling._sample(original, torch.ones(2, 3), given, None)
    assert (seen[0] is not None) is used
