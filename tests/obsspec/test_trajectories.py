"""`obsspec rollouts`: a folder of exported rollouts, and what is shown of a trajectory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from obsspec import trajectories
from orchestrator.client import RequestRefused
from orchestrator.schema import RolloutRequest
from tasks import atif
from tests.obsspec.command import assert_one_sentence, obsspec
from tests.orchestrator.test_service import quick, serving

MADE = atif.Trajectory(
    schema_version="ATIF-v1.6",
    session_id="s1",
    agent=atif.Agent(name="someone", version="2", model_name="m"),
    steps=[
        atif.Step(step_id=1, source="user", message="[red]Look[/red] \x1b[31mhere\x07"),
        atif.Step(
            step_id=2,
            source="agent",
            message="I look.",
            tool_calls=[
                atif.ToolCall(tool_call_id="c1", function_name="look", arguments={"at": "a\nb", "n": 2})
            ],
            observation=atif.Observation(
                results=[
                    atif.ObservationResult(source_call_id="c1", content="x" * 1234),
                    atif.ObservationResult(source_call_id="c2", content=None),
                ]
            ),
            metrics=atif.Metrics(prompt_tokens=345, completion_tokens=67),
        ),
    ],
    final_metrics=atif.FinalMetrics(total_prompt_tokens=345, total_cost_usd=0.25),
    extra={"status": "finished", "reward": 0.5},
)


def shown(trajectory: atif.Trajectory) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        for part in trajectories.summary(trajectory):
            console.print(part)
    return capture.get()


def test_a_summary_says_who_did_what_and_what_is_wrong() -> None:
    text = shown(MADE)
    assert "someone 2 (m)" in text
    assert "look(at=a b, n=2)" in text
    (line,) = (line for line in text.splitlines() if line.startswith("2     agent"))
    assert line.split()[-5:] == ["1234", "+", "0", "345", "67"]
    assert "2 steps, 1 tool calls, 1234 characters observed, 345 prompt tokens, 0.25 USD." in text
    assert "reward   0.5" in text
    assert "- step 2: result 2: source_call_id 'c2' is no tool call of this step" in text


def test_a_summary_is_plain_text_whatever_the_trajectory_holds() -> None:
    text = shown(MADE)
    assert "[red]Look[/red]" in text
    assert not {"\x1b", "\x07"} & set(text)
    broken = MADE.model_copy(update={"notes": "\udcff"})
    assert shown(broken).encode()


async def test_all_that_have_ended_are_exported(tmp_path: Path) -> None:
    async with serving(quick(), tmp_path) as (client, _, _):
        ids = await client.submit(RolloutRequest(tasks=["list-files"], n=3))
        async for _ in client.completed(ids):
            pass
        console = Console(quiet=True)
        assert await trajectories.export(client, [], tmp_path, console) == 3
        for rollout_id in ids:
            file = tmp_path / f"{rollout_id}.json"
            assert atif.read(file) == await client.atif(rollout_id)
            assert atif.problems(atif.read(file)) == []
            file.unlink()
        assert await trajectories.export(client, ids[:1], tmp_path, console) == 1
        assert [file.stem for file in tmp_path.glob("*.json")] == ids[:1]
        with pytest.raises(RequestRefused, match="there is no rollout 'r1'"):
            await trajectories.export(client, ["r1"], tmp_path, console)


def test_show_reads_any_atif(tmp_path: Path) -> None:
    atif.write(MADE, tmp_path / "a.json")
    result = obsspec("rollouts", "show", tmp_path / "a.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert "someone 2 (m)" in result.stdout


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"steps": []}))
    result = obsspec("rollouts", "show", tmp_path / "a.json")
    assert_one_sentence(result, "a.json is not ATIF", "schema_version", status=2)
    result = obsspec("rollouts", "export", "--out", tmp_path / "a.json")
    assert_one_sentence(result, f"--out {tmp_path / 'a.json'}", "no folder can be made", status=2)
    result = obsspec("rollouts", "export", "--out", tmp_path / "out", "--url", "http://127.0.0.1:9")
    assert_one_sentence(result, "http://127.0.0.1:9 cannot be reached", status=1)
