import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.trainer.conftest import SYSTEM, TOOLS, WORDS
from trainer import models
from trainer import tokenizer as tokenizers
from trainer.config import ModelConfig


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(r"[a-z0-9 \n\t\"\\{}<>_/.-]*"))
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(encode(tokenizer, text)) == text


@given(text=st.lists(st.sampled_from([*tokenizers.FIXED, "<|im_end|>", "x", " ", "\n", '"}}'])).map("".join))
def test_fixed_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(encode(tokenizer, text)) == text


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_one_token_wherever_it_stands(tokenizer: PreTrainedTokenizerFast, word: str) -> None:
    (alone,) = encode(tokenizer, word)
    for text in (f"{word} x", f"x {word}", f"/{word}.txt", f"\n{word}\n", f'"{word}"', f"12{word}3"):
        assert encode(tokenizer, text).count(alone) == 1, text


def test_numbers_below_a_thousand_are_one_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert all(len(encode(tokenizer, str(n))) == 1 for n in range(1000))
    assert encode(tokenizer, "1234567") == [encode(tokenizer, n)[0] for n in ("123", "456", "7")]


def test_fixed_text_is_one_token(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in (*tokenizers.FIXED, tokenizers.system_block(SYSTEM, TOOLS)):
        assert len(encode(tokenizer, text)) == 1, text


def test_the_template_writes_what_qwen_writes(tokenizer: PreTrainedTokenizerFast) -> None:
    call = {"type": "function", "function": {"name": "bash", "arguments": {"command": 'echo "a"'}}}
    text = tokenizer.apply_chat_template(
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Do it."},
            {"role": "assistant", "content": "Look.", "tool_calls": [call]},
            {"role": "tool", "content": "a\n(exit_code=0)"},
        ],
        tools=TOOLS,
        tokenize=False,
        add_generation_prompt=True,
    )
    block = tokenizers.system_block(SYSTEM, TOOLS)
    assert block.startswith(f"<|im_start|>system\n{SYSTEM}\n\n# Tools\n")
    assert text == (
        block + "Do it.<|im_end|>\n<|im_start|>assistant\n"
        'Look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "echo \\"a\\""}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\na\n(exit_code=0)\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_pieces_encoded_apart_equal_the_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    """What a rollout does: action, fixed text and body are encoded one by one."""
    pieces = [
        f'Read.{tokenizers.CALL_BASH}cat alpha"}}}}\n</tool_call>',
        "<|im_end|>",
        "\n<|im_start|>user\n<tool_response>\n",
        "alpha red\n(exit_code=0)",
        "\n</tool_response>",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]
    assert encode(tokenizer, "".join(pieces)) == [i for piece in pieces for i in encode(tokenizer, piece)]


def test_auto_tokenizer_loads_the_same_from_a_model_folder(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    shape = ModelConfig(hidden_size=32, intermediate_size=32, layers=2, heads=1, kv_heads=1, head_dim=16)
    models.create(shape, tokenizer, 0, tmp_path / "model")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "".join(tokenizers.FIXED) + " alpha  12é\t\n"
    assert encode(loaded, text) == encode(tokenizer, text)
    assert loaded.eos_token == "<|im_end|>"
    assert loaded.pad_token == "<|endoftext|>"
    assert loaded.chat_template == tokenizer.chat_template


def test_a_vocabulary_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        tokenizers.train(["x"], system=SYSTEM, tools=TOOLS, vocab_size=1000)
    with pytest.raises(ValueError, match=re.escape("cannot be one token")):
        tokenizers.train(["x"], system=SYSTEM, tools=TOOLS, words=["a-b"], vocab_size=2048)
