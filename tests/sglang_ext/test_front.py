"""The front half over HTTP, in front of a scripted engine: what a client sees in every case."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from sglang_ext.front import branches as branches_module
from sglang_ext.front.branch import Chunk, GivenUp
from sglang_ext.front.branches import Branches
from sglang_ext.front.metrics import Metrics
from sglang_ext.front.routes import Routes
from sglang_ext.front.settings import Settings
from sglang_ext.messages import Commit, Drop, Dropped, Hello, Lost, Open, Reclaimed, Release
from sglang_ext.states import BranchState

CAPACITY = 1000
STOP = {"type": "stop", "matched": 2}
Step = Chunk | Exception


class FakeServer:
    """Each branch generates what the test feeds it; the scheduler answers drops at once."""

    def __init__(self) -> None:
        self.branches: Branches
        self.sent: list[Any] = []
        self.feeds: dict[str, asyncio.Queue[Step]] = {}
        self.aborted: list[str] = []
        self.forgotten: list[str] = []
        self.paused = False
        self._told = asyncio.Condition()

    async def told(self, message: Any) -> None:
        """Wait until the scheduler was told so."""
        async with asyncio.timeout(5), self._told:
            await self._told.wait_for(lambda: message in self.sent)

    async def generate(
        self, branch_id: str, ids: Sequence[int], params: dict[str, Any], key: str | None, logprobs: bool
    ) -> AsyncGenerator[Chunk]:
        while True:
            step = await self.feeds[branch_id].get()
            if isinstance(step, Exception):
                raise step
            yield step
            if step.finish_reason is not None:
                return

    def check(self, longest: int, ids: Iterable[int], sampling_params: dict[str, Any]) -> None:
        if longest > 100:
            raise ValueError("too long for this engine")

    def listen(self) -> None:
        pass

    def send(self, message: Open | Commit | Release | Drop) -> None:
        self.sent.append(message)
        asyncio.get_running_loop().create_task(self._notify())
        if isinstance(message, Open):
            self.feeds |= {branch_id: asyncio.Queue() for branch_id in message.branch_ids}
        if isinstance(message, Drop):
            self.branches.on_dropped(Dropped(message.sequence, 3, 900, 90, 10))

    async def _notify(self) -> None:
        async with self._told:
            self._told.notify_all()

    def abort(self, branch_id: str) -> None:
        self.aborted.append(branch_id)

    def forget(self, branch_id: str) -> None:
        self.forgotten.append(branch_id)

    def unavailable(self) -> str | None:
        return "generation is paused" if self.paused else None


class Bench:
    def __init__(self, reason: str | None = None, hello: bool = True, **settings: float) -> None:
        self.server = FakeServer()
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry)
        self.branches = Branches(self.server, Settings(**settings), metrics, reason)
        self.server.branches = self.branches
        if hello and reason is None:
            self.branches.on_hello(Hello(None, CAPACITY))
        app = FastAPI()
        Routes(self.branches, metrics, seeds=True).add_to(app)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine")

    async def open(self, **body: Any) -> httpx.Response:
        defaults = {"parent": [1, 2, 3], "candidates": [[4]], "sampling_params": {"max_new_tokens": 8}}
        if "parent_branch" in body:
            del defaults["parent"]
        return await self.http.post("/branch/open", json=defaults | body)

    async def opened(self, **body: Any) -> list[str]:
        answer = await self.open(**body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["branches"])

    async def state(self, branch_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/branch/{branch_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def feed(self, branch_id: str, *steps: Step) -> None:
        """Returns when the branch has taken them."""
        branch = self.branches.get(branch_id)
        for step in steps:
            changed = branch._changed
            self.server.feeds[branch_id].put_nowait(step)
            await changed.wait()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"sglext:branch_{name}", labels)


def chunk(*ids: int, end: bool = False) -> Chunk:
    return Chunk(list(ids), [-0.5 * i for i in ids], STOP if end else None, "v1")


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with bench.http:
        yield bench


async def test_a_held_branch_is_committed_from_its_buffer(bench: Bench) -> None:
    (branch,) = await bench.opened()
    assert (await bench.state(branch))["state"] == "queued"
    await bench.feed(branch, chunk(10))
    assert (await bench.state(branch))["state"] == "running"
    await bench.feed(branch, chunk(11, 2, end=True))
    state = await bench.state(branch)
    assert (state["state"], state["token_ids"], state["tokens"]) == ("held", [10, 11, 2], 3)
    first, whole = events((await bench.http.post(f"/branch/{branch}/commit")).text)
    assert (first["branch"], first["state"]) == (branch, "held")
    assert first["run_s"] >= 0
    assert whole == {
        "token_ids": [10, 11, 2],
        "logprobs": [-5.0, -5.5, -1.0],
        "finish_reason": STOP,
        "weight_version": "v1",
    }
    assert bench.server.sent[-1] == Commit(branch)
    assert bench.server.aborted == []


async def test_a_running_branch_is_committed_and_read_live(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(10))
    reading = asyncio.create_task(bench.http.post(f"/branch/{branch}/commit"))
    await bench.server.told(Commit(branch))
    assert (await bench.state(branch))["state"] == "committed"
    await bench.feed(branch, chunk(11), chunk(2, end=True))
    first, *rest = events((await reading).text)
    assert (first["state"], first["run_s"]) == ("running", None)
    assert [token for event in rest for token in event["token_ids"]] == [10, 11, 2]


async def test_a_commit_without_a_stream_waits_for_the_end(bench: Bench) -> None:
    (branch,) = await bench.opened()
    reading = asyncio.create_task(bench.http.post(f"/branch/{branch}/commit?stream=false"))
    await bench.server.told(Commit(branch))
    await bench.feed(branch, chunk(10), chunk(2, end=True))
    assert (await reading).json()["token_ids"] == [10, 2]


async def test_a_listener_reads_along_from_where_it_wants(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(10), chunk(11))
    reading = asyncio.create_task(bench.http.get(f"/branch/{branch}/stream?since=1"))
    await asyncio.sleep(0)
    await bench.feed(branch, chunk(2, end=True))
    assert [token for event in events((await reading).text) for token in event["token_ids"]] == [11, 2]
    assert (await bench.state(branch))["state"] == "held"


@pytest.mark.parametrize("tokens", [0, 1])
async def test_a_dropped_branch_tells_what_was_thrown_away_and_what_is_free(
    bench: Bench, tokens: int
) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, *[chunk(10)] * tokens)
    answer = (await bench.http.post(f"/branch/{branch}/drop")).json()
    assert answer == {
        "tokens": tokens,
        "run_s": None,
        "freed": 3,
        "available": 900,
        "evictable": 90,
        "protected": 10,
    }


@pytest.mark.parametrize("first", ["commit", "drop"])
@pytest.mark.parametrize("second", ["commit", "drop"])
async def test_a_branch_ends_once(bench: Bench, first: str, second: str) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(2, end=True))
    assert (await bench.http.post(f"/branch/{branch}/{first}")).status_code == 200
    past = {"commit": "committed", "drop": "dropped"}[first]
    assert code(await bench.http.post(f"/branch/{branch}/{second}")) == (409, past)


async def test_ids_nobody_knows_and_ids_from_before_a_restart(bench: Bench) -> None:
    assert code(await bench.http.get("/branch/nonsense")) == (404, "unknown")
    (old,) = await Bench().opened()
    assert code(await bench.http.post(f"/branch/{old}/commit")) == (410, "restarted")
    ours = f"obsspec-branch-{bench.branches.epoch}-0000000000000000"
    assert code(await bench.http.post(f"/branch/{ours}/drop")) == (404, "unknown")


async def test_a_branch_expires_and_is_freed(bench: Bench) -> None:
    (branch,) = await bench.opened(ttl_s=0.01)
    following = bench.branches.get(branch).follow()
    with pytest.raises(GivenUp, match="expired"):
        await anext(following)
    assert code(await bench.http.post(f"/branch/{branch}/commit")) == (409, "expired")
    await bench.server.told(Drop(0, (branch,)))


async def test_the_budget_counts_what_branches_may_become_and_then_what_they_are() -> None:
    bench = Bench(budget=20)
    (branch,) = await bench.opened(sampling_params={"max_new_tokens": 15})
    assert bench.branches.claimed == 16
    refused = await bench.open()
    assert code(refused) == (429, "over_budget")
    assert "16 of 20 tokens" in refused.json()["error"]["message"]
    await bench.feed(branch, chunk(10, 2, end=True))
    assert bench.branches.claimed == 3
    await bench.opened()
    assert bench.branches.claimed == 3 + 9
    bench.branches.on_reclaimed(Reclaimed((branch,)))
    assert bench.branches.claimed == 9
    await bench.http.post("/branch/drop_all")
    assert bench.branches.claimed == 0
    assert bench.metric("refused_total") == 1


async def test_a_branch_whose_kv_was_taken_back_can_still_be_committed(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(10, 2, end=True))
    bench.branches.on_reclaimed(Reclaimed((branch,)))
    _, whole = events((await bench.http.post(f"/branch/{branch}/commit")).text)
    assert whole["token_ids"] == [10, 2]


async def test_a_held_branch_can_be_extended_and_takes_its_children_with_it(bench: Bench) -> None:
    (branch,) = await bench.opened()
    assert code(await bench.open(parent_branch=branch)) == (409, "queued")
    await bench.feed(branch, chunk(10, 2, end=True))
    (child,) = await bench.opened(parent_branch=branch, candidates=[[5, 6]])
    opening = next(m for m in bench.server.sent if isinstance(m, Open) and m.branch_ids == (child,))
    assert list(opening.parent) == [1, 2, 3, 4, 10, 2]
    assert opening.on_branch
    await bench.http.post(f"/branch/{branch}/drop")
    assert code(await bench.http.post(f"/branch/{child}/commit")) == (409, "dropped")
    assert bench.server.sent[-1].branch_ids == (child, branch), "children first"


async def test_children_outlive_the_commit_of_their_parent(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(2, end=True))
    (child,) = await bench.opened(parent_branch=branch)
    await bench.http.post(f"/branch/{branch}/commit")
    await bench.feed(child, chunk(2, end=True))
    assert (await bench.state(child))["state"] == "held"


async def test_a_branch_that_the_engine_gives_up_says_why(bench: Bench) -> None:
    (branch,) = await bench.opened()
    bench.branches.on_lost(Lost((branch,), "the engine needed its place"))
    answer = await bench.http.post(f"/branch/{branch}/commit")
    assert code(answer) == (409, "lost")


async def test_a_branch_given_up_around_its_commit_ends_its_stream_with_the_reason(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(10))
    reading = asyncio.create_task(bench.http.post(f"/branch/{branch}/commit"))
    await bench.server.told(Commit(branch))
    bench.branches.on_lost(Lost((branch,), "the engine needed its place"))
    *_, last = events((await reading).text)
    assert last["error"]["code"] == "lost"
    assert "needed its place" in last["error"]["message"]


async def test_a_request_that_fails_loses_its_branch_and_frees_what_it_holds(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, RuntimeError("broken"))
    assert code(await bench.http.get(f"/branch/{branch}")) == (409, "lost")
    assert any(isinstance(message, Drop) and message.branch_ids == (branch,) for message in bench.server.sent)
    assert bench.metric("ended_total", how="lost") == 1


async def test_a_client_that_leaves_a_commit_ends_the_request(bench: Bench) -> None:
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(10))
    reading = asyncio.create_task(bench.http.post(f"/branch/{branch}/commit"))
    await bench.server.told(Commit(branch))
    reading.cancel()
    await asyncio.wait({reading})
    assert bench.server.aborted == [branch]


async def test_nothing_is_open_while_the_weights_change(bench: Bench) -> None:
    (branch,) = await bench.opened()
    async with bench.branches.closed("the weights are being updated"):
        assert code(await bench.http.post(f"/branch/{branch}/commit")) == (409, "lost")
        refused = await bench.open()
        assert code(refused) == (503, "unavailable")
        assert "weights" in refused.json()["error"]["message"]
    await bench.opened()
    assert Drop(0, None) in bench.server.sent


async def test_a_paused_engine_opens_no_branch(bench: Bench) -> None:
    bench.server.paused = True
    assert code(await bench.open()) == (503, "unavailable")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"candidates": []}, "candidates"),
        ({"candidates": [[]]}, "candidates.0"),
        ({"candidates": [["x"]]}, "candidates.0.0"),
        ({"parent": [-1]}, "parent.0"),
        ({"parent": None}, "either parent"),
        ({"parent": list(range(200))}, "too long"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"sampling_params": {}}, "max_new_tokens"),
        ({"sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"sampling_params": {"max_new_tokens": 4, "regex": "a*"}}, "regex is not supported"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_bad_input_is_refused_in_one_sentence(bench: Bench, body: dict[str, Any], says: str) -> None:
    answer = await bench.open(**body)
    assert code(answer) == (400, "invalid")
    message = answer.json()["error"]["message"]
    assert says in message
    assert "\n" not in message
    assert bench.branches.all() == []


async def test_what_is_no_json_is_refused(bench: Bench) -> None:
    assert code(await bench.http.post("/branch/open", content=b"{")) == (400, "invalid")


async def test_an_engine_that_cannot_hold_branches_says_why() -> None:
    bench = Bench(reason="the radix cache is off")
    answer = (await bench.http.get("/branch")).json()
    assert (answer["supported"], answer["reason"]) == (False, "the radix cache is off")
    refused = await bench.open()
    assert code(refused) == (501, "unsupported")
    assert "radix cache is off" in refused.text
    async with bench.branches.closed("the cache is being flushed"):
        assert bench.server.sent == [], "a scheduler without the other half is never written to"


async def test_a_scheduler_that_says_nothing_cannot_hold_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches_module, "_HELLO_S", 0.01)
    bench = Bench(hello=False)
    assert (await bench.http.get("/branch")).json()["supported"] is False
    assert code(await bench.open()) == (501, "unsupported")


async def test_it_lists_its_branches_and_counts_them(bench: Bench) -> None:
    one, two = await bench.opened(candidates=[[4], [5]])
    listed = (await bench.http.get("/branch")).json()
    assert listed["supported"]
    assert listed["seeds"]
    assert listed["reason"] is None
    assert [(b["id"], b["state"], b["tokens"]) for b in listed["branches"]] == [
        (one, "queued", 0),
        (two, "queued", 0),
    ]
    assert listed["held_tokens"] == 18
    assert listed["budget_tokens"] == 250
    assert bench.metric("opened_total") == 2
    assert bench.metric("open") == 2
    await bench.http.post("/branch/drop_all")
    assert bench.metric("ended_total", how=BranchState.DROPPED) == 2
    assert bench.metric("open") == 0


async def test_a_committed_branch_is_released_after_its_grace() -> None:
    bench = Bench(grace_s=0.01)
    (branch,) = await bench.opened()
    await bench.feed(branch, chunk(2, end=True))
    await bench.http.post(f"/branch/{branch}/commit")
    await bench.server.told(Release(branch))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBSSPEC_BRANCH_BUDGET", "0.5")
    assert Settings.from_environment().budget_tokens(1000) == 500
    monkeypatch.setenv("OBSSPEC_BRANCH_BUDGET", "300")
    assert Settings.from_environment().budget_tokens(1000) == 300
    monkeypatch.setenv("OBSSPEC_BRANCH_GRACE_S", "soon")
    with pytest.raises(ValueError, match="OBSSPEC_BRANCH_GRACE_S must be a positive number, not 'soon'"):
        Settings.from_environment()
