"""The objects of an ATIF document, versions 1.0 to 1.8.

An object keeps what it was made of: fields that nobody here knows, the difference between an absent field
and a null one, the order of its keys, integers as integers, and text that is no valid Unicode. A type that
does not fit is refused; everything else that the format asks for is checked by `tasks.atif.problems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    InstanceOf,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    Strict,
    Tag,
    model_serializer,
    model_validator,
)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("should be a number")
    return value


def _content_kind(value: Any) -> str | None:
    return "(text)" if isinstance(value, str) else "(parts)" if isinstance(value, list) else None


def _effort_kind(value: Any) -> str:
    return "(text)" if isinstance(value, str) else "(number)"


# Pydantic's own `str` refuses lone surrogates, which files hold where a tool printed broken UTF-8, and its
# `float` turns an integer into a float; neither would be written as it was read.
Text = InstanceOf[str]
Integer = Annotated[int, Strict()]
Number = Annotated[int | float, PlainValidator(_number)]
Flag = Annotated[bool, Strict()]
Object = InstanceOf[dict[str, Any]]
Source = Literal["system", "user", "agent"]


class AtifModel(BaseModel):
    """An object of the document; `as_json` and pydantic's dumps give it back as it was made."""

    model_config = ConfigDict(frozen=True, extra="allow")

    _keys: tuple[str, ...] = PrivateAttr(())
    """The keys it was made of, in their order."""

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        model = handler(data)
        if isinstance(data, Mapping):
            model._keys = tuple(data)
        return model

    @model_serializer(mode="plain")
    def as_json(self) -> dict[str, Any]:
        """The object as JSON: only the fields that are set, in the order in which they were given."""
        values = {**self.__dict__, **(self.model_extra or {})}
        keys = dict.fromkeys((*self._keys, *values))
        return {key: _plain(values[key]) for key in keys if key in self.model_fields_set}


def _plain(value: Any) -> Any:
    if isinstance(value, AtifModel):
        return value.as_json()
    if isinstance(value, list) and value and isinstance(value[0], AtifModel):
        return [_plain(item) for item in value]
    return value


class MediaSource(AtifModel):
    """Where an image or a recording is."""

    media_type: Text
    path: Text
    """A file, relative to the document, or a URL."""
    duration_sec: Number | None = None


class ContentPart(AtifModel):
    """A piece of a message that is more than text."""

    type: Text
    """`text`, `image` or `audio`."""
    text: Text | None = None
    source: MediaSource | None = None


Content = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[list[ContentPart], Tag("(parts)")],
    Discriminator(
        _content_kind,
        custom_error_type="content",
        custom_error_message="should be a string or a list of content parts",
    ),
]


class ToolCall(AtifModel):
    tool_call_id: Text
    """What the results of this step refer to."""
    function_name: Text
    arguments: Object
    extra: Object | None = None


class SubagentRef(AtifModel):
    """Where the trajectory of an agent is that this one called."""

    trajectory_id: Text | None = None
    """Of an embedded one, from version 1.7 on."""
    trajectory_path: Text | None = None
    session_id: Text | None = None
    """Identified it up to version 1.6."""
    extra: Object | None = None


class ObservationResult(AtifModel):
    source_call_id: Text | None = None
    """The tool call of the same step that it answers; null where no tool call caused it."""
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Object | None = None


class Observation(AtifModel):
    results: list[ObservationResult]


class Metrics(AtifModel):
    """What one inference cost, with its tokens where they are known."""

    prompt_tokens: Integer | None = None
    """All tokens of the prompt, those in a cache included."""
    completion_tokens: Integer | None = None
    cached_tokens: Integer | None = None
    """Those of `prompt_tokens` that came from a cache."""
    cost_usd: Number | None = None
    prompt_token_ids: list[Integer] | None = None
    completion_token_ids: list[Integer] | None = None
    logprobs: list[Number] | None = None
    """One a token of the completion, in nats."""
    extra: Object | None = None


class Step(AtifModel):
    """A system text, a user's message, or one turn of the agent with what its tools answered."""

    step_id: Integer
    """From 1."""
    timestamp: Text | None = None
    """ISO 8601."""
    source: Source
    model_name: Text | None = None
    reasoning_effort: (
        Annotated[
            Annotated[Text, Tag("(text)")] | Annotated[Number, Tag("(number)")], Discriminator(_effort_kind)
        ]
        | None
    ) = None
    message: Content
    reasoning_content: Text | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: Integer | None = None
    """Inferences that the step stands for; 0: none."""
    is_copied_context: Flag | None = None
    """Repeated from an earlier trajectory: nothing to train on."""
    extra: Object | None = None


class Agent(AtifModel):
    name: Text
    version: Text
    model_name: Text | None = None
    tool_definitions: list[Object] | None = None
    extra: Object | None = None


class FinalMetrics(AtifModel):
    """Sums over the steps."""

    total_prompt_tokens: Integer | None = None
    total_completion_tokens: Integer | None = None
    total_cached_tokens: Integer | None = None
    total_cost_usd: Number | None = None
    total_steps: Integer | None = None
    extra: Object | None = None


class Trajectory(AtifModel):
    """An ATIF document."""

    schema_version: Text
    """As `ATIF-v1.6`."""
    session_id: Text | None = None
    """Of the agent's run; required up to version 1.6."""
    trajectory_id: Text | None = None
    """Of this document; required of an embedded one."""
    agent: Agent
    steps: list[Step]
    notes: Text | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: Text | None = None
    """The file in which it goes on."""
    subagent_trajectories: list[Trajectory] | None = None
    extra: Object | None = None
