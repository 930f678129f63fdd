from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from obsspec.config import Config
from sglang_ext.plugin import missing_targets
from sglang_ext.routes import REASON, add_routes


@pytest.fixture
async def client():
    app = FastAPI()
    add_routes(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        yield client


async def test_it_says_that_branches_are_unsupported_and_why(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/branch")).json()
    assert answer["supported"] is False
    assert answer["reason"] == REASON
    assert answer["branches"] == []


async def test_it_refuses_to_open_a_branch_with_the_reason(client: httpx.AsyncClient) -> None:
    answer = await client.post("/branch/open", json={"parent": [1], "candidates": [[2]]})
    assert (answer.status_code, answer.json()) == (501, {"error": REASON})


def test_the_hook_check_names_what_is_not_there() -> None:
    assert missing_targets(["os.path.join", "os.path.no_such", "no_such_module.f", "os.sep"]) == [
        "os.path.no_such",
        "no_such_module.f",
        "os.sep",
    ]


@pytest.mark.engine
@pytest.mark.parametrize("role", ["policy", "world_model"])
def test_a_real_server_has_the_routes(engines: Config, role: str) -> None:
    url = getattr(engines.engines, role).url
    answer = httpx.get(f"{url}/branch").json()
    assert answer["supported"] is False
    assert answer["sglang"] == "0.5.14"
    assert httpx.post(f"{url}/branch/open", json={}).status_code == 501


@pytest.mark.engine
def test_a_real_server_still_generates(engines: Config) -> None:
    body = {
        "input_ids": [5, 6, 7],
        "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True},
        "return_logprob": True,
    }
    answers = [
        httpx.post(f"{engines.engine('policy').url}/generate", json=body, timeout=60).json() for _ in range(2)
    ]
    assert len(answers[0]["output_ids"]) == 8
    assert answers[0]["output_ids"] == answers[1]["output_ids"]
    assert len(answers[0]["meta_info"]["output_token_logprobs"]) == 8
