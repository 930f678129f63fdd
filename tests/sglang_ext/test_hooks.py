from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from sglang.srt.plugins.hook_registry import HookRegistry

from sglang_ext import hooks, linears, sampling
from sglang_ext.hooks import Hook

PREFIX = "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo"


class Target:
    def method(self, value: int) -> int:
        return value

    @classmethod
    def made(cls, value: int) -> tuple[type, int]:
        return cls, value


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module with a class to hook; SGLang's registry is as before afterwards."""
    made = ModuleType("hook_targets")
    made.Target = type("Target", (), dict(vars(Target)))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    saved = dict(HookRegistry._hooks), set(HookRegistry._patched)
    HookRegistry.reset()
    yield made.__name__
    HookRegistry.reset()
    HookRegistry._hooks.update(saved[0])
    HookRegistry._patched.update(saved[1])


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


@pytest.mark.parametrize("hook", {*sampling.HOOKS, *linears.HOOKS}, ids=lambda hook: hook.target)
def test_the_installed_sglang_has_every_target(hook: Hook) -> None:
    assert hooks.check([hook]) == []


def test_a_target_that_is_missing_is_named() -> None:
    problems = hooks.check(
        [
            Hook("sglang.srt.no_such_module.f", (), _nothing, "before"),
            Hook(f"{PREFIX}.no_such_method", ("self",), _nothing, "after"),
            Hook(f"{PREFIX}.__len__", ("self",), _nothing, "after"),
        ]
    )
    assert problems == [
        "SGLang 0.5.14 has no sglang.srt.no_such_module.f",
        f"SGLang 0.5.14 has no {PREFIX}.no_such_method",
    ]


def test_another_signature_is_named_with_both() -> None:
    hook = Hook(f"{PREFIX}.merge_batch", ("self", "other", "more"), _nothing, "after")
    assert hooks.check([hook]) == [
        f"{PREFIX}.merge_batch of SGLang 0.5.14 takes (self, other), not (self, other, more)"
    ]


def test_what_cannot_be_called_is_no_target() -> None:
    (problem,) = hooks.check([Hook("sglang.srt.plugins.logger", (), _nothing, "after")])
    assert problem == "sglang.srt.plugins.logger of SGLang 0.5.14 cannot be called"


def test_hooks_run_before_after_and_around(module: str) -> None:
    hooks.register(
        [
            Hook(f"{module}.Target.method", (), lambda self, value: ((self, value + 1), {}), "before"),
            Hook(f"{module}.Target.method", (), lambda result, self, value: result * 10, "after"),
            Hook(
                f"{module}.Target.method",
                (),
                lambda original, self, value: original(self, value) + 0.5,
                "around",
            ),
        ]
    )
    HookRegistry.apply_hooks()
    assert sys.modules[module].Target().method(1) == 20.5


def test_a_hook_on_a_class_method_gets_the_class_and_the_check_still_holds(module: str) -> None:
    seen = []
    hook = Hook(f"{module}.Target.made", ("value",), lambda *args: seen.append(args), "after")
    assert hooks.check([hook]) == []
    hooks.register([hook])
    HookRegistry.apply_hooks()
    target = sys.modules[module].Target
    derived = type("Derived", (target,), {})
    assert derived.made(3) == (derived, 3)
    assert seen == [((derived, 3), derived, 3)]
    assert hooks.check([hook]) == []
