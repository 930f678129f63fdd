"""The tokenizer of the tiny models: byte-level BPE in which a word is one token wherever it stands.

Text is split into words, numbers of up to three digits, runs of spaces, tabs or newlines, and
single other characters; every text round-trips byte for byte. Fixed text of the chat template is
one added token each, so that a tiny model spends no computation on it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPLIT = r"[A-Za-z]+|[0-9]{1,3}| +|\n+|\t+|[^A-Za-z0-9 \n\t]"
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = Path(__file__).with_name("chat_template.jinja")

CALL_BASH = '\n<tool_call>\n{"name": "bash", "arguments": {"command": "'
CALL_DONE = '\n<tool_call>\n{"name": "done", "arguments": {}}\n</tool_call>'
FIXED = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    CALL_BASH,
    '"}}\n</tool_call>',
    CALL_DONE,
    f"{END}\n{START}assistant\n",
    f"\n{START}user\n<tool_response>\n",
    "\n</tool_response>",
    "(no output)",
    "\n(exit_code=0)",
    "\n(exit_code=1)",
    "\n(exit_code=2)",
)


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _merges(texts: Iterable[str], whole: set[str], size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-level BPE for what is not a whole token: alphabet of 256 bytes and about `size` merges."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = _pre_tokenizer()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + size, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    rest = (re.sub(SPLIT, lambda m: "\0" if m[0] in whole else m[0], text) for text in texts)
    bpe.train_from_iterator(rest, trainer)
    model = json.loads(bpe.to_str())["model"]
    return dict(model["vocab"]), [tuple(pair) for pair in model["merges"]]


def system_block(system: str, tools: Sequence[dict[str, Any]]) -> str:
    """The template's text before a first user message, opening of that message included."""
    shell = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "\0"}]
    text = shell.apply_chat_template(
        messages, tools=list(tools), chat_template=TEMPLATE.read_text(), tokenize=False
    )
    return str(text).partition("\0")[0]


def train(
    texts: Iterable[str],
    *,
    system: str,
    tools: Sequence[dict[str, Any]],
    words: Sequence[str] = (),
    vocab_size: int = 2048,
    merges: int = 256,
) -> PreTrainedTokenizerFast:
    """A tokenizer of about `vocab_size` tokens for `texts`.

    One token each: numbers 0..999, `words`, the most frequent words of `texts`, the system block
    of (`system`, `tools`), the texts in FIXED. `merges` bounds the pieces kept for other words.
    Raises ValueError when `vocab_size` is too small for what must be whole.
    """
    texts = list(texts)
    added = list(dict.fromkeys([system_block(system, tools), *FIXED]))
    whole = dict.fromkeys([*map(str, range(1000)), *words])
    unsplit = [w for w in whole if not re.fullmatch(SPLIT, w)]
    if unsplit:
        raise ValueError(f"{unsplit[:3]} cannot be one token: a word is letters only")
    room = vocab_size - 256 - merges - len(added) - 3 - len(whole)
    if room < 0:
        raise ValueError(f"vocab_size {vocab_size} is too small by {-room} for the words and numbers given")
    counts = Counter(piece for text in texts for piece in re.findall(SPLIT, text) if len(piece) > 1)
    frequent = [piece for piece, n in sorted(counts.items(), key=lambda i: (-i[1], i[0])) if n > 1]
    whole |= dict.fromkeys([p for p in frequent if p not in whole][:room])

    vocab, pairs = _merges(texts, set(whole), merges)
    for piece in whole:
        vocab.setdefault(_as_bytes(piece), len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in (END_OF_TEXT, START, END)]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in added])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )
    fast.chat_template = TEMPLATE.read_text()
    return fast


def _as_bytes(piece: str) -> str:
    """The piece in the byte-level alphabet, as the vocabulary spells it."""
    return "".join(
        p
        for p, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(piece)
    )
