"""A started sandbox, and a way to make task directories."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from hypothesis import settings

from tasks.sandbox.base import SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox, SandboxSpec

settings.register_profile("tasks", deadline=None, derandomize=True)
settings.load_profile("tasks")


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[NamespaceSandbox]:
    async with NamespaceSandbox(SandboxSpec("test"), SandboxLimits(command_timeout_s=10)) as started:
        yield started
