"""Initial weights that already copy from context.

A small transformer spends most of a short training run on discovering the induction circuit: a head that
looks one token back, and later heads that look for the token after an earlier occurrence of the current
one (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson et al. 2022,
"In-context Learning and Induction Heads"). This module writes that circuit into the first two layers of a
fresh Qwen3 model; everything stays trainable, and the copy curriculum and the tasks build on it.

The residual stream (D wide) is used in two halves: token identity in the first half, with a constant in
dimension 0, and the identity of the previous token in the second half.
- Layer 0, the first heads: queries and keys read only the constant, through fast rotary pairs whose phases
  differ by one position, so each attends to the token before; values copy identity → second half.
- Layer 1, all heads: queries read identity, keys read the previous token's identity, both through slow
  rotary pairs (which hardly turn within a context); values copy identity → first half, where the tied
  output embedding reads it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

FAST_PAIRS = 3
"""Rotary pairs that mark position; three make the token before stand out from its neighbours."""
SLOW_RADIANS = 0.02
"""A pair that turns by less than this a token carries content."""
SHARPNESS = 1.5
"""Weight of the query and key norms in the two layers: attention logits grow with its square."""
QUIET = 0.1
"""Factor on the random initial weights around the circuit."""


@torch.no_grad()
def seed_induction(
    model: Qwen3ForCausalLM, seed: int, embedding_std: float = 0.05, copy_gain: float = 0.1
) -> None:
    """Write the induction circuit into a freshly made model, in place.

    Requires multi-head attention without grouping (as many key-value heads as heads), tied embeddings, at
    least two layers and `hidden_size >= 2 * head_dim`. Raises ValueError otherwise.
    """
    config = model.config
    hidden, head_dim, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    half = hidden // 2
    back_heads = half // head_dim
    if config.num_key_value_heads != heads or not config.tie_word_embeddings or config.num_hidden_layers < 2:
        raise ValueError("induction needs key-value heads = heads, tied embeddings and two layers or more")
    if half % head_dim or back_heads > heads:
        raise ValueError(f"induction needs hidden_size/2 ({half}) to be a multiple of head_dim ({head_dim})")
    generator = torch.Generator().manual_seed(seed)

    embedding = model.model.embed_tokens.weight
    embedding.copy_(torch.randn(embedding.shape, generator=generator) * embedding_std)
    embedding[:, 0] = 4 * embedding_std
    embedding[:, half:] *= QUIET
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(QUIET)
        layer.mlp.down_proj.weight.mul_(QUIET)

    radians = _radians_per_token(model)
    identity = torch.eye(head_dim)
    look_back = _quiet_attention(model, layer=0)
    for head in range(back_heads):
        start = head * head_dim
        rows = slice(start, start + head_dim)
        for pair in range(FAST_PAIRS):
            look_back.k_proj.weight[start + pair, 0] = 1.0
            look_back.q_proj.weight[start + pair, 0] = math.cos(radians[pair])
            look_back.q_proj.weight[start + pair + head_dim // 2, 0] = -math.sin(radians[pair])
        look_back.v_proj.weight[rows, rows] += identity
        look_back.o_proj.weight[half + start : half + start + head_dim, rows] += identity * embedding_std

    slow = [pair for pair in range(head_dim // 2) if radians[pair] < SLOW_RADIANS]
    content = torch.tensor(slow + [pair + head_dim // 2 for pair in slow])
    match = _quiet_attention(model, layer=1)
    read = torch.randperm(half - 1, generator=generator) + 1
    for head in range(heads):
        start = head * head_dim
        rows = slice(start, start + head_dim)
        dims = read[(torch.arange(len(content)) + head * len(content)) % (half - 1)]
        match.q_proj.weight[start + content, dims] += 1.0
        match.k_proj.weight[start + content, half + dims] += 1.0
        copied = (head % back_heads) * head_dim
        columns = slice(copied, copied + head_dim)
        match.v_proj.weight[rows, columns] += identity
        match.o_proj.weight[columns, rows] += identity * copy_gain


def _quiet_attention(model: Qwen3ForCausalLM, layer: int) -> torch.nn.Module:
    """The attention of a layer with its random weights turned down and its norms turned up."""
    attention = model.model.layers[layer].self_attn
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.mul_(QUIET)
    attention.q_norm.weight.fill_(SHARPNESS)
    attention.k_norm.weight.fill_(SHARPNESS)
    return attention


def _radians_per_token(model: Qwen3ForCausalLM) -> Tensor:
    """Angle by which each rotary pair turns from one token to the next, shape (head_dim / 2,)."""
    head_dim = model.config.head_dim
    theta = model.config.rope_parameters["rope_theta"]
    return theta ** (-torch.arange(head_dim // 2, dtype=torch.float32) / (head_dim // 2))
