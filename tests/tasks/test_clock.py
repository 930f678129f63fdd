"""A fixed clock: every program starts at the configured moment."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tasks.sandbox import clock
from tasks.sandbox.base import SandboxError
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.skipif(
    not list(Path("/usr/lib").glob("**/faketime/libfaketime.so.1")), reason="libfaketime is not installed"
)
START = datetime(2026, 1, 1)


async def test_every_program_starts_at_the_same_moment() -> None:
    async with NamespaceSandbox(SandboxSpec(clock=START)) as sandbox:
        dates = [(await sandbox.exec("sleep 1.1; date -u +%FT%T; date -u +%s")).stdout for _ in range(2)]
        assert dates == [b"2026-01-01T00:00:00\n1767225600\n"] * 2


async def test_the_verifier_and_other_programs_have_the_same_clock() -> None:
    async with NamespaceSandbox(SandboxSpec(clock=START)) as sandbox:
        result = await sandbox.run(["date", "-u", "+%F"], 5, user="root")
        assert result.stdout == b"2026-01-01\n"


async def test_an_image_without_the_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_FIND", "true")
    with pytest.raises(SandboxError, match=r"fixed clock \(sandbox.clock\) needs libfaketime"):
        await NamespaceSandbox(SandboxSpec(clock=START)).start()
