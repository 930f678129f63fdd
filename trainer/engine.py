"""verl's FSDP2 language-model engine with a lean forward pass for CPUs; one function of verl is replaced.

Where only log-probabilities are asked for (supervised training), `forward_step` computes them at
the positions that the loss counts; in every other case it is verl's own.
"""

from __future__ import annotations

import types
from contextlib import nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import detach_tree

from trainer.lean import target_log_probs

ONE_UNIT = {"transformer_layer_cls_to_wrap": ["Qwen3RotaryEmbedding"]}
"""FSDP wrap policy naming a module without weights: the root is the only unit, gathered once a pass."""


def log_probs_from_logits(logits: Tensor, labels: Tensor, inplace_backward: bool = True) -> Tensor:
    """Vectorised stand-in for verl's loop over tokens, which is what a CPU gets without flash-attn."""
    flat = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1), reduction="none"
    )
    return -flat.view(labels.shape)


class CpuEngine(FSDPEngineWithLMHead):
    """One decoder (Qwen3) on a CPU; the same weights, losses and checkpoints as verl's engine."""

    def _build_module(self) -> Any:
        module = super()._build_module()
        if module.config.model_type == "qwen3":
            original = module.forward

            def forward(this: Any, *args: Any, index: Tensor | None = None, **kwargs: Any) -> Any:
                if index is None:
                    return original(*args, **kwargs)
                return target_log_probs(this, kwargs["input_ids"], index, kwargs["targets"])

            module.forward = types.MethodType(forward, module)
        return module

    def _is_lean(self, batch: TensorDict) -> bool:
        asked = ("calculate_entropy", "calculate_sum_pi_squared", "distillation_use_topk")
        return (
            self.module.config.model_type == "qwen3"
            and not any(tu.get_non_tensor_data(batch, key, False) for key in asked)
            and "response_mask" not in batch.keys()  # noqa: SIM118 (a TensorDict has no `in`)
            and batch["temperature"] == 1.0
        )

    def forward_step(self, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        if not self._is_lean(micro_batch):
            return super().forward_step(micro_batch, loss_function, forward_only)
        nested = micro_batch["input_ids"]
        ids, offsets = nested.values(), nested.offsets()
        lengths = offsets.diff()
        padded = torch.nested.to_padded_tensor(nested, 0)
        width = padded.shape[1]
        # flat position i of the jagged batch predicts i + 1; the loss shifts its mask in the same way
        at = torch.nonzero(micro_batch["loss_mask"].values().roll(-1)).squeeze(-1)
        row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[at]
        index = row * width + at - offsets[:-1][row]
        # weights are cast to the engine's precision by FSDP; no autocast is needed
        with torch.no_grad() if forward_only else nullcontext():
            some, correct = self.module(input_ids=padded, index=index, targets=ids.roll(-1)[at])
            log_probs = torch.zeros(len(ids)).index_copy(0, at, some)
            hits = torch.zeros(len(ids)).index_copy(0, at, correct.float())
            output = {
                "log_probs": torch.nested.nested_tensor_from_jagged(log_probs, offsets),
                "greedy": torch.nested.nested_tensor_from_jagged(hits, offsets),
            }
            loss, metrics = torch.tensor(1.0), {}
            if loss_function is not None:
                loss, metrics = loss_function(
                    model_output=output, data=micro_batch, dp_group=self.get_data_parallel_group()
                )
        return loss, {"model_output": detach_tree(output), "loss": loss.detach().item(), "metrics": metrics}


def register() -> None:
    """Make verl use `CpuEngine` for language models on CPUs, and vectorised log-probs; idempotent."""
    known = EngineRegistry._engines["language_model"]["fsdp2"]
    if "cpu" not in known:
        EngineRegistry.register("language_model", ["fsdp", "fsdp2"], "cpu")(CpuEngine)
    transformer_impl.logprobs_from_logits = log_probs_from_logits
