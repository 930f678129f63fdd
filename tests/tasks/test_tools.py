"""Actions as text: what parses, what does not and what the model is told."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.tools import TOOLS, ParseError, ToolCall, parse_action, render_action


def call(body: str) -> str:
    return f"I act.\n<tool_call>\n{body}\n</tool_call>"


def test_an_action_is_a_sentence_and_a_call() -> None:
    text = 'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls -l \\"ü\\""}}\n</tool_call>'
    assert render_action("I look.", 'ls -l "ü"') == text
    assert parse_action(text) == ToolCall("bash", "I look.", 'ls -l "ü"')


def test_done_has_no_arguments() -> None:
    text = 'It is solved.\n<tool_call>\n{"name": "done", "arguments": {}}\n</tool_call>'
    assert render_action("It is solved.", None) == text
    assert parse_action(text) == ToolCall("done", "It is solved.")


def test_arguments_are_what_the_model_gave() -> None:
    parsed = parse_action(call('{"name": "bash", "arguments": {"command": "ls", "timeout": 2}}'))
    assert parsed == ToolCall("bash", "I act.", "ls", 2.0)
    assert isinstance(parsed, ToolCall)
    assert parsed.arguments == {"command": "ls", "timeout": 2.0}


def test_white_space_around_the_parts_does_not_matter() -> None:
    text = '  I look. <tool_call> {"arguments": {"command": "ls"},\n "name": "bash"}</tool_call>\n'
    assert parse_action(text) == ToolCall("bash", "I look.", "ls")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("I look.", "no tool call"),
        ("", "no tool call"),
        ('<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}', "not closed"),
        (call("ls"), "not valid JSON"),
        (call(""), "not valid JSON"),
        (call("{'name': 'bash'}"), "not valid JSON"),
        (call("[" * 100_000), "nested too deeply"),
        (call('{"name": "bash", "arguments": {"command": "ls", "timeout": NaN}}'), "NaN is no number"),
        (call('{"name": "bash", "arguments": {"command": "a", "command": "b"}}'), "a key appears twice"),
        (
            call('{"name": "bash", "arguments": {"command": "a", "timeout": ' + "1" * 9999 + "}}"),
            "not valid JSON",
        ),
        (call("[]"), "keys name and arguments"),
        (call('{"name": "bash"}'), "keys name and arguments"),
        (call('{"name": "bash", "arguments": {"command": "a"}, "id": 1}'), "keys name and arguments"),
        (call('{"name": "bash", "arguments": "ls"}'), "arguments must be an object"),
        (call('{"name": "sh", "arguments": {}}'), 'unknown tool "sh"'),
        (call('{"name": ["bash"], "arguments": {}}'), 'unknown tool ["bash"]'),
        (call('{"name": "done", "arguments": {"why": 1}}'), "done takes no arguments"),
        (call('{"name": "bash", "arguments": {}}'), "bash needs command"),
        (call('{"name": "bash", "arguments": {"command": 3}}'), "bash needs command"),
        (call('{"name": "bash", "arguments": {"command": " "}}'), "bash needs command"),
        (call('{"name": "bash", "arguments": {"command": "a\\u0000"}}'), "no shell can read"),
        (call('{"name": "bash", "arguments": {"command": "a\\ud800"}}'), "no shell can read"),
        (call('{"name": "bash", "arguments": {"command": "a", "cwd": "/"}}'), 'found "cwd"'),
        (call('{"name": "bash", "arguments": {"command": "a", "timeout": true}}'), "timeout must be"),
        (call('{"name": "bash", "arguments": {"command": "a", "timeout": "3"}}'), "timeout must be"),
        (call('{"name": "bash", "arguments": {"command": "a", "timeout": 0}}'), "timeout must be"),
        (call('{"name": "bash", "arguments": {"command": "a", "timeout": 1e400}}'), "timeout must be"),
        (call('{"name": "done", "arguments": {}}\n{"name": "done", "arguments": {}}'), "more than one JSON"),
        (call('{"name": "done", "arguments": {}}') * 2, "only one tool call"),
        (call('{"name": "done", "arguments": {}}') + " bye", "no text after"),
    ],
)
def test_anything_else_gets_a_sentence(text: str, says: str) -> None:
    error = parse_action(text)
    assert isinstance(error, ParseError)
    assert says in error.message
    assert error.message.startswith("Error: ")
    assert error.message.endswith(".")
    assert len(error.message) < 250
    assert str(error) == error.message


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(
    words.map(str.strip).filter(lambda text: "<tool_call>" not in text), st.none() | words.filter(str.strip)
)
@example("I print a tag.", "echo '</tool_call><tool_call>' \"\\\\\" <<X\n\tü\u2028\nX")
def test_parsing_inverts_rendering(thought: str, command: str | None) -> None:
    parsed = parse_action(render_action(thought, command))
    assert parsed == ToolCall("done" if command is None else "bash", thought, command)


@given(st.text() | st.text().map(call))
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_action(text), ToolCall | ParseError)


@pytest.mark.parametrize(
    ("thought", "command"), [("<tool_call>", "ls"), ("I look. ", "ls"), ("I look.", ""), ("I look.", "a\0")]
)
def test_what_would_not_parse_back_is_not_rendered(thought: str, command: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|white space"):
        render_action(thought, command)


def test_the_schemas_describe_the_two_tools() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == ["bash", "done"]
    assert TOOLS[0]["function"]["parameters"]["required"] == ["command"]
    assert set(TOOLS[0]["function"]["parameters"]["properties"]) == {"command", "timeout"}
