"""Branch continuations are, token by token, those of the sequential run: 50 prompts, 3 candidates each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import lossless
from orchestrator.tokenizer import ModelTokenizer
from tests.sglang_ext.engines import running

PROMPTS = 50
ENGINES: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bf16_invariant": {"dtype": "bfloat16", "batch_invariant": True},
}


async def same_everywhere(model: Path, folder: Path, kind: str, tokens: int) -> None:
    tokenizer = ModelTokenizer.load(model)
    async with running(model, folder, max_total_tokens=16384, **ENGINES[kind]) as http:
        prompts = await lossless.prompts(http, tokenizer, PROMPTS)
        for temperature in (1.0, 0.0):
            sampling = {"max_new_tokens": tokens, "temperature": temperature, "ignore_eos": True}
            count = await lossless.compare(http, prompts, sampling)
            print(f"{model.name}, {kind}, temperature {temperature}: {count}")
            assert (count.same, count.of, count.lost) == (3 * PROMPTS, 3 * PROMPTS, 0)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ENGINES)
async def test_the_tiny_policy(model_folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    await same_everywhere(model_folders["policy"], tmp_path, kind, tokens=12)


@pytest.mark.download
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ENGINES)
async def test_smollm2(smollm: Path, tmp_path: Path, kind: str) -> None:
    await same_everywhere(smollm, tmp_path, kind, tokens=12)
