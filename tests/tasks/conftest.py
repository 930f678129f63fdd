"""A started sandbox, and a way to make task directories."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tasks.sandbox.base import SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox, SandboxSpec


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[NamespaceSandbox]:
    async with NamespaceSandbox(SandboxSpec("test"), SandboxLimits(command_timeout_s=10)) as started:
        yield started
