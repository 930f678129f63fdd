from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.chat import ChatFormat
from orchestrator.tokenizer import ChatFormatError, ModelTokenizer
from tests.orchestrator import qwen_like
from tests.orchestrator.qwen_like import LONG, SPECIAL, SYSTEM, TAGS, TEMPLATE, TOOLS

TOKENIZERS = {
    "qwen3": qwen_like.tokenizer(),
    "qwen2.5": qwen_like.tokenizer(tags=TAGS[:2]),
    "tiny": qwen_like.tokenizer(long=LONG),
}
CHATS = {name: ChatFormat(tokenizer, SYSTEM, TOOLS) for name, tokenizer in TOKENIZERS.items()}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)

bodies = st.lists(
    st.sampled_from([*SPECIAL, *TAGS, *LONG, "\n", " ", "total 12"]) | st.text(max_size=8), max_size=8
).map("".join)


@every_tokenizer
def test_an_observation_is_surrounded_by_the_text_of_the_template(name: str) -> None:
    chat, tokenizer = CHATS[name], TOKENIZERS[name]
    conversation = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": "I list them."},
        {"role": "tool", "content": "total 12\n(exit_code=0)"},
    ]
    ids = [
        *chat.prompt("List the files."),
        *tokenizer.encode("I list them."),
        chat.end_id,
        *chat.observation("total 12\n(exit_code=0)").token_ids,
    ]
    assert tokenizer.decode(ids) == tokenizer.render(conversation, TOOLS)


@every_tokenizer
def test_the_world_model_learns_the_body_and_its_closing_tag(name: str) -> None:
    chat, tokenizer = CHATS[name], TOKENIZERS[name]
    rendered = chat.observation("total 12")
    learned = rendered.token_ids[rendered.body_start : rendered.body_end]
    assert rendered.token_ids[: rendered.body_start] == chat.opening
    assert learned[-1] == chat.world_model_stop_id
    end = "<|im_end|>" if name == "qwen2.5" else ""
    assert tokenizer.decode(learned) == "total 12\n</tool_response>" + end


@every_tokenizer
@settings(max_examples=60)
@given(body=bodies)
def test_no_body_can_encode_to_a_reserved_token(name: str, body: str) -> None:
    chat, tokenizer = CHATS[name], TOKENIZERS[name]
    rendered = chat.observation(body)
    inside = rendered.token_ids[len(chat.opening) : -len(chat.closing)]
    control = {chat.end_id, chat.world_model_stop_id, *tokenizer.encode("".join(SPECIAL))}
    assert not control & set(inside)
    assert tokenizer.decode(inside) == body
    assert rendered.token_ids[-len(chat.closing) :] == chat.closing


@every_tokenizer
@given(body=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30))
def test_a_generated_body_is_read_back_without_its_closing_tag(name: str, body: str) -> None:
    chat = CHATS[name]
    rendered = chat.observation(body)
    learned = rendered.token_ids[rendered.body_start : rendered.body_end]
    assert chat.prediction_text(learned) == body.strip()


def test_an_action_is_read_back_without_its_end_token() -> None:
    chat, tokenizer = CHATS["qwen3"], TOKENIZERS["qwen3"]
    ids = tokenizer.encode('I look.\n<tool_call>\n{"name": "bash"}\n</tool_call>')
    assert chat.action_text([*ids, chat.end_id]) == chat.action_text(ids) == tokenizer.decode(ids)
    assert chat.action_text([]) == ""


def test_rendering_equals_that_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save(tmp_path)
    ours, theirs = ModelTokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Grüße <b>&amp;</b>"}]
    text = theirs.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert ours.render(messages, TOOLS) == text
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(ours.encode(text)) == text


def save(folder: Path, template: str = TEMPLATE) -> None:
    qwen_like.backend().save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)


def test_a_missing_folder_tokenizer_or_template_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChatFormatError, match="no model folder at"):
        ModelTokenizer.load(tmp_path / "nowhere")
    with pytest.raises(ChatFormatError, match="json cannot be loaded"):
        ModelTokenizer.load(tmp_path)
    save(tmp_path)
    config = (tmp_path / "tokenizer_config.json").read_text()
    (tmp_path / "tokenizer_config.json").write_text(config[:20])
    with pytest.raises(ChatFormatError, match=r"tokenizer_config\.json cannot be loaded"):
        ModelTokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(config)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ChatFormatError, match="has no chat template"):
        ModelTokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "leaves out or reorders"),
        (
            "{% for m in messages %}[{{ m.content }}]\n{% endfor %}",
            "with plain text",
        ),
        ("{{ raise_exception('no tools here') }}", "cannot be rendered .no tools here"),
        ("{% for %}", "is not valid"),
    ],
)
def test_a_template_that_cannot_carry_tools_is_refused(template: str, reason: str) -> None:
    with pytest.raises(ChatFormatError, match=reason):
        ChatFormat(ModelTokenizer("odd", qwen_like.backend(), template), SYSTEM, TOOLS)
