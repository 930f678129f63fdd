"""A small tokenizer with Qwen's special tokens and chat template, built in memory."""

from __future__ import annotations

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from orchestrator.chat import ChatFormat
from orchestrator.tokenizer import ModelTokenizer

SYSTEM = "Solve the task in the shell."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run a <command>.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "done", "parameters": {"type": "object", "properties": {}}}},
]

TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' + messages[0].content + '\n\n# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages[1:] %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or messages[loop.index].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""".strip()

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
LONG = ["\n<|im_start|>user\n<tool_response>\n", "\n</tool_response>", "<|im_end|>\n<|im_start|>assistant\n"]

CORPUS = [
    "ls -la src; cat notes.txt | grep -n error > out.txt && echo done",
    "<tools> # Tools user assistant system arguments command bash name Solve the task in the shell.",
    "(no output) (exit_code=0) (exit_code=1) total 12 drwxr-xr-x file.txt 0123456789",
] * 20


def backend(tags: list[str] = TAGS, long: list[str] | None = None) -> Tokenizer:
    """Byte-level BPE; `long` makes whole pieces of the template one token, as the tiny models' does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in [*tags, *(long or [])]])
    return tokenizer


def tokenizer(**kinds: list[str]) -> ModelTokenizer:
    return ModelTokenizer("qwen-like", backend(**kinds), TEMPLATE)


@cache
def chat() -> ChatFormat:
    return ChatFormat(tokenizer(), SYSTEM, TOOLS)
