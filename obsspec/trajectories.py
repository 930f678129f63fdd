"""ATIF trajectories for people: a folder of exported rollouts, and a summary of one trajectory.

What a summary shows came from a policy and from tools: it is printed as plain text, without markup and
without control characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from obsspec.errors import ConfigError
from orchestrator.client import OrchestratorClient, RequestRefused
from tasks import atif

_SHOWN = 60
"""Characters of an argument of a tool call; of the call, and of a message, twice as many."""
_OUTCOME = ("task", "status", "error", "reward", "agent_latency_s")
"""What the root's `extra` of an exported rollout says of its outcome."""

_COLUMNS = {
    "step": 4,
    "source": 6,
    "message": None,
    "tool calls": None,
    "observation": 11,
    "prompt": 7,
    "completion": 10,
}
"""Widths in characters; null: what is left."""


def make_folder(out: Path) -> None:
    """Raises ConfigError where there can be no such folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: no folder can be made there ({error.strerror})") from None


async def export(client: OrchestratorClient, ids: Sequence[str], out: Path, console: Console) -> int:
    """Write each rollout to `out/ID.json`, or all that have ended; how many were written.

    Raises OrchestratorError; a rollout that was forgotten after it was listed is left out.
    """
    written = 0
    for rollout_id in track(ids or await client.ended(), "Exporting", console=console, transient=True):
        try:
            trajectory = await client.atif(rollout_id)
        except RequestRefused as error:
            if ids or error.problem.status != 404:
                raise
            continue
        atif.write(trajectory, out / f"{rollout_id}.json")
        written += 1
    return written


def summary(trajectory: atif.Trajectory) -> Iterator[RenderableType]:
    """Agent and outcome, the steps as a table, sums, and the problems that the format's rules find."""
    yield _head(trajectory)
    yield _steps(trajectory)
    yield _sums(trajectory)
    found = atif.problems(trajectory)
    yield Text("The format's rules are kept." if not found else f"{len(found)} problems:")
    for problem in found:
        yield Text(f"- {_line(problem, 500)}")


def _head(trajectory: atif.Trajectory) -> Table:
    agent, extra = trajectory.agent, trajectory.extra or {}
    table = Table.grid(padding=(0, 2))
    name = " ".join(filter(None, (agent.name, agent.version, agent.model_name and f"({agent.model_name})")))
    rows: dict[str, Any] = {
        "agent": name,
        "session": trajectory.session_id,
        "format": trajectory.schema_version,
        "notes": trajectory.notes,
        **{key: extra.get(key) for key in _OUTCOME},
    }
    for key, value in rows.items():
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else value
            table.add_row(Text(key, style="dim"), Text(_line(text, 500)))
    return table


def _steps(trajectory: atif.Trajectory) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    for heading, width in _COLUMNS.items():
        ratio, right = (1, False) if width is None else (None, heading not in ("step", "source"))
        table.add_column(
            heading,
            no_wrap=True,
            overflow="ellipsis",
            width=width,
            ratio=ratio,
            justify="right" if right else "left",
        )
    for step in trajectory.steps:
        metrics = step.metrics or atif.Metrics()
        results = [_length(r.content) for r in step.observation.results] if step.observation else []
        table.add_row(
            str(step.step_id),
            step.source,
            Text(_line(_text(step.message), 2 * _SHOWN)),
            Text("\n".join(_call(call) for call in step.tool_calls or ())),
            " + ".join(str(length) for length in results),
            _count(metrics.prompt_tokens),
            _count(metrics.completion_tokens),
        )
    return table


def _sums(trajectory: atif.Trajectory) -> Text:
    steps, totals = trajectory.steps, trajectory.final_metrics or atif.FinalMetrics()
    calls = sum(len(step.tool_calls or ()) for step in steps)
    observed = sum(_length(r.content) for s in steps if s.observation for r in s.observation.results)
    parts = [f"{len(steps)} steps", f"{calls} tool calls", f"{observed} characters observed"]
    kinds = {kind: getattr(totals, f"total_{kind}_tokens") for kind in ("prompt", "completion", "cached")}
    parts += [f"{tokens} {kind} tokens" for kind, tokens in kinds.items() if tokens is not None]
    if totals.total_cost_usd is not None:
        parts.append(f"{totals.total_cost_usd:g} USD")
    return Text(", ".join(parts) + ".")


def _call(call: atif.ToolCall) -> str:
    arguments = ", ".join(f"{key}={_line(value, _SHOWN)}" for key, value in call.arguments.items())
    return _line(f"{call.function_name}({arguments})", 2 * _SHOWN)


def _text(content: str | list[atif.ContentPart] | None) -> str:
    if isinstance(content, list):
        return " ".join(f"[{part.type}]" if part.text is None else part.text for part in content)
    return content or ""


def _length(content: str | list[atif.ContentPart] | None) -> int:
    if isinstance(content, list):
        return sum(len(part.text or "") for part in content)
    return len(content or "")


def _count(tokens: int | None) -> str:
    return "" if tokens is None else str(tokens)


def _line(value: object, longest: int) -> str:
    """On one line, cut, with nothing that a terminal obeys."""
    text = " ".join(str(value).split())
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
