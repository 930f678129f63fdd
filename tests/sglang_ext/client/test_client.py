from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest

from sglang_ext.client import (
    BranchClient,
    BranchEnded,
    BranchError,
    Chunk,
    ConnectionLost,
    InvalidRequest,
    Memory,
    OverBudget,
    Restarted,
    Unavailable,
    UnknownBranch,
    Unsupported,
)
from sglang_ext.states import BranchState
from tests.sglang_ext.client.fake_engine import URL, FakeEngine, continuation, logprobs
from tests.sglang_ext.client.scene import (
    CANDIDATE,
    PARAMS,
    PARENT,
    WHOLE,
    assert_whole,
    end,
    opened,
    read,
    tokens,
)
from tests.sglang_ext.client.wire import Fault


async def test_it_says_what_the_engine_can_do(engine: FakeEngine, client: BranchClient) -> None:
    await opened(client)
    answer = await client.capabilities()
    assert (answer.supported, answer.reason, answer.seeds, answer.batch_invariant) == (
        True,
        None,
        True,
        False,
    )
    assert (answer.sglang, answer.epoch, answer.budget_tokens) == ("0.5.14", "0000aaaa", 4096)
    (info,) = answer.branches
    assert (info.state, info.tokens, info.age_s) == (BranchState.QUEUED, 0, 0.5)


async def test_one_branch_for_each_candidate_with_what_the_engine_needs(
    engine: FakeEngine, client: BranchClient
) -> None:
    branches = await client.open(
        PARENT, [[13], [21, 34]], PARAMS, ttl_s=9, extra_key="lora", return_logprob=False
    )
    assert engine.wire.bodies("POST /branch/open") == [
        {
            "parent": PARENT,
            "candidates": [[13], [21, 34]],
            "sampling_params": PARAMS,
            "ttl_s": 9,
            "extra_key": "lora",
            "return_logprob": False,
        }
    ]
    assert [branch.id for branch in branches] == list(engine.branches)
    assert [branch.ids() for branch in branches] == [[*PARENT, 13], [*PARENT, 21, 34]]
    assert branches[0]._received.of.parent is branches[1]._received.of.parent
    engine.make()
    assert (await read(branches[1].commit()))[0].logprobs is None


async def test_a_branch_can_be_read_as_it_stands(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make(3)
    output = await branch.read(since=1)
    assert (output.id, output.state, output.tokens, output.reason) == (
        branch.id,
        BranchState.RUNNING,
        3,
        None,
    )
    assert output.chunk == Chunk(tuple(WHOLE[1:3]), tuple(logprobs(WHOLE[1:3])), None, "v3")


async def test_a_listener_hears_buffered_tokens_then_live_ones_and_ends_nothing(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    engine.make(2)
    async with aclosing(branch.stream(since=1)) as chunks:
        assert (await anext(chunks)).token_ids == tuple(WHOLE[1:2])
        engine.make(1)
        assert (await anext(chunks)).token_ids == tuple(WHOLE[2:3])
    assert engine.states() == ["running"]
    assert engine.aborted == []


async def test_a_finished_branch_is_the_parent_of_others(engine: FakeEngine, client: BranchClient) -> None:
    parent = await opened(client, extra_key="lora")
    with pytest.raises(InvalidRequest, match=f"^the engine at {URL} extends a branch once it has finished"):
        await client.open(parent, [[34]], PARAMS)
    engine.make()
    (child,) = await client.open(parent, [[34]], PARAMS)
    assert engine.wire.bodies("POST /branch/open")[-1]["parent_branch"] == parent.id
    assert engine.wire.bodies("POST /branch/open")[-1]["extra_key"] == "lora"
    ids = [*PARENT, *CANDIDATE, *WHOLE, 34]
    assert child.ids() == ids
    engine.restart()
    assert tokens(await read(child.commit())) == continuation(ids, PARAMS)


async def test_a_drop_says_what_was_thrown_away_and_freed(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make(3)
    dropped = await branch.drop()
    assert (dropped.tokens, dropped.run_s, dropped.memory) == (3, None, Memory(1, 2, 3, 4))
    finished = await opened(client)
    engine.make()
    await finished.drop()
    assert finished.run_s == 1.5
    await client.open(PARENT, [[1], [2]], PARAMS)
    answer = await client.drop_all()
    assert (answer.branches, answer.memory) == (2, Memory(1, 2, 3, 4))


async def test_a_drop_whose_answer_is_lost_is_sent_again(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.wire.faults = [Fault("/drop")]
    assert (await branch.drop()).tokens is None
    assert engine.states() == ["dropped"]
    assert engine.wire.paths().count(f"POST /branch/{branch.id}/drop") == 2

    unreached = await opened(client)
    engine.make(3)
    engine.wire.faults = [Fault("/drop", reached=False)]
    assert (await unreached.drop()).tokens == 3


async def test_a_drop_of_a_branch_that_the_engine_has_ended_says_how(
    engine: FakeEngine, client: BranchClient
) -> None:
    for state in ("committed", "dropped", "expired", "lost"):
        branch = await opened(client)
        end(engine, state)
        with pytest.raises(BranchEnded, match=f"refused with status 409: it is {state}") as caught:
            await branch.drop()
        assert caught.value.state == state
    branch = await opened(client)
    engine.restart()
    with pytest.raises(Restarted):
        await branch.drop()


async def test_a_drop_needs_nobody_who_waits_for_it(engine: FakeEngine, client: BranchClient) -> None:
    first, second = await client.open(PARENT, [[1], [2]], PARAMS)
    first.drop()
    second.drop().cancel()
    await client.aclose()
    assert engine.states() == ["dropped", "dropped"]


async def test_a_cancelled_opening_leaves_no_branch(engine: FakeEngine, client: BranchClient) -> None:
    opening = asyncio.create_task(opened(client))
    await engine.wire.reached.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await client.aclose()
    assert engine.states() == ["dropped"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid", InvalidRequest),
        (404, "unknown", UnknownBranch),
        (409, "dropped", BranchEnded),
        (410, "restarted", Restarted),
        (429, "over_budget", OverBudget),
        (501, "unsupported", Unsupported),
        (503, "unavailable", Unavailable),
        (500, "defect", BranchError),
    ],
)
async def test_every_refusal_is_a_kind_of_its_own_and_one_sentence_with_the_address(
    engine: FakeEngine, client: BranchClient, status: int, code: str, kind: type[BranchError]
) -> None:
    engine.refuse["open"] = (status, code)
    with pytest.raises(BranchError) as caught:
        await opened(client)
    assert type(caught.value) is kind
    assert str(caught.value) == f"the engine at {URL} refused with status {status}: it is {code}."


async def test_a_stock_server_has_no_branches(engine: FakeEngine, client: BranchClient) -> None:
    engine.plugin = False
    for call in (client.capabilities, client.drop_all, lambda: opened(client)):
        with pytest.raises(Unsupported, match=f"^the engine at {URL} has no branch API: it runs without"):
            await call()


async def test_an_answer_of_something_else_is_named() -> None:
    for answer in (httpx.Response(200, text="<html>"), httpx.Response(200, json=["tiny"])):
        transport = httpx.MockTransport(lambda _, answer=answer: answer)
        async with httpx.AsyncClient(base_url=URL, transport=transport) as http:
            with pytest.raises(BranchError, match=f"^the engine at {URL} answered with what no SGLang"):
                await BranchClient(http).capabilities()


async def test_only_what_changes_nothing_is_asked_again(engine: FakeEngine, client: BranchClient) -> None:
    engine.wire.faults = [Fault("/branch")]
    assert (await client.capabilities()).supported
    engine.wire.faults = [Fault("/branch"), Fault("/branch")]
    with pytest.raises(ConnectionLost, match=rf"^the engine at {URL} died at /branch \(connection reset\)"):
        await client.capabilities()

    engine.wire.faults = [Fault("/open")]
    with pytest.raises(ConnectionLost, match="died at /branch/open"):
        await opened(client)
    assert len(engine.wire.bodies("POST /branch/open")) == 1


async def test_a_broken_stream_is_taken_up_where_it_broke(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make(3)
    engine.wire.faults = [Fault("/stream", after_events=1)]
    chunks = branch.stream()
    assert (await anext(chunks)).token_ids == tuple(WHOLE[:3])
    engine.make()
    assert tokens([chunk async for chunk in chunks]) == WHOLE[3:]

    engine.wire.faults = [Fault("/stream"), Fault("/stream")]
    with pytest.raises(ConnectionLost):
        await read(branch.stream())


async def test_a_listener_learns_that_the_branch_was_lost(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    chunks = branch.stream()
    engine.make(1)
    await anext(chunks)
    end(engine, "lost")
    with pytest.raises(BranchEnded, match="gave the branch up: the branch was lost: pressure") as caught:
        await anext(chunks)
    assert caught.value.state is BranchState.LOST


@pytest.mark.parametrize("cut", [1, 2, 7, 100, None])
async def test_events_are_read_however_the_network_cuts_them(
    engine: FakeEngine, client: BranchClient, cut: int | None
) -> None:
    engine.wire.cut = cut
    branch = await opened(client)
    engine.make(3)
    chunks = []
    async for chunk in branch.commit():
        chunks.append(chunk)
        engine.make(1)
    assert_whole(chunks)
    assert_whole(await read(client.server.generate([*PARENT, *CANDIDATE], PARAMS)))
