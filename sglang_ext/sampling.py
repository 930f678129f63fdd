"""Sampling that depends on a request's seed, the position and the logits, and on nothing else.

SGLang samples by seed only with --enable-deterministic-inference, which it refuses for attention on a CPU;
its hash is a Triton kernel. Here every request on a CPU has a seed: its own `sampling_seed`, or one that
is drawn for it, so that requests without one stay independent. It follows the request through batches that
are merged and filtered, and through retraction.

Wherever there are seeds, the noise of a token belongs to its id. In SGLang it belongs to the token's rank
as soon as *one* request of the batch uses top-k, top-p or min-p (greedy requests use top-k): a request's
tokens would depend on its neighbours, and min-p would end the engine in an assertion.

Samples of one request with n > 1 and a seed are equal: give each its own request and seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_ext import linears
from sglang_ext.hooks import Hook

Words = NDArray[np.uint32]


def honours_seeds(args: Any) -> bool:
    """Whether an engine with these ServerArgs samples by `sampling_seed`."""
    return args.device == "cpu" or bool(args.enable_deterministic_inference)


def is_batch_invariant(args: Any) -> bool:
    """Whether a request's logits do not depend on its neighbours, to the last bit."""
    return linears.enabled() if args.device == "cpu" else bool(args.enable_deterministic_inference)


def seed_of(request: Any) -> int:
    """The seed of a SGLang Req: that of its parameters, or one drawn once from torch's default generator.

    That generator is seeded by --random-seed, alike in all ranks of tensor parallelism. Drawn seeds are
    below 0, given ones are not.
    """
    if request.sampling_params.sampling_seed is not None:
        return int(request.sampling_params.sampling_seed)
    if not hasattr(request, "_obsspec_seed"):
        request._obsspec_seed = -1 - int(torch.randint(2**63 - 1, ()))
    return int(request._obsspec_seed)


def murmur3(seeds: NDArray[np.int64], positions: NDArray[np.int64], columns: NDArray[np.int64]) -> Words:
    """MurmurHash3_x86_32 with seed 0 of the 16 bytes (seed, position, column), little-endian.

    Shapes (rows,), (rows,), (columns,) → (rows, columns). The values of SGLang's Triton kernel.
    """
    state = np.zeros(len(seeds), np.uint32)
    for word in (seeds, seeds >> 32, positions):
        state = _rotated(state ^ _scrambled(word.astype(np.uint32)), 13) * 5 + 0xE6546B64
    hashed: Words = state[:, None] ^ _scrambled(columns.astype(np.uint32))
    # In place from here: the rest is bound by memory.
    spare = hashed >> 19
    hashed <<= 13
    hashed |= spare
    hashed *= 5
    hashed += 0xE6546B64
    hashed ^= 16  # the length in bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(hashed, shift, out=spare)
        hashed ^= spare
        hashed *= factor
    np.right_shift(hashed, 16, out=spare)
    hashed ^= spare
    return hashed


def _rotated(words: Words, bits: int) -> Words:
    rotated: Words = np.bitwise_or(words << bits, words >> (32 - bits))
    return rotated


def _scrambled(words: Words) -> Words:
    return _rotated(words * 0xCC9E2D51, 15) * 0x1B873593


def kept(
    probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> torch.Tensor:
    """`probs` (rows, vocabulary) with 0 for what a row's own top-k, top-p and min-p exclude.

    Not normalised: adding noise to logarithms and taking the greatest does not need it. `probs` stays
    as it is, because SGLang takes log-probabilities from it afterwards.
    """
    best, token = probs.max(-1, keepdim=True)
    # As good as after top-k and top-p: it cuts the tail, which changes no sum before it.
    result = probs.masked_fill(probs < best * min_ps[:, None], 0)
    greedy = top_ks == 1
    rows = (~greedy & ((top_ks < probs.shape[-1]) | (top_ps < 1))).nonzero()[:, 0]
    if len(rows):
        ranked, order = result[rows].sort(-1, descending=True)
        before = ranked.cumsum(-1) - ranked
        ranks = torch.arange(probs.shape[-1], device=probs.device)
        # Rounding takes the sum past 1: without top-p nothing may be excluded by it.
        top_p = torch.where(top_ps < 1, top_ps, torch.inf)[rows, None]
        ranked.masked_fill_((ranks >= top_ks[rows, None]) | (before > top_p), 0)
        result[rows] = ranked.scatter(-1, order, ranked)
    result[greedy] = torch.zeros_like(result[greedy]).scatter_(-1, token[greedy], 1)
    return result


def _fill_seeds(info: Any, cls: type, batch: Any, vocab_size: int) -> None:
    if info.sampling_seed is None and torch.device(info.device).type == "cpu":
        info.sampling_seed = torch.tensor([seed_of(request) for request in batch.reqs], dtype=torch.int64)


def _check_seed(result: None, params: Any, vocab_size: int) -> None:
    """A seed that makes no tensor would end the scheduler; here it is the answer to its own request."""
    seed = params.sampling_seed
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**63):
        raise ValueError(f"sampling_seed must be a whole number from 0 to 2**63 - 1, got {seed!r}.")


def _asked_for(seeds: torch.Tensor | None) -> bool:
    """Whether any row's seed was given: where none was, SGLang's own sampling is as good, and cheaper."""
    return seeds is not None and (not seeds.is_cpu or bool((seeds >= 0).any()))


def _sample(
    original: Callable[..., torch.Tensor],
    probs: torch.Tensor,
    sampling_seed: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    return original(probs, sampling_seed if _asked_for(sampling_seed) else None, positions)


def _hash(
    original: Callable[..., torch.Tensor],
    seed: torch.Tensor,
    positions: torch.Tensor,
    col_indices: torch.Tensor,
) -> torch.Tensor:
    return (_hash_on_cpu if seed.is_cpu else original)(seed, positions, col_indices)


@torch.compiler.disable
def _hash_on_cpu(seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor) -> torch.Tensor:
    hashed = murmur3(seed.numpy().astype(np.int64), positions.numpy(), col_indices.numpy())
    # SGLang makes infinite noise of the greatest hash: once in 2^32 draws, so every 90,000 tokens with a
    # vocabulary of 49,152, the token would be that one whatever its probability, even 0.
    return torch.from_numpy(np.minimum(hashed, 0xFFFFFFFE, out=hashed))


def _sample_filtered(
    original: Callable[..., torch.Tensor],
    probs: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
    min_ps: torch.Tensor,
    need_min_p_sampling: bool,
    sampling_seed: torch.Tensor | None,
    positions: torch.Tensor,
) -> torch.Tensor:
    if sampling_seed is None or not _asked_for(sampling_seed):
        return original(probs, top_ks, top_ps, min_ps, need_min_p_sampling, None, positions)
    from sglang.srt.layers import sampler

    sampled: torch.Tensor = sampler.sampling_from_probs_torch(
        kept(probs, top_ks, top_ps, min_ps), sampling_seed, positions
    )
    return sampled


HOOKS = (
    Hook(
        "sglang.srt.sampling.sampling_params.SamplingParams.verify",
        ("self", "vocab_size"),
        _check_seed,
        "after",
    ),
    Hook(
        "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch",
        ("batch", "vocab_size"),
        _fill_seeds,
        "after",
    ),
    Hook("sglang.srt.layers.utils.hash.murmur_hash32", ("seed", "positions", "col_indices"), _hash, "around"),
    Hook(
        "sglang.srt.layers.sampler.sampling_from_probs_torch",
        ("probs", "sampling_seed", "positions"),
        _sample,
        "around",
    ),
    Hook(
        "sglang.srt.layers.sampler.top_k_top_p_min_p_sampling_from_probs_torch",
        ("probs", "top_ks", "top_ps", "min_ps", "need_min_p_sampling", "sampling_seed", "positions"),
        _sample_filtered,
        "around",
    ),
    *(linears.HOOKS if linears.enabled() else ()),
)
"""What a process of SGLang needs to be deterministic, under the settings of its environment."""
