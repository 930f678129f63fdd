"""The agent's two tools, and the text form of an action.

An action is a sentence of thought and one tool call:

    I look at the files.
    <tool_call>
    {"name": "bash", "arguments": {"command": "ls"}}
    </tool_call>

`parse_action` accepts that and nothing ambiguous; `render_action` is its inverse. A text that does not
parse gives a `ParseError` whose message the model reads in place of an observation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tasks.sandbox.base import UNREADABLE

OPEN, CLOSE = "<tool_call>", "</tool_call>"
LARGEST_TIMEOUT_S = 3600.0

BASH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command in a persistent bash shell.",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command."},
                "timeout": {"type": "number", "description": "Limit in seconds."},
            },
            "required": ["command"],
        },
    },
}
DONE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "done",
        "description": "Say that the task is solved.",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = [BASH, DONE]
"""In the order in which the chat template shows them."""

SYSTEM = (
    "You solve tasks in a Linux shell. Answer with one short sentence and one tool call. "
    "Call done when the task is solved."
)
"""System text of every rollout."""


@dataclass(frozen=True)
class ToolCall:
    """A parsed action. `command` is None exactly when `name` is `done`."""

    name: Literal["bash", "done"]
    thought: str = ""
    command: str | None = None
    timeout_s: float | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """As the model gave them."""
        given = {"command": self.command, "timeout": self.timeout_s}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True)
class ParseError:
    """Why an action is no tool call, in one sentence for the model."""

    message: str

    def __str__(self) -> str:
        return self.message


class _Bad(ValueError):
    """What is wrong with a text, on its way up to `parse_action`."""


def parse_action(text: str) -> ToolCall | ParseError:
    """Read an action's text (without the end-of-turn token)."""
    try:
        return _parse(text)
    except _Bad as bad:
        return ParseError(f"Error: {bad}")


def render_action(thought: str, command: str | None) -> str:
    """The text of an action; `command=None` calls `done`. Raises ValueError if it would not parse back."""
    arguments = {} if command is None else {"command": command}
    call = json.dumps(
        {"name": "done" if command is None else "bash", "arguments": arguments}, ensure_ascii=False
    )
    text = f"{thought}\n{OPEN}\n{call}\n{CLOSE}"
    parsed = parse_action(text)
    if isinstance(parsed, ParseError):
        raise ValueError(f"this action cannot be written: {parsed.message}")
    if (parsed.thought, parsed.command) != (thought, command):
        raise ValueError(f"a thought must not start or end with white space: {thought!r}")
    return text


def _parse(text: str) -> ToolCall:
    thought, tag, rest = text.partition(OPEN)
    if not tag:
        raise _Bad(f'no tool call found; end with {OPEN}\\n{{"name": ..., "arguments": {{...}}}}\\n{CLOSE}.')
    name, arguments = _read_call(rest)
    if name == "done":
        if arguments:
            raise _Bad(f"done takes no arguments, found {_names(arguments)}.")
        return ToolCall("done", thought.strip())
    if name != "bash":
        raise _Bad(f"unknown tool {_short(name)}; the tools are bash and done.")
    if unknown := set(arguments) - {"command", "timeout"}:
        raise _Bad(f"bash takes command and timeout, found {_names(unknown)}.")
    return ToolCall("bash", thought.strip(), _command(arguments), _timeout(arguments))


def _read_call(rest: str) -> tuple[Any, dict[str, Any]]:
    """The name and arguments of the one call that `rest`, the text after the opening tag, holds."""
    start = len(rest) - len(rest.lstrip())
    try:
        call, end = _DECODER.raw_decode(rest, start)
    except RecursionError:
        raise _Bad("the tool call is nested too deeply.") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(":")[0]
        raise _Bad(f"the tool call is not valid JSON ({reason}).") from None
    closing, tag, after = rest[end:].partition(CLOSE)
    if not tag and not closing.strip():
        raise _Bad(f"the tool call is not closed by {CLOSE}.")
    if closing.strip():
        raise _Bad("there is more than one JSON object in the tool call.")
    if OPEN in after:
        raise _Bad("only one tool call is allowed in an action.")
    if after.strip():
        raise _Bad("there must be no text after the tool call.")
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        raise _Bad("the tool call must be an object with the keys name and arguments.")
    if not isinstance(call["arguments"], dict):
        raise _Bad("arguments must be an object.")
    return call["name"], call["arguments"]


def _command(arguments: dict[str, Any]) -> str:
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip():
        raise _Bad("bash needs command, a string that is not empty.")
    if UNREADABLE.search(command):
        raise _Bad("command contains a character that no shell can read (NUL or a lone surrogate).")
    return command


def _timeout(arguments: dict[str, Any]) -> float | None:
    if "timeout" not in arguments:
        return None
    timeout = arguments["timeout"]
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not 0 < timeout <= LARGEST_TIMEOUT_S
    ):
        raise _Bad(f"timeout must be a number of seconds above 0 and at most {LARGEST_TIMEOUT_S:.0f}.")
    return float(timeout)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a key appears twice")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _names(keys: Any) -> str:
    return ", ".join(sorted(_short(key) for key in keys))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."
