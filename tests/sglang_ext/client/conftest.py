from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sglang_ext.client import BranchClient
from tests.sglang_ext.client.fake_engine import URL, FakeEngine


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[BranchClient]:
    async with httpx.AsyncClient(base_url=URL, transport=engine.wire, timeout=7) as http:
        client = BranchClient(http)
        yield client
        await client.aclose()
