"""A tiny tokenizer, tiny data, and the worker of one training run, shared by the trainer's tests."""

import json
import random
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from trainer import tokenizer as tokenizers
from trainer.config import BatchConfig, BudgetConfig, CopyConfig, ModelConfig, ScheduleConfig, SftConfig

WORDS = ("alpha", "beta", "gamma", "delta", "red", "green", "blue", "cat", "read")
SYSTEM = "You are an agent in a shell."
TOOLS = [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "done", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [f"Read {w}.txt, then print it.\n  total 12\n" for w in WORDS]
    return tokenizers.train(texts, system=SYSTEM, tools=TOOLS, words=WORDS, vocab_size=1400, merges=32)


def trajectory(tokenizer: PreTrainedTokenizerFast, rng: random.Random, turns: int = 3) -> dict:
    """A trajectory as the orchestrator writes it: `cat` of a few files, each with one fixed word."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Read {rng.choice(WORDS)}."},
    ]
    prompt = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    segments = []
    for _ in range(turns):
        name = rng.choice(WORDS[:4])
        action = encode(f'Read.{tokenizers.CALL_BASH}cat {name}"}}}}\n</tool_call><|im_end|>')
        before, after = (
            encode("\n<|im_start|>user\n<tool_response>\n"),
            encode("<|im_end|>\n<|im_start|>assistant\n"),
        )
        body = encode(f"{name} red\n(exit_code=0)") + encode("\n</tool_response>")
        ids = before + body + after
        segments += [
            {
                "kind": "action",
                "token_ids": action,
                "logprobs": [0.0] * len(action),
                "policy_mask": [True] * len(action),
                "world_model_mask": [False] * len(action),
            },
            {
                "kind": "observation",
                "token_ids": ids,
                "policy_mask": [False] * len(ids),
                "world_model_mask": [False] * len(before) + [True] * len(body) + [False] * len(after),
            },
        ]
    return {"prompt_ids": encode(prompt), "segments": segments}


@pytest.fixture(scope="session")
def data(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tokenizer.save_pretrained(folder / "tokenizer")
    rng = random.Random(0)
    for name, count in (("train", 40), ("validation", 6)):
        lines = [json.dumps(trajectory(tokenizer, rng, turns=rng.randint(1, 4))) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def config() -> SftConfig:
    """A model and a training small enough for a test: seconds."""
    return SftConfig(
        model=ModelConfig(hidden_size=64, intermediate_size=96, layers=2, heads=2, kv_heads=2, head_dim=32),
        batch=BatchConfig(tokens=512, micro_tokens=256),
        copying=CopyConfig(budget=BudgetConfig(steps=3), length=(16, 32), segment=(2, 4)),
        budget=BudgetConfig(steps=25),
        schedule=ScheduleConfig(warmup_steps=2),
    )
