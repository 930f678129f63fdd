"""verl's `TrainingWorker`, ready for a CPU: the same class runs in this process or as a Ray actor."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch

from trainer.cpu_platform import keep_freed_memory, use_cpu

if not torch.cuda.is_available():
    use_cpu()  # before verl is imported: it settles on a device then

from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.config import CheckpointConfig
from verl.utils.device import get_device_name
from verl.workers.config import (
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers import TrainingWorker

from trainer.config import BatchConfig, OptimizerConfig


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _prepare() -> None:
    """What verl's worker leaves undone on a CPU: a gloo group (of one by default) and the engine."""
    if get_device_name() != "cpu":
        return
    keep_freed_memory()
    if not torch.distributed.is_initialized():
        alone = {
            "RANK": 0,
            "WORLD_SIZE": 1,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1",
        }
        for name, value in alone.items():
            os.environ.setdefault(name, str(value))
        if os.environ["WORLD_SIZE"] == "1":
            os.environ["MASTER_PORT"] = str(_free_port())
        torch.distributed.init_process_group("gloo")
    from trainer import engine

    engine.register()


class Worker(TrainingWorker):
    """A model, its optimiser and their step; see verl's `TrainingWorker` for the methods."""

    def __init__(self, config: TrainingWorkerConfig) -> None:
        _prepare()
        super().__init__(config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_lr_factor(self, factor: float) -> None:
        """Set every learning rate to `factor` times its peak, for the steps that follow."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def state(self) -> dict[str, torch.Tensor]:
        """All weights by name, whole, float32; a collective call."""
        parameters, _ = self.engine.get_per_tensor_param()
        return {name: tensor.detach().clone() for name, tensor in parameters}


def worker_config(
    model_dir: Path, optimizer: OptimizerConfig, batch: BatchConfig, precision: str, seed: int
) -> TrainingWorkerConfig:
    """verl's configuration of a worker for the Hugging Face folder `model_dir`."""
    on_cpu = get_device_name() == "cpu"
    model = HFModelConfig(
        path=str(model_dir),
        use_remove_padding=not on_cpu,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa" if on_cpu else "flash_attention_2"},
    )
    adamw = FSDPOptimizerConfig(
        lr=optimizer.lr,
        betas=optimizer.betas,
        weight_decay=optimizer.weight_decay,
        clip_grad=optimizer.clip_grad,
        lr_warmup_steps=0,
        total_training_steps=1,
        override_optimizer_config={"fused": True},  # 6 ms a step instead of 40 at 5M weights
    )
    wrap: dict[str, Any] = {}
    if on_cpu:
        from trainer.engine import ONE_UNIT

        wrap = ONE_UNIT
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        model_dtype="fp32",
        mixed_precision={"param_dtype": precision, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        wrap_policy=wrap,
        use_torch_compile=False,
        reshard_after_forward=False,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=batch.micro_tokens,
        infer_max_token_len_per_gpu=batch.micro_tokens,
        seed=seed,
    )
    return TrainingWorkerConfig(
        model_type="language_model",
        model_config=model,
        engine_config=engine,
        optimizer_config=adamw,
        checkpoint_config=CheckpointConfig(),
    )
