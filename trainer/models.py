"""Small Qwen3 models: made from a seed, saved as Hugging Face folders that are whole or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from trainer.config import ModelConfig
from trainer.induction import seed_induction


def qwen3_config(shape: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> Qwen3Config:
    """transformers' configuration of a model of this shape over this vocabulary."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        initializer_range=shape.init_std,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
    )


def create(shape: ModelConfig, tokenizer: PreTrainedTokenizerBase, seed: int, folder: Path) -> None:
    """Write a freshly initialised model (float32) and its tokenizer to `folder`.

    Raises ValueError when `shape` asks for induction and cannot hold it.
    """
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(qwen3_config(shape, tokenizer))
    torch.set_rng_state(state)
    if shape.induction:
        seed_induction(model, seed)
    export(model.state_dict(), model.config, tokenizer, folder, torch.float32)


def export(
    weights: Mapping[str, torch.Tensor],
    config: Qwen3Config,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write a Hugging Face folder; `folder` is replaced only when all of it is on disk.

    Raises OSError, with `folder` as it was, when the disk is full or not writable.
    """
    new, old = (folder.with_name(f".{folder.name}.{tag}.{os.getpid()}") for tag in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        kept = {n: w.detach().to(dtype).contiguous() for n, w in weights.items() if n != "lm_head.weight"}
        save_file(kept, new / "model.safetensors", metadata={"format": "pt"})
        copy = Qwen3Config.from_dict(config.to_dict() | {"dtype": str(dtype).removeprefix("torch.")})
        copy.save_pretrained(new)
        tokenizer.save_pretrained(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
