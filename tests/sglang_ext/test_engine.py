"""Branches in a real SGLang server: a small pool, four slots, a key, and SGLang's leak checks on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sglang_ext.client import BranchClient, BranchEnded, OverBudget, Unavailable
from tests.sglang_ext.engines import running

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]
POOL, SLOTS = 3000, 4
PARENT = [7 + i % 900 for i in range(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(
    model_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    async with running(
        model_folders["policy"],
        tmp_path_factory.mktemp("engine"),
        max_total_tokens=POOL,
        max_running_requests=SLOTS,
        branches={"budget": 0.9, "grace_s": 30},
        extra_args=["--enable-metrics", "--chunked-prefill-size", "256"],
    ) as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def client(http: httpx.AsyncClient) -> AsyncIterator[BranchClient]:
    """A client in front of an empty cache, which must be empty again afterwards but for what is evictable."""
    assert (await http.post("/flush_cache")).status_code == 200
    client = BranchClient(http)
    yield client
    await client.aclose()
    left = await client.drop_all()
    assert left.memory is not None
    assert left.memory.protected == 0
    assert left.memory.available + left.memory.evictable == POOL
    assert (await http.get("/health_generate")).status_code == 200


def params(tokens: int, seed: int = 11, **more: Any) -> dict[str, Any]:
    return {"max_new_tokens": tokens, "temperature": 1.0, "sampling_seed": seed, "ignore_eos": True} | more


async def generate(http: httpx.AsyncClient, ids: list[int], sampling: dict[str, Any]) -> list[int]:
    answer = await http.post("/generate", json={"input_ids": ids, "sampling_params": sampling})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["output_ids"])


async def committed(branch: Any) -> list[int]:
    return [token async for chunk in branch.commit() for token in chunk.token_ids]


async def held(branch: Any) -> None:
    async for _ in branch.stream():
        pass


async def free(client: BranchClient) -> int:
    memory = (await client.drop_all()).memory
    assert memory is not None
    return memory.available


async def test_it_says_what_it_can(client: BranchClient) -> None:
    can = await client.capabilities()
    assert can.supported
    assert can.seeds
    assert can.reason is None
    assert can.budget_tokens == int(0.9 * POOL)


async def test_the_routes_ask_for_the_key_of_the_engine(http: httpx.AsyncClient) -> None:
    for method, path in (("GET", "/branch"), ("POST", "/branch/open"), ("POST", "/branch/drop_all")):
        answer = await http.request(method, path, headers={"Authorization": "Bearer wrong"})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    "sampling", [params(24), params(24, temperature=0.0), params(24, top_p=0.9, top_k=20)]
)
async def test_a_branch_has_the_tokens_of_the_sequential_run(
    http: httpx.AsyncClient, client: BranchClient, sampling: dict[str, Any]
) -> None:
    await generate(http, PARENT, params(1))
    candidates = [[20, 21, 22], [20, 21, 30, 31], [40]]
    branches = await client.open(PARENT, candidates, sampling)
    tokens = [await committed(branch) for branch in branches]
    assert tokens == [await generate(http, PARENT + candidate, sampling) for candidate in candidates]


async def test_a_commit_at_any_moment_gives_the_same_tokens(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    expected = await generate(http, [*PARENT, 20], params(40))
    queued, running, finished = [(await client.open(PARENT, [[20]], params(40)))[0] for _ in range(3)]
    assert await committed(queued) == expected
    await anext(running.stream())
    assert await committed(running) == expected
    await held(finished)
    assert await committed(finished) == expected
    assert all(branch.lost is None for branch in (queued, running, finished))


async def test_the_next_turn_finds_the_committed_prefix(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    (branch,) = await client.open(PARENT, [[20] * 50], params(60))
    await held(branch)
    tokens = await committed(branch)
    turn = {"input_ids": [*PARENT, *[20] * 50, *tokens, 60, 61], "sampling_params": params(1)}
    answer = (await http.post("/generate", json=turn)).json()
    # The last token has KV only where the scheduler computes a step ahead.
    assert answer["meta_info"]["cached_tokens"] in (300 + 50 + 59, 300 + 50 + 60)


async def test_a_branch_can_be_extended(http: httpx.AsyncClient, client: BranchClient) -> None:
    (branch,) = await client.open(PARENT, [[20, 21]], params(16))
    await held(branch)
    (child,) = await client.open(branch, [[30, 31]], params(16, seed=5))
    first, second = await committed(branch), await committed(child)
    assert second == await generate(http, [*PARENT, 20, 21, *first, 30, 31], params(16, seed=5))


async def test_two_hundred_branches_leave_the_pool_as_it_was(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    await generate(http, PARENT, params(1))
    before = await free(client)
    for number in range(100):
        one, two = await client.open(PARENT, [[20, number + 5], [21, number + 5]], params(3))
        if number % 2:
            await held(one)
        await asyncio.gather(one.drop(), two.drop())
    assert await free(client) == before


async def test_an_ordinary_request_takes_the_slot_of_a_branch(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    expected = [await generate(http, [*PARENT, 20 + i], params(400, seed=i)) for i in range(SLOTS)]
    branches = [(await client.open(PARENT, [[20 + i]], params(400, seed=i)))[0] for i in range(SLOTS)]
    for branch in branches:
        await anext(branch.stream())
    await generate(http, [*PARENT, 90], params(4))
    states = [b.state for b in (await client.capabilities()).branches]
    assert len(states) >= SLOTS - 1, "only as many are given up as are needed"
    tokens = await asyncio.gather(*map(committed, branches))
    assert list(tokens) == expected
    assert branches[-1].lost is not None, "the newest was given up, and its tokens came all the same"


async def test_branches_wait_behind_ordinary_requests(http: httpx.AsyncClient, client: BranchClient) -> None:
    ordinary = [asyncio.create_task(generate(http, [*PARENT, 50 + i], params(60))) for i in range(2 * SLOTS)]
    await asyncio.sleep(0)
    (branch,) = await client.open(PARENT, [[20]], params(4))
    finished: list[str] = []
    for i, task in enumerate(ordinary):
        task.add_done_callback(lambda _, i=i: finished.append(f"ordinary {i}"))
    await asyncio.gather(*ordinary)
    await held(branch)
    assert len(finished) == 2 * SLOTS


async def test_an_ordinary_request_takes_the_kv_of_branches(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    """Held branches fill the pool; a request that needs most of it is served, and no tokens are lost."""
    expected = [await generate(http, [*PARENT, 20 + i], params(400, seed=i)) for i in range(5)]
    assert (await http.post("/flush_cache")).status_code == 200
    branches = [(await client.open(PARENT, [[20 + i]], params(400, seed=i)))[0] for i in range(5)]
    await asyncio.gather(*map(held, branches))
    prompt = [900 - i % 800 for i in range(1800)]
    answer = await generate(http, prompt, params(8))
    assert len(answer) == 8
    assert len((await client.capabilities()).branches) == 5, "they are still open"
    assert list(await asyncio.gather(*map(committed, branches))) == expected


async def test_decoding_requests_take_the_kv_of_running_branches(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    """Branches reserve nothing: they are given up when an ordinary request's own tokens need the room."""
    expected = await generate(http, [*PARENT, 20], params(900))
    assert (await http.post("/flush_cache")).status_code == 200
    branches = [(await client.open(PARENT, [[40 + i]], params(700)))[0] for i in range(3)]
    for branch in branches:
        await anext(branch.stream())
    assert await generate(http, [*PARENT, 20], params(900)) == expected
    assert all(len(tokens) == 700 for tokens in [await committed(branch) for branch in branches])


async def test_a_branch_that_waits_in_vain_closes_no_door(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    held_ones = await client.open(PARENT, [[20 + i] * 400 for i in range(5)], params(40))
    await asyncio.gather(*map(held, held_ones))
    other = [900 - i % 800 for i in range(1500)]
    (waiting,) = await client.open(other, [[20]], params(4))
    assert (await waiting.drop()).tokens == 0, "there was no room for it"
    (waiting,) = await client.open(other, [[20]], params(4))
    await asyncio.gather(*(branch.drop() for branch in held_ones))
    await held(waiting)
    await waiting.drop()
    assert len(await generate(http, other, params(4))) == 4


async def test_a_branch_in_chunked_prefill_yields(http: httpx.AsyncClient, client: BranchClient) -> None:
    candidate = [5 + i % 800 for i in range(1200)]
    (branch,) = await client.open(PARENT, [candidate], params(8))
    assert len(await generate(http, [*PARENT, 20], params(4))) == 4
    tokens = await committed(branch)
    assert tokens == await generate(http, PARENT + candidate, params(8))


async def test_the_budget_is_kept(client: BranchClient) -> None:
    first = await client.open(PARENT, [[20], [21]], params(1000))
    with pytest.raises(OverBudget, match="2002 of 2700 tokens"):
        await client.open(PARENT, [[22]], params(1000))
    await asyncio.gather(*(branch.drop() for branch in first))
    await client.open(PARENT, [[22]], params(1000))


async def test_a_forgotten_branch_expires(client: BranchClient) -> None:
    before = await free(client)
    (branch,) = await client.open(PARENT, [[20]], params(1000), ttl_s=0.3)
    with pytest.raises(BranchEnded, match="expired"):
        await held(branch)
    assert abs(before - await free(client)) <= len(PARENT), "but for the parent, which is anybody's"


@pytest.mark.parametrize("state", ["running", "held"])
@pytest.mark.parametrize("event", ["weights", "flush", "pause", "abort", "drop_all"])
async def test_nothing_survives_what_ends_all(
    http: httpx.AsyncClient, client: BranchClient, model_folders: dict[str, Path], event: str, state: str
) -> None:
    (branch,) = await client.open(PARENT, [[20]], params(1000 if state == "running" else 4))
    await (anext(branch.stream()) if state == "running" else held(branch))
    if event == "weights":
        body = {"model_path": str(model_folders["policy"])}
        answer = await http.post("/update_weights_from_disk", json=body)
        assert answer.json()["success"], answer.text
    if event == "flush":
        assert (await http.post("/flush_cache")).status_code == 200
    if event == "pause":
        await http.post("/pause_generation", json={"mode": "in_place"})
        with pytest.raises(Unavailable, match="paused"):
            await client.open(PARENT, [[20]], params(4))
        await http.post("/continue_generation", json={})
    if event == "abort":
        await http.post("/abort_request", json={"abort_all": True})
        while (await client.capabilities()).branches:  # it answers before it is done
            pass
    if event == "drop_all":
        assert (await client.drop_all()).branches == 1
    with pytest.raises(BranchEnded):
        await branch.drop()
    assert (await client.capabilities()).branches == ()


@pytest.mark.parametrize("how", ["commit and leave", "abort", "drop", "weights"])
async def test_a_queued_branch_that_is_ended_leaves_nothing(
    http: httpx.AsyncClient, client: BranchClient, model_folders: dict[str, Path], how: str
) -> None:
    """The slots are taken by ordinary requests; `client` checks that nothing is locked in the end."""
    body: dict[str, Any] = {"input_ids": PARENT, "sampling_params": params(300), "stream": True}
    async with AsyncExitStack() as stack:
        for _ in range(SLOTS):
            response = await stack.enter_async_context(http.stream("POST", "/generate", json=body))
            chunks = await stack.enter_async_context(aclosing(response.aiter_bytes()))
            await anext(chunks)
        (branch,) = await client.open(PARENT, [[20]], params(4))
        assert [b.state for b in (await client.capabilities()).branches] == ["queued"]
        if how == "commit and leave":
            reading = asyncio.create_task(committed(branch))
            while (await client.capabilities()).branches:
                pass
            reading.cancel()
            await asyncio.wait({reading})
            await client.aclose()
        if how == "abort":
            await http.post("/abort_request", json={"abort_all": True})
            while (await client.capabilities()).branches:
                pass
        if how == "drop":
            assert (await branch.drop()).tokens == 0
        if how == "weights":
            body = {"model_path": str(model_folders["policy"]), "abort_all_requests": True}
            assert (await http.post("/update_weights_from_disk", json=body)).json()["success"]
            with pytest.raises(BranchEnded):
                await branch.drop()
    while (memory := (await client.drop_all()).memory) and memory.protected:
        pass  # the ordinary requests end when their readers' leaving is noticed


async def test_no_request_can_pass_for_a_branch(http: httpx.AsyncClient, client: BranchClient) -> None:
    (branch,) = await client.open(PARENT, [[20]], params(500))
    for rid in (branch.id, "obsspec-branch-00000000-0000000000000000", ["obsspec-branch-x"], "obs"):
        ids = [PARENT] if isinstance(rid, list) else PARENT
        body = {"rid": rid, "input_ids": ids, "sampling_params": params(2)}
        answer = await http.post("/generate", json=body)
        assert answer.status_code == 400
        assert "belong to branches" in answer.text


async def test_a_client_that_leaves_a_commit_ends_the_request(client: BranchClient) -> None:
    (branch,) = await client.open(PARENT, [[20]], params(1500))
    chunks = branch.commit()
    await anext(chunks)
    await chunks.aclose()
    await client.aclose()
    deadline = time.monotonic() + 20
    while (memory := (await client.drop_all()).memory) and memory.protected:
        assert time.monotonic() < deadline, "the request runs on"
        await asyncio.sleep(0.05)


async def test_a_listener_that_leaves_does_not_end_the_branch(
    http: httpx.AsyncClient, client: BranchClient
) -> None:
    (branch,) = await client.open(PARENT, [[20]], params(60))
    stream = branch.stream()
    await anext(stream)
    await stream.aclose()
    assert await committed(branch) == await generate(http, [*PARENT, 20], params(60))


async def test_bad_input_leaves_the_engine_alone(http: httpx.AsyncClient, client: BranchClient) -> None:
    for body in (
        {"parent": [10**9], "candidates": [[1]], "sampling_params": params(4)},
        {"parent": [1] * 1000, "candidates": [[1]], "sampling_params": params(1500)},
        {"parent": [1] * 5000, "candidates": [[1]], "sampling_params": params(4)},
        {"parent": [1], "candidates": [[1]], "sampling_params": params(4, temperature=-1)},
        {"parent": [1], "candidates": [[1]], "sampling_params": params(4, sampling_seed=-1)},
        {"parent": [1], "candidates": [[1]], "sampling_params": params(4, nonsense=1)},
    ):
        answer = await http.post("/branch/open", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid"), answer.text


async def test_metrics_count_branches(http: httpx.AsyncClient, client: BranchClient) -> None:
    (branch,) = await client.open(PARENT, [[20]], params(4))
    await committed(branch)
    text = (await http.get("/metrics/")).text
    assert "sglext:branch_opened_total" in text
    assert 'sglext:branch_ended_total{how="committed"' in text
