"""The plugin as SGLang loads it: every hook fits or none is used, and the engines that cannot say why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sglang_ext import hooks, plugin
from sglang_ext.compat import engines, server, tree
from sglang_ext.hooks import Hook


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[Hook]:
    """Hooks that `register` hands to SGLang, which here never sees them."""
    taken: list[Hook] = []
    monkeypatch.setattr(hooks, "register", taken.extend)
    monkeypatch.setattr(server, "_refused", None)
    return taken


def test_every_hook_fits_the_installed_sglang(registered: list[Hook]) -> None:
    assert hooks.check(plugin.HOOKS) == []
    plugin.register()
    assert registered == list(plugin.HOOKS)
    assert server._refused is None


def test_where_one_hook_does_not_fit_none_is_used_and_the_routes_say_why(
    registered: list[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Hook("sglang.srt.managers.scheduler.Scheduler.no_such_method", (), print, "before")
    monkeypatch.setattr(plugin, "HOOKS", (*plugin.HOOKS, odd))
    plugin.register()
    assert registered == list(server.HOOKS[:1]), "only the one that adds the routes"
    assert server._refused is not None
    assert "no_such_method" in server._refused


def test_another_version_of_sglang_is_refused(
    registered: list[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "VERSION", "0.5.23")
    plugin.register()
    assert registered == list(server.HOOKS[:1])
    assert "knows SGLang 0.5.23" in str(server._refused)


def test_a_setting_that_is_no_number_is_refused(
    registered: list[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBSSPEC_BRANCH_BUDGET", "much")
    plugin.register()
    assert "OBSSPEC_BRANCH_BUDGET must be a positive number, not 'much'" in str(server._refused)


PLAIN: dict[str, Any] = {
    "disable_radix_cache": False,
    "tokenizer_worker_num": 1,
    "dp_size": 1,
    "pp_size": 1,
    "speculative_algorithm": None,
    "disaggregation_mode": "null",
    "enable_hierarchical_cache": False,
    "enable_streaming_session": False,
    "dllm_algorithm": None,
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"disable_radix_cache": True}, "--disable-radix-cache"),
        ({"tokenizer_worker_num": 2}, "HTTP workers"),
        ({"dp_size": 2}, "data-parallel"),
        ({"pp_size": 2}, "pipeline"),
        ({"speculative_algorithm": "EAGLE"}, "speculative decoding"),
        ({"disaggregation_mode": "prefill"}, "different engines"),
        ({"enable_hierarchical_cache": True}, "hierarchical"),
        ({"enable_streaming_session": True}, "sessions"),
        ({"dllm_algorithm": "LowConfidence"}, "diffusion"),
    ],
)
def test_engines_that_cannot_hold_branches_say_why(change: dict[str, Any], says: str | None) -> None:
    reason = engines.refusal(SimpleNamespace(**PLAIN | change))
    assert (reason is None) if says is None else says in str(reason)


def test_these_are_arguments_of_the_installed_sglang() -> None:
    from dataclasses import fields

    from sglang.srt.server_args import ServerArgs

    assert PLAIN.keys() <= {field.name for field in fields(ServerArgs)}


def test_only_the_plain_radix_cache_is_taken() -> None:
    from sglang.srt.mem_cache.radix_cache import RadixCache

    class Another(RadixCache):
        pass

    assert tree.refusal(RadixCache.create_simulated()) is None
    assert tree.refusal(RadixCache.create_simulated(disable=True)) == "the radix cache is off"
    assert "Another" in str(tree.refusal(Another.__new__(Another)))
