"""Hooks on SGLang, checked against the installed version before any is registered.

SGLang only logs a hook that does not fit and then runs as a stock engine, so whoever registers hooks
calls `check` first and says what it found.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple


class Hook(NamedTuple):
    """A function of ours around one of SGLang's."""

    target: str
    """Dotted name of a function or a method."""
    parameters: tuple[str, ...]
    """Names of the target's parameters, as `inspect.signature` gives them: a method's begin with self, a
    class method's do not name the class."""
    function: Callable[..., Any]
    """Called with the target's arguments, a class method's class among them. `before`: what it returns
    replaces (args, kwargs). `after`: takes the result first, and what it returns replaces the result.
    `around`: takes the original first. None from `before` and `after` replaces nothing."""
    kind: Literal["before", "after", "around"]


def check(hooks: Iterable[Hook]) -> list[str]:
    """One sentence for each target that is missing, or whose parameters are not those that we know."""
    return [problem for hook in hooks if (problem := _problem(hook))]


def register(hooks: Iterable[Hook]) -> None:
    """Hand them to SGLang, which applies them when every plugin of the process is loaded."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for hook in hooks:
        HookRegistry.register(hook.target, hook.function, HookType(hook.kind))


def _problem(hook: Hook) -> str | None:
    sglang = f"SGLang {importlib.metadata.version('sglang')}"
    try:
        target = pkgutil.resolve_name(hook.target)
    except (ImportError, AttributeError):
        return f"{sglang} has no {hook.target}"
    if not callable(target):
        return f"{hook.target} of {sglang} cannot be called"
    parameters = tuple(inspect.signature(target).parameters)
    if parameters == hook.parameters:
        return None
    return f"{hook.target} of {sglang} takes {_names(parameters)}, not {_names(hook.parameters)}"


def _names(parameters: tuple[str, ...]) -> str:
    return f"({', '.join(parameters)})"
