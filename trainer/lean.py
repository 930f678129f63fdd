"""A lean forward pass of Qwen3 for training on a CPU, equal to transformers' up to rounding.

It computes log-probabilities of given targets at given positions only, and leaves out what a
right-padded causal batch does not need: a padding mask, logits of masked positions, float32 copies.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS = 128
"""Rows of logits handled at once: float32 copies of so many fit in a core's cache."""


class _UnitRms(torch.autograd.Function):
    """x / rms(x) over the last dimension, statistics in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.rsqrt(norm.square_().div_(x.shape[-1]).add_(eps)).to(x.dtype)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        mean = (grad * y).mean(-1, keepdim=True)
        return torch.addcmul(grad, y, mean, value=-1).mul_(scale), None


def unit_rms(x: Tensor, eps: float) -> Tensor:
    return _UnitRms.apply(x, eps)


class _LinearLogProbs(torch.autograd.Function):
    """Log-probability of one target a row under `softmax(hidden @ weight.T)`.

    The gradient of the logits is made with them, in blocks that stay in cache, and kept in the
    dtype of `hidden`; the log-sum-exp is float32.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        rows = hidden.shape[0]
        logits = hidden @ weight.t()
        log_probs = torch.empty(rows, dtype=torch.float32)
        correct = torch.empty(rows, dtype=torch.bool)
        for start in range(0, rows, _ROWS):
            block = logits[start : start + _ROWS]
            target = targets[start : start + _ROWS].unsqueeze(-1)
            x = block.float()
            top, arg = x.max(-1, keepdim=True)
            correct[start : start + _ROWS] = (arg == target).squeeze(-1)
            at_target = x.gather(-1, target)
            x.sub_(top).exp_()
            total = x.sum(-1, keepdim=True)
            log_probs[start : start + _ROWS] = (at_target - top - total.log()).squeeze(-1)
            if ctx.needs_input_grad[0]:
                x.div_(-total)
                x.scatter_add_(-1, target, torch.ones_like(top))
                block.copy_(x)  # from here on `logits` holds d log_prob / d logits
        ctx.save_for_backward(hidden, weight, logits)
        ctx.mark_non_differentiable(correct)
        return log_probs, correct

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden, weight, slope = ctx.saved_tensors
        slope = slope * grad.to(slope.dtype).unsqueeze(-1)
        return slope @ weight, slope.t() @ hidden, None


def linear_log_probs(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """hidden (N, D), weight (V, D), targets (N) → log-probs (N) float32, whether the target is greedy (N)."""
    return _LinearLogProbs.apply(hidden, weight, targets)


class _Attention(torch.autograd.Function):
    """Causal attention of short sequences by three batched products; faster than flash on a CPU."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale)
        probs = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, probs)
        ctx.scale = scale
        return probs @ v

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probs = ctx.saved_tensors
        dv = probs.transpose(1, 2) @ grad
        dp = torch.ops.aten._softmax_backward_data(grad @ v.transpose(1, 2), probs, -1, probs.dtype)
        dq = (dp @ k).mul_(ctx.scale)
        dk = (dp.transpose(1, 2) @ q).mul_(ctx.scale)
        return dq, dk, dv, None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def target_log_probs(model: Any, input_ids: Tensor, index: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `targets` (N) at the flat positions `index` (N) of `input_ids` (B, T).

    Sequences are padded on the right; padding needs no mask because attention is causal. Returns
    float32 log-probs (N) and whether each target is the greedy choice (N).
    """
    config = model.config
    batch, length = input_ids.shape
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    eps = config.rms_norm_eps
    embedding = model.model.embed_tokens.weight
    x = F.embedding(input_ids.reshape(-1), embedding)  # (BT, D)
    cos, sin = model.model.rotary_emb(x, torch.arange(length).unsqueeze(0))  # (1, T, width), halves equal
    cos, sin = (t[0, :, None, : width // 2] for t in (cos, sin))
    mask = torch.full((length, length), torch.finfo(x.dtype).min, dtype=x.dtype).triu_(1)
    mask = mask.expand(batch * heads, length, length)

    def fold(t: Tensor, n: int) -> Tensor:  # (B, T, n, width) → (B * heads, T, width)
        t = t.transpose(1, 2)
        if n != heads:
            t = t.unsqueeze(2).expand(batch, n, heads // n, length, width)
        return t.reshape(batch * heads, length, width)

    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        # a norm's gain is folded into the matrices that read it: a small product instead of a large one
        weight = torch.cat((attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight))
        qkv = F.linear(unit_rms(x, eps), weight * layer.input_layernorm.weight)
        q, k, v = qkv.view(batch, length, -1, width).split((heads, groups, groups), 2)
        q = _rotate(unit_rms(q, eps) * attention.q_norm.weight, cos, sin)
        k = _rotate(unit_rms(k, eps) * attention.k_norm.weight, cos, sin)
        out = _Attention.apply(fold(q, heads), fold(k, groups), fold(v, groups), mask, width**-0.5)
        out = out.view(batch, heads, length, width).transpose(1, 2).reshape(batch * length, -1)
        x = x + F.linear(out, attention.o_proj.weight)
        weight = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
        gate, up = F.linear(unit_rms(x, eps), weight * layer.post_attention_layernorm.weight).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, mlp.down_proj.weight)
    hidden = unit_rms(x.index_select(0, index), eps) * model.model.norm.weight
    return linear_log_probs(hidden, embedding, targets)
