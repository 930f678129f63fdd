from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import atif
from tasks.task import TaskError

SHARED = Path(__file__).parents[3] / "shared"
"""Beside the repository: real recorded trajectories, where a checkout comes with them."""

EVERYTHING: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "trajectory_id": "t",
    "agent": {"name": "a", "version": "1", "model_name": "m", "tool_definitions": [{"x": 1}], "extra": {}},
    "steps": [
        {"step_id": 1, "timestamp": "2026-01-02T03:04:05Z", "source": "system", "message": "be good"},
        {
            "step_id": 2,
            "source": "user",
            "message": [
                {"type": "text", "text": "what is it?"},
                {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
            ],
            "is_copied_context": False,
        },
        {
            "step_id": 3,
            "source": "agent",
            "model_name": "m",
            "reasoning_effort": 0.5,
            "message": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "tool_call_id": "c1",
                    "function_name": "look",
                    "arguments": {"at": [1, {"b": None}]},
                    "extra": {},
                }
            ],
            "observation": {
                "results": [
                    {
                        "source_call_id": "c1",
                        "content": "a cat",
                        "subagent_trajectory_ref": [{"trajectory_id": "sub", "extra": {}}],
                    },
                    {"content": [{"type": "text", "text": "a dog"}]},
                ]
            },
            "metrics": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "cached_tokens": 1,
                "cost_usd": 0,
                "prompt_token_ids": [1, 2, 3],
                "completion_token_ids": [4, 5],
                "logprobs": [-0.5, 0],
                "extra": {"reasoning_tokens": 1},
            },
            "llm_call_count": 1,
            "extra": {"ä": "\x1b[0m\u2028"},
        },
    ],
    "notes": "n",
    "final_metrics": {"total_prompt_tokens": 3, "total_cost_usd": 0.25, "total_steps": 3, "extra": {}},
    "continued_trajectory_ref": "next.json",
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "trajectory_id": "sub",
            "agent": {"name": "b", "version": "2"},
            "steps": [{"step_id": 1, "source": "user", "message": ""}],
        }
    ],
    "extra": {"reward": 1},
}
REQUIRED = {
    "schema_version", "agent", "steps", "name", "version", "step_id", "source", "message", "tool_call_id",
    "function_name", "arguments", "results", "type", "media_type", "path",
}  # fmt: skip
OBJECTS = {"arguments", "extra", "tool_definitions"}
"""Keys under which anything may stand."""

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def variants(draw: st.DrawFn, value: Any = EVERYTHING) -> Any:
    """The document with its keys in any order, some left out, some null, and some that nobody knows."""
    if isinstance(value, list):
        return [draw(variants(item)) for item in value]
    if not isinstance(value, dict):
        return value
    unknown = draw(st.dictionaries(st.text(max_size=8), anything, max_size=1))
    result: dict[str, Any] = {key: item for key, item in unknown.items() if key not in value}
    for key, item in value.items():
        fate = "kept" if key in REQUIRED else draw(st.sampled_from(["kept", "kept", "null", "absent"]))
        if fate == "null":
            result[key] = None
        elif fate == "kept":
            result[key] = item if key in OBJECTS else draw(variants(item))
    return {key: result[key] for key in draw(st.permutations(list(result)))}


def same(one: str, other: str) -> bool:
    """Equal as JSON: keys, their order, and values, an integer being no float."""
    return json.dumps(json.loads(one)) == json.dumps(json.loads(other))


def changed(path: str, value: Any) -> atif.Trajectory:
    """The document with another value at a path such as `steps.2.metrics.logprobs`."""
    document = json.loads(json.dumps(EVERYTHING))
    *parents, last = path.split(".")
    place = document
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    return atif.loads(json.dumps(document))


@pytest.fixture
def recorded() -> list[Path]:
    if not SHARED.is_dir():
        pytest.skip(f"no recorded trajectories: there is no folder {SHARED}")
    files = sorted((SHARED / "data" / "atif").glob("*.json"))
    assert files, f"no recorded trajectories in {SHARED / 'data' / 'atif'}"
    return files


def test_recorded_files_are_written_as_they_were(recorded: list[Path], tmp_path: Path) -> None:
    for file in recorded:
        trajectory = atif.read(file)
        assert same(atif.dumps(trajectory), file.read_text(encoding="utf-8"))
        atif.write(trajectory, tmp_path / file.name)
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_recorded_files_keep_the_rules(recorded: list[Path]) -> None:
    for file in recorded:
        assert atif.problems(atif.read(file)) == []


@given(variants())
def test_whatever_a_document_holds_it_is_written_as_it_was_read(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    trajectory = atif.loads(text)
    assert same(atif.dumps(trajectory), text)
    assert same(atif.dumps(trajectory, indent=1), text)
    assert json.dumps(trajectory.model_dump()) == text


def test_broken_text_survives(tmp_path: Path) -> None:
    """A tool that printed half a character: Python writes it as an escape that is no valid Unicode."""
    trajectory = changed("steps.2.observation.results.0.content", "\udcff\ud800 ok")
    atif.write(trajectory, tmp_path / "a.json")
    assert atif.read(tmp_path / "a.json") == trajectory
    assert b"\\udcff\\ud800 ok" in (tmp_path / "a.json").read_bytes()


def test_numbers_stay_what_they_are() -> None:
    text = json.dumps(EVERYTHING).replace('"cost_usd": 0', f'"cost_usd": {10**30}')
    assert f'"cost_usd": {10**30}' in atif.dumps(atif.loads(text))


def test_token_ids_take_one_line() -> None:
    text = atif.dumps(changed("notes", "n"), indent=2)
    assert '        "prompt_token_ids": [1, 2, 3],\n' in text


def test_a_made_document_has_the_keys_it_was_given() -> None:
    agent = atif.Agent(version="1", name="a", extra=None)
    assert atif.dumps(agent) == '{"version": "1", "name": "a", "extra": null}'
    assert atif.dumps(agent.model_copy(update={"model_name": "m"})).endswith(
        '"extra": null, "model_name": "m"}'
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is not valid JSON (Expecting value at line 1, column 1)"),
        ("[]", "it should hold a JSON object"),
        ("{}", "`schema_version` should be one such as ATIF-v1.6"),
        ('{"schema_version": "1.0"}', "`schema_version` should be one such as ATIF-v1.6"),
        ('{"schema_version": "ATIF-v1.6", "a": 1, "a": 2}', "the key 'a' appears twice"),
        ('{"schema_version": "ATIF-v1.6", "a": 1e999}', "the number 1e999 is too large"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"schema_version": "ATIF-v1.6", "steps": []}', "agent: is missing"),
    ],
)  # fmt: skip
def test_what_is_no_trajectory_is_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(TaskError) as error:
        atif.loads(text, "a.json")
    assert str(error.value).startswith("a.json is not ATIF: ")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("agent", [], "agent: should be an object"),
        ("agent.name", None, "agent.name: should be a string"),
        ("steps", {}, "steps: should be a valid list"),
        ("steps.1.step_id", "2", "steps[1].step_id: should be a valid integer"),
        ("steps.1.source", "assistant", "steps[1].source: should be 'system', 'user' or 'agent'"),
        ("steps.0.message", 3, "steps[0].message: should be a string or a list of content parts"),
        ("steps.1.message.0.type", 3, "steps[1].message[0].type: should be a string"),
        ("steps.2.tool_calls.0.arguments", "ls", "steps[2].tool_calls[0].arguments: should be an object"),
        ("steps.2.metrics.logprobs", [True], "steps[2].metrics.logprobs[0]: should be a number"),
        ("steps.2.metrics.prompt_tokens", 3.5, "steps[2].metrics.prompt_tokens: should be a valid integer"),
        ("steps.2.reasoning_effort", [], "steps[2].reasoning_effort: should be a number"),
    ],
)
def test_a_wrong_type_is_named_with_its_place(path: str, value: Any, complaint: str) -> None:
    with pytest.raises(TaskError) as error:
        changed(path, value)
    assert complaint in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for file in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(TaskError, match=rf"^{file} cannot be read \("):
            atif.read(file)
    (tmp_path / "a.json").write_bytes(b'{"schema_version": "\xff"}')
    with pytest.raises(TaskError, match=r"it is not UTF-8 \(byte 20\)"):
        atif.read(tmp_path / "a.json")


def test_a_document_with_everything_keeps_the_rules() -> None:
    assert atif.problems(atif.loads(json.dumps(EVERYTHING))) == []


CALL = {"tool_call_id": "c1", "function_name": "look", "arguments": {}}


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("schema_version", "ATIF-v2.0", "schema_version 'ATIF-v2.0' is not known"),
        ("steps", [], "there are no steps"),
        ("reward", 1, "the trajectory has an unknown field 'reward'"),
        ("steps.0.reward", 1, "step 1: the step has an unknown field 'reward'"),
        ("steps.2.metrics.reward", 1, "step 3: metrics has an unknown field 'reward'"),
        ("steps.1.step_id", 3, "step 2 has step_id 3: step_ids count from 1 without gaps"),
        ("steps.0.timestamp", "yesterday", "step 1: timestamp 'yesterday' is not ISO 8601"),
        ("steps.0.model_name", "m", "step 1: model_name belongs to steps of the agent"),
        ("steps.0.tool_calls", [CALL], "step 1: tool_calls belongs to steps of the agent"),
        ("steps.1.metrics", {}, "step 2: metrics belongs to steps of the agent"),
        ("steps.2.tool_calls", [CALL, CALL], "step 3: tool_call_id 'c1' appears 2 times"),
        ("steps.2.tool_calls", None, "step 3: result 1: source_call_id 'c1' is no tool call of this step"),
        ("steps.2.llm_call_count", 0, "step 3: metrics has no place where llm_call_count is 0"),
        ("steps.2.llm_call_count", -1, "step 3: llm_call_count is -1"),
        ("steps.1.message.0.text", None, "step 2: part 1 of message is of type 'text': text is missing"),
        ("steps.1.message.1.text", "x", "step 2: part 2 of message is of type 'image': text is not allowed"),
        ("steps.1.message.1.type", "film", "step 2: part 2 of message is of type 'film'"),
        ("steps.2.metrics.cost_usd", -1, "step 3: cost_usd is -1"),
        ("steps.2.metrics.logprobs", [-1.5], "step 3: logprobs has 1 entries for 2 tokens"),
        ("steps.2.metrics.prompt_token_ids", [], "step 3: prompt_token_ids has 0 entries for 3 tokens"),
        ("steps.2.metrics.cached_tokens", 4, "step 3: cached_tokens (4) are more than prompt_tokens (3)"),
        ("steps.2.observation.results.0.subagent_trajectory_ref", [{"session_id": "s"}],
         "step 3: result 1: subagent_trajectory_ref needs trajectory_id or trajectory_path"),
        ("subagent_trajectories.0.trajectory_id", None, "embedded trajectory 1 has no trajectory_id"),
        ("subagent_trajectories.0.steps", [], "embedded trajectory 1: there are no steps"),
    ],
)  # fmt: skip
def test_each_broken_rule_is_a_sentence(path: str, value: Any, problem: str) -> None:
    found = atif.problems(changed(path, value))
    assert any(sentence.startswith(problem) for sentence in found), found
    assert not any("\n" in sentence for sentence in found)


def test_sums_that_differ_from_the_steps_need_a_note() -> None:
    document = json.loads(json.dumps(EVERYTHING)) | {"notes": None}
    document["final_metrics"]["total_steps"] = 9
    (problem,) = atif.problems(atif.loads(json.dumps(document)))
    assert problem == "total_steps is 9 for 3 steps, and notes do not say why"


def test_the_session_is_named_up_to_version_6() -> None:
    document = {k: v for k, v in EVERYTHING.items() if k != "session_id"} | {"schema_version": "ATIF-v1.6"}
    found = atif.problems(atif.loads(json.dumps(document)))
    assert found[0] == "session_id is missing: ATIF-v1.6 requires it"
