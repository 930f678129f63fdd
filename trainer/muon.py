"""Muon for a decoder's matrices, AdamW for everything else, in one optimiser.

Muon: momentum, then the orthogonal factor of the momentum matrix by Newton-Schulz iterations
(Keller Jordan, https://kellerjordan.github.io/posts/muon/). Works on FSDP2's DTensors: elementwise
work on local shards; a sharded momentum is gathered for the iteration, which is the identity on a
mesh of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonal_factor(matrix: Tensor, steps: int) -> Tensor:
    """Roughly U V^T of `matrix` (singular values near 1), computed in bfloat16."""
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.t() if tall else x


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class MuonAdamW(torch.optim.Optimizer):
    """`lr`, `betas`, `weight_decay` are AdamW's; `muon_lr`, `momentum`, `ns_steps` are Muon's.

    A parameter is Muon's when it has two dimensions and not `vocab_size` rows (embeddings, heads).
    Weight decay is decoupled and multiplied by the learning rate of its group.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        muon_lr: float,
        vocab_size: int,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        ns_steps: int = 5,
        eps: float = 1e-8,
    ) -> None:
        every = list(params)
        matrices = [p for p in every if p.ndim == 2 and p.shape[0] != vocab_size]
        chosen = {id(p) for p in matrices}
        rest = [p for p in every if id(p) not in chosen]
        groups: list[dict[str, Any]] = [
            {"params": rest, "lr": lr, "muon": False},
            {"params": matrices, "lr": muon_lr, "muon": True},
        ]
        defaults = {
            "betas": tuple(betas),
            "weight_decay": weight_decay,
            "momentum": momentum,
            "ns_steps": ns_steps,
            "eps": eps,
        }
        super().__init__([g for g in groups if g["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            update = self._muon if group["muon"] else self._adamw
            for p in group["params"]:
                if p.grad is not None:
                    _local(p).mul_(1 - group["lr"] * group["weight_decay"])
                    update(p, group)

    def _muon(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        grad, buffer = p.grad, state["momentum_buffer"]
        assert grad is not None
        _local(buffer).lerp_(_local(grad), 1 - group["momentum"])
        nesterov = grad.lerp(buffer, group["momentum"])
        if isinstance(nesterov, DTensor) and nesterov.device_mesh.size() > 1:
            factor = orthogonal_factor(nesterov.full_tensor(), group["ns_steps"])
            factor = distribute_tensor(factor, nesterov.device_mesh, nesterov.placements).to_local()
        else:
            factor = orthogonal_factor(_local(nesterov), group["ns_steps"])
        rate = group["lr"] * math.sqrt(max(1.0, p.shape[0] / p.shape[1]))
        _local(p).add_(factor, alpha=-rate)

    def _adamw(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        assert p.grad is not None
        grad, mean, square = _local(p.grad), _local(state["exp_avg"]), _local(state["exp_avg_sq"])
        state["step"] += 1
        count, (beta1, beta2) = float(state["step"]), group["betas"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        scale = (square / (1 - beta2**count)).sqrt_().add_(group["eps"])
        _local(p).addcdiv_(mean, scale, value=-group["lr"] / (1 - beta1**count))
