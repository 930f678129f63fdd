"""Says what a trajectory does that ATIF forbids; reading is more tolerant, so that nothing is lost.

The rules are those of the format's specification (Harbor, RFC 0001) for versions 1.0 to 1.8.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tasks.atif.models import AtifModel, ContentPart, Metrics, ObservationResult, Step, Trajectory

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


def problems(trajectory: Trajectory) -> list[str]:
    """What is wrong, a sentence each, in the order of the document; empty: a valid trajectory."""
    return list(_trajectory(trajectory))


def _trajectory(trajectory: Trajectory) -> Iterator[str]:
    version = trajectory.schema_version
    if version not in VERSIONS:
        yield f"schema_version {version!r} is not known: the versions are {VERSIONS[0]} to {VERSIONS[-1]}"
    runs_named = version in VERSIONS[:7]
    if trajectory.session_id is None and runs_named:
        yield f"session_id is missing: {version} requires it"
    yield from _unknown("the trajectory", trajectory)
    yield from _unknown("agent", trajectory.agent)
    if not trajectory.steps:
        yield "there are no steps: a trajectory has at least one"
    for number, step in enumerate(trajectory.steps, 1):
        if step.step_id != number:
            yield f"step {number} has step_id {step.step_id}: step_ids count from 1 without gaps"
        yield from (f"step {number}: {problem}" for problem in _step(step, runs_named))
    yield from _totals(trajectory)
    yield from _embedded(trajectory)


def _step(step: Step, runs_named: bool) -> Iterator[str]:
    yield from _unknown("the step", step)
    if step.timestamp is not None and not _is_time(step.timestamp):
        yield f"timestamp {step.timestamp!r} is not ISO 8601"
    if step.source != "agent":
        for name in _AGENT_ONLY:
            if getattr(step, name) is not None:
                yield f"{name} belongs to steps of the agent, and this one's source is {step.source}"
    if step.llm_call_count is not None and step.llm_call_count < 0:
        yield f"llm_call_count is {step.llm_call_count}: it counts from 0"
    if step.source == "agent" and step.llm_call_count == 0:
        for name in ("metrics", "reasoning_content"):
            if getattr(step, name) is not None:
                yield f"{name} has no place where llm_call_count is 0"
    yield from _content("message", step.message)
    calls = Counter(call.tool_call_id for call in step.tool_calls or ())
    yield from (f"tool_call_id {name!r} appears {n} times" for name, n in calls.items() if n > 1)
    for call in step.tool_calls or ():
        yield from _unknown(f"tool call {call.tool_call_id!r}", call)
    if step.observation is not None:
        yield from _unknown("observation", step.observation)
        for i, result in enumerate(step.observation.results, 1):
            yield from (f"result {i}: {problem}" for problem in _result(result, calls, runs_named))
    if step.metrics is not None:
        yield from _metrics(step.metrics)


def _result(result: ObservationResult, calls: Counter[str], runs_named: bool) -> Iterator[str]:
    yield from _unknown("the result", result)
    if result.source_call_id is not None and result.source_call_id not in calls:
        yield f"source_call_id {result.source_call_id!r} is no tool call of this step"
    if result.content is not None:
        yield from _content("content", result.content)
    for ref in result.subagent_trajectory_ref or ():
        yield from _unknown("subagent_trajectory_ref", ref)
        if runs_named and ref.session_id is None:
            yield "subagent_trajectory_ref needs session_id"
        if not runs_named and ref.trajectory_id is None and ref.trajectory_path is None:
            yield "subagent_trajectory_ref needs trajectory_id or trajectory_path"


def _content(name: str, content: str | list[ContentPart]) -> Iterator[str]:
    for i, part in enumerate(content if isinstance(content, list) else (), 1):
        where = f"part {i} of {name}"
        yield from _unknown(where, part)
        if part.type not in ("text", "image", "audio"):
            yield f"{where} is of type {part.type!r}: it should be text, image or audio"
            continue
        for field in ("text", "source"):
            wanted = (part.type == "text") == (field == "text")
            if wanted != (getattr(part, field) is not None):
                complaint = "is missing" if wanted else "is not allowed"
                yield f"{where} is of type {part.type!r}: {field} {complaint}"
        if part.source is not None:
            yield from _unknown(f"source of {where}", part.source)


def _metrics(metrics: Metrics) -> Iterator[str]:
    yield from _unknown("metrics", metrics)
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"):
        value = getattr(metrics, name)
        if value is not None and not 0 <= value < math.inf:
            yield f"{name} is {value}: it is a number of 0 or more"
    prompt, completion = metrics.prompt_tokens, metrics.completion_tokens
    ids, logprobs = metrics.completion_token_ids, metrics.logprobs
    for name, values, tokens in (
        ("prompt_token_ids", metrics.prompt_token_ids, prompt),
        ("completion_token_ids", ids, completion),
        ("logprobs", logprobs, completion if ids is None else len(ids)),
    ):
        if values is not None and tokens is not None and len(values) != tokens:
            yield f"{name} has {len(values)} entries for {tokens} tokens"
    if logprobs is not None and not all(map(math.isfinite, logprobs)):
        yield "logprobs holds what is no number in JSON (NaN or Infinity)"
    cached = metrics.cached_tokens
    if cached is not None and prompt is not None and cached > prompt:
        yield f"cached_tokens ({cached}) are more than prompt_tokens ({prompt}), which they are a part of"


def _totals(trajectory: Trajectory) -> Iterator[str]:
    totals, steps = trajectory.final_metrics, len(trajectory.steps)
    if totals is None:
        return
    yield from _unknown("final_metrics", totals)
    if totals.total_steps not in (None, steps) and not trajectory.notes:
        yield f"total_steps is {totals.total_steps} for {steps} steps, and notes do not say why"


def _embedded(trajectory: Trajectory) -> Iterator[str]:
    embedded = trajectory.subagent_trajectories or ()
    seen: set[str] = set()
    for i, subagent in enumerate(embedded, 1):
        if subagent.trajectory_id is None:
            yield f"embedded trajectory {i} has no trajectory_id"
        elif subagent.trajectory_id in seen:
            yield f"embedded trajectory {i} repeats the trajectory_id {subagent.trajectory_id!r}"
        else:
            seen.add(subagent.trajectory_id)
        yield from (f"embedded trajectory {i}: {problem}" for problem in _trajectory(subagent))


def _unknown(where: str, model: AtifModel) -> Iterator[str]:
    extra: dict[str, Any] = model.model_extra or {}
    yield from (f"{where} has an unknown field {key!r}: what is one's own goes under extra" for key in extra)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
