"""Branches in SGLang's real radix cache: what they hold, what they give back, to whom they yield."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sglang_ext.messages import Commit, Drop, Dropped, Lost, Open, Reclaimed, Release
from sglang_ext.states import BranchState
from tests.sglang_ext.world import CAPACITY, LONGEST, Request, World

PARENT = list(range(1, 41))
pytestmark = pytest.mark.parametrize("page_size", [1, 16])


@pytest.fixture
def world(page_size: int) -> World:
    return World(page_size)


def opened(
    world: World,
    *candidates: list[int],
    parent: list[int] = PARENT,
    start: int = 0,
    on_branch: bool = False,
) -> list[Request]:
    """Branches b0, b1, … on `parent`, queued."""
    names = tuple(f"b{start + i}" for i in range(len(candidates)))
    ids = tuple(array("q", candidate) for candidate in candidates)
    world.table.open(Open(names, array("q", parent), ids, None, on_branch))
    return [world.submit(name, parent + candidate) for name, candidate in zip(names, candidates, strict=True)]


def ran(world: World, request: Request, tokens: int = 20) -> None:
    assert world.start(request)
    for _ in range(tokens - 1):
        assert world.decode(request)


def done(world: World, request: Request, tokens: int = 20) -> None:
    ran(world, request, tokens)
    world.finish(request)


def parent_turn(world: World) -> None:
    """The turn before: PARENT is in the cache."""
    done(world, world.submit("turn", PARENT), 2)


def drop(world: World, *names: str) -> Dropped:
    world.table.drop(Drop(7, names))
    return world.dropped()[-1]


def cached(world: World, ids: list[int]) -> int:
    return world.tree.match(array("q", ids)).length


def test_a_finished_branch_is_held_whole_and_no_eviction_reaches_it(world: World) -> None:
    parent_turn(world)
    (branch,) = opened(world, [50] * 20)
    done(world, branch)
    entry = world.table["b0"]
    assert entry is not None
    assert entry.state is BranchState.HELD
    world.evict(CAPACITY)
    whole = branch.kv_len - branch.kv_len % world.page_size
    assert cached(world, list(branch.ids)) == whole == world.tree.sizes().protected
    assert world.tree.sizes().evictable == 0


def test_a_dropped_branch_leaves_the_cache_as_it_was(world: World) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    (branch,) = opened(world, [50] * 20)
    done(world, branch)
    taken = world.tree.sizes()
    answer = drop(world, "b0")
    assert (answer.available, answer.evictable, answer.protected) == tuple(world.tree.sizes()) == before
    assert answer.freed == before.available - taken.available > 0
    assert not world.table


@pytest.mark.parametrize("tokens", [0, 1, 20])
def test_an_unfinished_branch_is_ended_and_freed_at_once(world: World, tokens: int) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    (branch,) = opened(world, [50] * 20)
    if tokens:
        ran(world, branch, tokens)
    assert drop(world, "b0").sequence == 7
    assert world.tree.sizes() == before
    assert not world.queue
    assert not world.running
    assert not world.table


def test_a_branch_dropped_before_its_request_arrives_never_runs(world: World) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    world.table.open(Open(("b0",), array("q", PARENT), (array("q", [50]),), None))
    assert drop(world, "b0").freed == 0
    world.submit("b0", [*PARENT, 50])
    assert not world.queue
    assert world.tree.sizes() == before


def test_siblings_are_pruned_apart(world: World) -> None:
    """They share the beginning of their observation; each frees its own end, the last the shared part."""
    parent_turn(world)
    before = world.tree.sizes()
    first, second = opened(world, [50] * 32 + [60] * 16, [50] * 32 + [70] * 16)
    done(world, first)
    done(world, second)
    drop(world, "b0")
    whole = second.kv_len - second.kv_len % world.page_size
    assert cached(world, list(second.ids)) == whole
    drop(world, "b1")
    assert world.tree.sizes() == before


def test_what_others_cached_before_stays(world: World) -> None:
    """Another rollout of the group has read the same observation already."""
    observation = [50] * 32
    done(world, world.submit("other", PARENT + observation), 2)
    before = world.tree.sizes()
    (branch,) = opened(world, observation)
    done(world, branch)
    drop(world, "b0")
    assert world.tree.sizes() == before


def test_what_others_continue_stays(world: World) -> None:
    parent_turn(world)
    (branch,) = opened(world, [50] * 32)
    done(world, branch)
    other = world.submit("other", PARENT + [50] * 32 + [60] * 16)
    done(world, other, 2)
    drop(world, "b0")
    whole = other.kv_len - other.kv_len % world.page_size
    assert cached(world, list(other.ids)) == whole
    assert world.tree.sizes().protected == 0


def test_the_rest_of_the_parent_stays_when_the_branch_computed_it(world: World) -> None:
    (branch,) = opened(world, [50] * 20)  # nothing was cached
    done(world, branch)
    drop(world, "b0")
    assert cached(world, PARENT) == len(PARENT) - len(PARENT) % world.page_size


@pytest.mark.parametrize("when", ["queued", "running", "held"])
def test_a_committed_branch_is_an_ordinary_request_and_pinned_for_the_next_turn(
    world: World, when: str
) -> None:
    parent_turn(world)
    (branch,) = opened(world, [50] * 20)
    if when == "running":
        ran(world, branch, 5)
    if when == "held":
        done(world, branch)
    world.table.commit(Commit("b0"))
    assert not world.table.is_speculative("b0")
    if when == "queued":
        assert world.start(branch)
    if when != "held":
        world.finish(branch)
    world.evict(CAPACITY)
    whole = branch.kv_len - branch.kv_len % world.page_size
    assert cached(world, list(branch.ids)) == whole
    following = world.submit("next", [*branch.ids, 80, 81])
    assert world.start(following)
    assert not world.table, "the next turn has arrived, and holds the prefix itself"
    world.finish(following)
    assert world.tree.sizes().protected == 0


def test_the_grace_hold_ends_by_time_too(world: World) -> None:
    parent_turn(world)
    (branch,) = opened(world, [50] * 20)
    done(world, branch)
    world.table.commit(Commit("b0"))
    world.table.release(Release("b0"))
    assert world.tree.sizes().protected == 0
    assert cached(world, list(branch.ids)) > len(PARENT), "its KV stays, as any request's does"


def test_an_unrelated_request_does_not_end_the_grace_hold(world: World) -> None:
    (branch,) = opened(world, [50] * 20)
    done(world, branch)
    world.table.commit(Commit("b0"))
    done(world, world.submit("other", PARENT + [90] * 20), 2)
    assert len(world.table) == 1


def test_pressure_takes_grace_holds_then_held_then_running_branches_newest_first(world: World) -> None:
    parent_turn(world)
    one, two, three, four = opened(world, [50] * 16, [51] * 16, [52] * 16, [53] * 16)
    for branch in (one, two, three):
        done(world, branch)
    ran(world, four, 3)
    world.table.commit(Commit("b0"))
    assert world.pressure.free_kv()
    assert world.table["b0"] is None
    assert world.pressure.free_kv()
    assert world.sent[-1] == Reclaimed(("b2",))
    assert world.pressure.free_kv()
    assert world.sent[-1] == Reclaimed(("b1",))
    assert world.pressure.free_kv()
    assert isinstance(world.sent[-1], Lost)
    assert world.sent[-1].branch_ids == ("b3",)
    assert not world.running
    assert not world.pressure.free_kv()
    assert world.tree.sizes().protected == 0


def test_slots_and_places_are_taken_from_branches_newest_first(world: World) -> None:
    parent_turn(world)
    one, two, three = opened(world, [50], [51], [52])
    ran(world, one, 2)
    assert world.pressure.free_slot()
    assert world.sent[-1].branch_ids == ("b0",)
    assert not world.pressure.free_slot()
    assert world.pressure.free_place()
    assert world.sent[-1].branch_ids == ("b2",)
    assert world.queue == [two]
    assert three not in world.queue


def test_pressure_takes_queued_branches_last(world: World) -> None:
    """They hold nothing of their own, and yet lock what is cached of their parent."""
    parent_turn(world)
    opened(world, [50])
    assert world.tree.sizes().protected > 0
    assert world.pressure.free_kv()
    assert world.tree.sizes().protected == 0
    assert not world.queue


@pytest.mark.parametrize("committed", [False, True])
def test_a_request_that_the_engine_ended_by_itself_is_swept_up(world: World, committed: bool) -> None:
    parent_turn(world)
    opened(world, [50])
    if committed:
        world.table.commit(Commit("b0"))
    world.table.sweep(world.has)
    assert len(world.table) == 1, "it is still queued"
    world.queue.clear()
    world.table.sweep(world.has)
    assert not world.table
    assert world.tree.sizes().protected == 0
    assert [isinstance(message, Lost) for message in world.sent] == [True] * (not committed)


def test_a_drop_of_what_the_engine_has_ended_by_itself_is_answered(world: World) -> None:
    parent_turn(world)
    opened(world, [50])
    world.queue.clear()
    assert drop(world, "b0").freed == 0
    assert not world.table


def test_nothing_survives_new_weights(world: World) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    one, two, three, _ = opened(world, [50] * 16, [51] * 16, [52] * 16, [53] * 16)
    done(world, one)
    done(world, two)
    ran(world, three, 3)
    world.table.commit(Commit("b1"))
    world.table.lose_all("the weights were updated")
    assert world.sent == [Lost(("b0", "b2", "b3"), "the weights were updated")]
    assert not world.table
    assert not world.queue
    assert not world.running
    assert world.tree.sizes().protected == 0
    assert world.tree.sizes().available < before.available, "what was committed stays cached"


def test_a_child_on_a_held_branch_is_freed_down_to_its_parent(world: World) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    (branch,) = opened(world, [50] * 20)
    done(world, branch)
    held = world.tree.sizes()
    (child,) = opened(world, [60] * 20, parent=list(branch.ids), start=1, on_branch=True)
    done(world, child)
    drop(world, "b1")
    assert world.tree.sizes() == held
    drop(world, "b0")
    assert world.tree.sizes() == before


def test_two_hundred_branches_leave_the_pool_as_it_was(world: World) -> None:
    parent_turn(world)
    before = world.tree.sizes()
    for number in range(200):
        (branch,) = opened(world, [100 + number] * 20, start=number)
        done(world, branch)
        drop(world, f"b{number}")
    assert world.tree.sizes() == before


class Life(RuleBasedStateMachine):
    """Random lives of branches and requests, against a plain model: who is open, who runs."""

    page_size = 1

    @initialize()
    def begin(self) -> None:
        self.world = World(self.page_size)
        self.count = 0
        self.state: dict[str, BranchState] = {}
        self.ids: dict[str, list[int]] = {}

    tokens = st.lists(st.integers(1, 3), min_size=1, max_size=24)

    def open_ids(self) -> list[str]:
        ends = {BranchState.COMMITTED, BranchState.DROPPED, BranchState.LOST}
        return sorted(name for name, state in self.state.items() if state not in ends)

    def heard(self) -> None:
        """The model follows what the table says of its own accord."""
        for message in self.world.sent:
            if isinstance(message, Lost):
                for name in message.branch_ids:
                    assert self.state[name] in (BranchState.QUEUED, BranchState.HELD)
                    self.state[name] = BranchState.LOST
            if isinstance(message, Reclaimed):
                for name in message.branch_ids:
                    assert self.state[name] is BranchState.HELD
                    self.state[name] = BranchState.LOST
        self.world.sent.clear()

    @rule(parent=tokens, candidates=st.lists(tokens, min_size=1, max_size=3))
    def open(self, parent: list[int], candidates: list[list[int]]) -> None:
        for request in opened(self.world, *candidates, parent=parent, start=self.count):
            self.state[request.rid] = BranchState.QUEUED
        self.count += len(candidates)

    @rule(ids=tokens)
    def request(self, ids: list[int]) -> None:
        self.world.submit(f"r{self.count}", ids)
        self.count += 1

    @precondition(lambda self: self.world.queue)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.world.start(data.draw(st.sampled_from(self.world.queue)))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), count=st.integers(1, 20))
    def decode(self, data: st.DataObject, count: int) -> None:
        request = data.draw(st.sampled_from(self.world.running))
        for _ in range(count):
            self.world.decode(request)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.world.running))
        self.world.finish(request)
        if self.state.get(request.rid) is BranchState.QUEUED:
            self.state[request.rid] = BranchState.HELD

    @precondition(lambda self: self.open_ids())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.open_ids()))
        self.world.table.commit(Commit(name))
        self.state[name] = BranchState.COMMITTED

    @precondition(lambda self: self.open_ids())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.open_ids()))
        self.world.table.drop(Drop(self.count, (name,)))
        answer = self.world.dropped()[-1]
        assert (answer.available, answer.evictable, answer.protected) == tuple(self.world.tree.sizes())
        self.state[name] = BranchState.DROPPED

    @precondition(lambda self: self.state)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.world.table.release(Release(data.draw(st.sampled_from(sorted(self.state)))))

    @precondition(lambda self: self.world.queue)
    @rule(data=st.data())
    def abort_outside(self, data: st.DataObject) -> None:
        """SGLang takes a request out of its queue without a word."""
        self.world.queue.remove(data.draw(st.sampled_from(self.world.queue)))
        self.world.table.sweep(self.world.has)

    @rule(tokens=st.integers(1, CAPACITY))
    def evict(self, tokens: int) -> None:
        self.world.evict(tokens)

    @rule(what=st.sampled_from(["free_kv", "free_idle_kv", "free_slot", "free_place"]))
    def pressure(self, what: str) -> None:
        getattr(self.world.pressure, what)()

    @rule()
    def update_weights(self) -> None:
        self.world.table.lose_all("the weights were updated")
        assert not any(self.world.table.is_speculative(name) for name in self.state)

    @invariant()
    def nothing_leaks(self) -> None:
        self.heard()
        assert self.world.accounted() == CAPACITY

    @invariant()
    def the_table_knows_what_the_model_knows(self) -> None:
        for name, state in self.state.items():
            entry = self.world.table[name]
            if state in (BranchState.QUEUED, BranchState.HELD):
                assert entry is not None
                assert entry.state is state
            elif state is not BranchState.COMMITTED:
                assert entry is None

    @invariant()
    def a_held_branch_is_cached_whole(self) -> None:
        for name in self.open_ids():
            entry = self.world.table[name]
            if entry is not None and entry.state is BranchState.HELD:
                assert entry.path.node.lock_ref > 0

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for request in list(self.world.running):
            self.world.finish(request)
        self.world.table.drop(Drop(0, None))
        for request in list(self.world.queue):
            self.world.queue.remove(request)
        if not self.world.table:
            assert self.world.tree.sizes().protected == 0
            assert sum(self.world.tree.sizes()) == CAPACITY
        assert all(not self.world.table.is_speculative(name) for name in self.state)


def test_random_lives_leak_nothing(page_size: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    kind = type("Life", (Life,), {"page_size": page_size})
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


assert LONGEST < CAPACITY
