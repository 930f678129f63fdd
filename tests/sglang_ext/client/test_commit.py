from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import httpx
import pytest

from sglang_ext.client import BranchClient, BranchEnded, Chunk, Silent, Unavailable
from sglang_ext.states import BranchState
from tests.sglang_ext.client.fake_engine import URL, FakeEngine
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


async def test_a_held_branch_is_handed_over_at_once(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make()
    chunks = await read(branch.commit())
    assert_whole(chunks)
    assert len(chunks) == 1
    assert (branch.run_s, branch.lost) == (1.5, None)
    assert engine.states() == ["committed"]


async def test_a_running_branch_streams_on(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make(3)
    chunks = []
    async for chunk in branch.commit():
        chunks.append(chunk)
        engine.make(2)
    assert_whole(chunks)
    assert [len(chunk.token_ids) for chunk in chunks] == [3, 2, 2, 1]
    assert branch.run_s is None


@pytest.mark.parametrize("first", ["commit", "drop"])
@pytest.mark.parametrize("second", ["commit", "drop"])
async def test_a_branch_ends_once(engine: FakeEngine, client: BranchClient, first: str, second: str) -> None:
    branch = await opened(client)
    engine.make()
    await (read(branch.commit()) if first == "commit" else branch.drop())
    with pytest.raises(BranchEnded, match=f"^{branch.id} of the engine at {URL} was {first}"):
        getattr(branch, second)()


async def test_leaving_a_commit_early_ends_the_generation(engine: FakeEngine, client: BranchClient) -> None:
    branch = await opened(client)
    engine.make(3)
    async with aclosing(branch.commit()) as chunks:
        await anext(chunks)
    await client.aclose()
    assert engine.aborted == [branch.id]


async def test_a_commit_cancelled_before_the_engine_got_it_ends_the_branch(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    engine.wire.faults = [Fault("/commit", asyncio.CancelledError, reached=False)]  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        await read(branch.commit())
    await client.aclose()
    assert engine.states() == ["dropped"]


Loss = Callable[[FakeEngine], object]


def ends(state: str) -> Loss:
    return lambda engine: end(engine, state)


def breaks(
    error: type[httpx.TransportError] | None, after_events: int | None = None, reached: bool = True
) -> Loss:
    return lambda engine: engine.wire.faults.append(Fault("/commit", error, after_events, reached))


BEFORE: dict[str, Loss] = {
    "lost": ends("lost"),
    "expired": ends("expired"),
    "dropped by another": ends("dropped"),
    "engine restarted": FakeEngine.restart,
    "branch forgotten": lambda engine: engine.branches.clear(),
    "engine restarted without plugin": lambda engine: setattr(engine, "plugin", False),
    "weights are updated": lambda engine: engine.refuse.update(commit=(503, "unavailable")),
    "connection refused": breaks(httpx.ConnectError, reached=False),
    "connection broken": breaks(httpx.ReadError),
    "connection closed": breaks(httpx.RemoteProtocolError),
    "broken after the head": breaks(httpx.ReadError, after_events=1),
}


@pytest.mark.parametrize("loss", BEFORE)
async def test_a_branch_lost_before_its_commit_is_generated_again(
    engine: FakeEngine, client: BranchClient, loss: str
) -> None:
    branch = await opened(client, extra_key="lora")
    engine.make(3)
    BEFORE[loss](engine)
    assert_whole(await read(branch.commit()))
    assert branch.lost is not None
    (again,) = engine.wire.bodies("POST /generate")
    assert again["input_ids"] == [*PARENT, *CANDIDATE]
    assert again["sampling_params"] == PARAMS
    assert again["extra_key"] == "lora"
    await client.aclose()
    if loss != "engine restarted without plugin":
        assert not {"queued", "running", "held"} & set(engine.states())


@pytest.mark.parametrize(
    ("before", "after_the_first_chunk"),
    [
        (None, ends("lost")),
        (breaks(httpx.ReadError, after_events=2), None),
        (breaks(httpx.RemoteProtocolError, after_events=2), None),
        (breaks(None, after_events=2), None),
    ],
    ids=["given up", "connection broken", "connection closed", "answer cut short"],
)
async def test_a_branch_lost_in_its_commit_goes_on_after_the_tokens_it_gave(
    engine: FakeEngine, client: BranchClient, before: Loss | None, after_the_first_chunk: Loss | None
) -> None:
    branch = await opened(client)
    engine.make(3)
    if before:
        before(engine)
    chunks: list[Chunk] = []
    async for chunk in branch.commit():
        if after_the_first_chunk and not chunks:
            after_the_first_chunk(engine)
        chunks.append(chunk)
    assert_whole(chunks)
    (again,) = engine.wire.bodies("POST /generate")
    assert again["input_ids"] == [*PARENT, *CANDIDATE, *WHOLE[:3]]
    assert again["sampling_params"] == PARAMS | {"max_new_tokens": PARAMS["max_new_tokens"] - 3}
    assert again["sampling_params"]["sampling_seed"] == PARAMS["sampling_seed"]


async def test_a_least_number_of_tokens_counts_those_that_came(
    engine: FakeEngine, client: BranchClient
) -> None:
    (branch,) = await client.open(PARENT, [CANDIDATE], PARAMS | {"min_new_tokens": 5})
    engine.make(3)
    breaks(httpx.ReadError, after_events=2)(engine)
    assert_whole(await read(branch.commit()))
    (again,) = engine.wire.bodies("POST /generate")
    assert again["sampling_params"]["min_new_tokens"] == 2


async def test_tokens_heard_before_the_loss_are_not_generated_again(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    engine.make(3)
    await branch.read()
    engine.restart()
    assert_whole(await read(branch.commit()))
    (again,) = engine.wire.bodies("POST /generate")
    assert again["input_ids"] == [*PARENT, *CANDIDATE, *WHOLE[:3]]


async def test_nothing_is_left_to_generate_after_a_stop_token(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    (fake,) = engine.branches.values()
    fake.plan.append(7)  # the engine has not said yet that it is finished
    engine.make(len(WHOLE))
    engine.wire.faults = [Fault("/commit", after_events=2)]
    assert_whole(await read(branch.commit()))
    assert engine.wire.bodies("POST /generate") == []


async def test_nothing_is_left_to_generate_at_the_limit(engine: FakeEngine, client: BranchClient) -> None:
    (branch,) = await client.open(PARENT, [CANDIDATE], PARAMS | {"max_new_tokens": 3})
    (fake,) = engine.branches.values()
    fake.plan.append(7)
    engine.make(3)
    engine.wire.faults = [Fault("/commit", after_events=2)]
    chunks = await read(branch.commit())
    assert (tokens(chunks), chunks[-1].finish) == (WHOLE[:3], "length")
    assert engine.wire.bodies("POST /generate") == []


async def test_leaving_what_is_generated_again_ends_that_too(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    engine.restart()
    async with aclosing(branch.commit()) as chunks:
        await anext(chunks)
    await client.aclose()
    (again,) = engine.wire.bodies("POST /generate")
    assert engine.aborted == [again["rid"]]


async def test_a_branch_that_another_has_committed_is_not_generated_twice(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    end(engine, "committed")
    with pytest.raises(BranchEnded) as caught:
        await read(branch.commit())
    assert caught.value.state is BranchState.COMMITTED
    assert engine.wire.bodies("POST /generate") == []


async def test_a_commit_fails_where_the_engine_does_not_answer(
    engine: FakeEngine, client: BranchClient
) -> None:
    branch = await opened(client)
    paths = ("/commit", "/generate")
    engine.wire.faults = [Fault(path, httpx.ConnectError, reached=False) for path in paths]
    with pytest.raises(Unavailable, match=rf"^the engine at {URL} cannot be reached \(refused\)"):
        await read(branch.commit())

    branch = await opened(client)
    engine.wire.faults = [Fault("/commit", httpx.ReadTimeout, after_events=1)]
    with pytest.raises(Silent, match=f"^the engine at {URL} was silent for 7 s, after 0 tokens"):
        await read(branch.commit())
    await client.aclose()
    assert engine.wire.bodies("POST /generate") == []
    assert engine.aborted == [branch.id]
