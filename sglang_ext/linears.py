"""Linear layers on a CPU whose results for a row do not depend on the rows beside it.

A GEMM sums in an order that depends on its number of rows, so in bfloat16 a request's tokens change with
its neighbours. In pieces of always 16 rows, the last one padded, every row is summed alike: alone, in a
batch, in a decoding step and in a prefill. Attention is computed request by request already, but it sums
differently where a prompt is cut into chunks (keep --chunked-prefill-size above a batch's prompts), and
where tokens are prefilled that were decoded before.

Off by default. It takes (one core, bfloat16; a model of 5M parameters, and SmolLM2-135M) 26 and 34% more
for a decoding step of one request, 23 and 9% for one of eight, 45 and 35% for a prefill of 1000 tokens.
Covered: unquantised linears and the LM head; not mixtures of experts, nor quantised or LoRA layers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from sglang_ext.hooks import Hook

ROWS = 16
VARIABLE = "OBSSPEC_BATCH_INVARIANT"
"""Environment variable: 1 switches it on."""


def enabled() -> bool:
    return os.environ.get(VARIABLE) == "1"


def in_pieces(multiply: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """`multiply(inputs)`, of shapes (..., features) → (..., outputs), computed 16 rows at a time."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    count = len(rows)
    padded = functional.pad(rows, (0, 0, 0, -count % ROWS)).contiguous()
    results = [multiply(piece) for piece in padded.split(ROWS)]
    result = results[0] if len(results) == 1 else torch.cat(results)
    return result[:count].view(*inputs.shape[:-1], result.shape[-1])


def _apply(
    original: Callable[..., torch.Tensor],
    method: Any,
    layer: torch.nn.Module,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    if not x.is_cpu:
        return original(method, layer, x, bias)
    return in_pieces(lambda piece: original(method, layer, piece, bias), x)


def _lm_head(
    original: Callable[..., torch.Tensor],
    processor: Any,
    hidden_states: torch.Tensor,
    lm_head: torch.nn.Module,
    embedding_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    if not hidden_states.is_cpu:
        return original(processor, hidden_states, lm_head, embedding_bias)
    return in_pieces(lambda piece: original(processor, piece, lm_head, embedding_bias), hidden_states)


HOOKS = (
    Hook(
        "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply",
        ("self", "layer", "x", "bias"),
        _apply,
        "around",
    ),
    Hook(
        "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
        ("self", "hidden_states", "lm_head", "embedding_bias"),
        _lm_head,
        "around",
    ),
)
