"""The scheduler process of SGLang 0.5.14: the hooks that make room for branches in it.

Each hook does nothing while there is no branch; that is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sglang_ext.compat import engines, tree
from sglang_ext.hooks import Hook
from sglang_ext.messages import Commit, Drop, Dropped, Hello, Lost, Open, Reclaimed, Release
from sglang_ext.scheduler.pressure import Pressure
from sglang_ext.scheduler.table import Table


class Half:
    """The scheduler, with branches. One a process."""

    def __init__(self, scheduler: Any):
        self.scheduler = scheduler
        self.table = Table(tree.Tree(scheduler.tree_cache), self)
        self.pressure = Pressure(
            self.table,
            is_running=lambda request: request in scheduler.running_batch.reqs and not request.finished(),
            is_queued=lambda request: request in scheduler.waiting_queue,
        )

    def made_room(self) -> None:
        # SGLang looks again when its running batch shrinks, which a branch that only waited never was in.
        self.scheduler.running_batch.batch_is_full = False

    def send(self, message: Hello | Dropped | Lost | Reclaimed) -> None:
        self.scheduler.ipc_channels.send_to_tokenizer.send_output(message)

    def end(self, request: Any, reason: str) -> bool:
        from sglang.srt.managers.schedule_batch import FINISH_ABORT
        from sglang.srt.mem_cache import common

        scheduler, batch = self.scheduler, self.scheduler.running_batch
        if request in scheduler.waiting_queue:
            scheduler.waiting_queue.remove(request)
            self._tell_tokenizer(request, reason)
            return True
        if request is scheduler.chunked_req:
            scheduler._pending_chunked_abort_req = request  # ended at the top of the next step
        elif request in batch.reqs and not request.finished():
            # As a retraction does it: a result that is still in flight is ignored.
            request.finished_reason, request.finished_output = FINISH_ABORT(reason), True
            common.release_kv_cache(request, scheduler.tree_cache, False)
            request.reset_for_retract()
            batch.filter_batch(keep_indices=[i for i, other in enumerate(batch.reqs) if other is not request])
            self._tell_tokenizer(request, reason)
        elif self.has(request):  # prefilled in the last step, not yet among the running ones: one step more
            request.to_finish = FINISH_ABORT(reason)
        else:
            return True
        return False

    def has(self, request: Any) -> bool:
        """Whether the scheduler still has this request anywhere."""
        scheduler = self.scheduler
        batches = (scheduler.running_batch, scheduler.last_batch, scheduler.cur_batch)
        return (
            request is scheduler.chunked_req
            or request in scheduler.waiting_queue
            or any(batch is not None and request in batch.reqs for batch in batches)
        )

    def _tell_tokenizer(self, request: Any, reason: str) -> None:
        from sglang.srt.managers.io_struct import AbortReq

        finish = {"type": "abort", "message": reason}
        self.scheduler.ipc_channels.send_to_tokenizer.send_output(
            AbortReq(rid=request.rid, finished_reason=finish), request
        )

    def ordinary(self, requests: Sequence[Any]) -> int:
        """How many of these requests are no branch's."""
        return sum(not self.table.is_speculative(request.rid) for request in requests)


_half: Half | None = None


def _attach(result: None, scheduler: Any) -> None:
    """AFTER init_request_dispatcher: the caches exist, no message has been read yet."""
    global _half
    from sglang.utils import TypeBasedDispatcher

    if engines.refusal(scheduler.server_args):
        return  # the front knows as much
    reason = tree.refusal(scheduler.tree_cache)
    _half = half = Half(scheduler)
    table = half.table
    scheduler._request_dispatcher += TypeBasedDispatcher(
        [(Open, table.open), (Commit, table.commit), (Release, table.release), (Drop, table.drop)]
    )
    half.send(Hello(reason, scheduler.max_total_num_tokens))


def _queued(result: None, scheduler: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER _add_request_to_queue."""
    if _half and req.rid.startswith(engines.RESERVED):
        _half.table.arrived(req.rid, req)


def _queueing(scheduler: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE _add_request_to_queue: an ordinary request is not refused because branches fill the queue."""
    most = scheduler.max_queued_requests
    if _half and _half.table and most is not None and not _half.table.is_speculative(req.rid):
        while len(scheduler.waiting_queue) >= most and _half.pressure.free_place():
            pass


def _next_batch(scheduler: Any) -> None:
    """BEFORE get_next_batch_to_run."""
    if not _half:
        return
    if _half.table:
        _half.table.sweep(_half.has)
    _half.table.reply()
    if _half.table and _half.ordinary(scheduler.waiting_queue):
        if scheduler.chunked_req is not None:
            _half.pressure.yield_prefill(scheduler.chunked_req)
        _half.made_room()  # a branch that found none may have closed the batch for all


def _next_prefill(scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE _get_new_batch_prefill_raw, when what was prefilled has joined the running batch."""
    if not (_half and _half.table and (waiting := _half.ordinary(scheduler.waiting_queue))):
        return
    while scheduler.get_num_allocatable_reqs(len(scheduler.running_batch.reqs)) < waiting:
        if not _half.pressure.free_slot():
            break


def _order(original: Callable[..., None], policy: Any, waiting_queue: list[Any], *args: Any) -> None:
    """AROUND calc_priority: branches last, and out of the reckoning for the others."""
    if not (_half and _half.table):
        return original(policy, waiting_queue, *args)
    is_speculative = _half.table.is_speculative
    branches = [request for request in waiting_queue if is_speculative(request.rid)]
    if branches:
        waiting_queue[:] = [request for request in waiting_queue if not is_speculative(request.rid)]
        original(policy, branches, *args)
    original(policy, waiting_queue, *args)
    waiting_queue += branches
    return None


def _admit(
    original: Callable[..., Any], adder: Any, req: Any, has_chunked_req: bool, *args: Any, **kwargs: Any
) -> Any:
    """AROUND add_one_req."""
    from sglang.srt.managers.schedule_policy import AddReqResult

    if not (_half and _half.table):
        return original(adder, req, has_chunked_req, *args, **kwargs)
    if _half.table.is_speculative(req.rid):
        # Its turn comes with a batch in which no ordinary request is prefilled, and no prompt in part.
        if has_chunked_req or adder.new_chunked_req or _half.ordinary(adder.can_run_list):
            return AddReqResult.OTHER
        return original(adder, req, has_chunked_req, *args, **kwargs)
    result = original(adder, req, has_chunked_req, *args, **kwargs)
    while result is AddReqResult.NO_TOKEN and req not in adder.can_run_list and _half.pressure.free_kv():
        req.init_next_round_input(adder.tree_cache)  # the tree has changed
        result = original(adder, req, has_chunked_req, *args, **kwargs)
    if req in adder.can_run_list:
        _half.table.extended(req.last_node)
    return result


def _continue(original: Callable[..., Any], adder: Any, req: Any) -> Any:
    """AROUND add_chunked_req: the next part of a prompt finds the room that it had when it was admitted."""
    if _half and _half.table and not _half.table.is_speculative(req.rid):
        wanted = min(req.extend_input_len, adder.rem_chunk_tokens)
        while adder.rem_total_tokens < wanted and _half.pressure.free_kv():
            pass
    return original(adder, req)


def _reserve(original: Callable[..., float], adder: Any, req: Any) -> float:
    """AROUND _get_running_request_total_token_offset: branches reserve nothing."""
    return 0 if _half and _half.table.is_speculative(req.rid) else original(adder, req)


def _check_decode(original: Callable[..., bool], batch: Any, selected_indices: Any = None) -> bool:
    """AROUND check_decode_mem: what ordinary requests lack, branches give, before any retraction."""
    fits = original(batch, selected_indices)
    if fits or not (_half and _half.table):
        return fits
    free = _half.pressure.free_kv if selected_indices is None else _half.pressure.free_idle_kv
    while not fits and free():
        fits = original(batch, selected_indices)
    return fits


def _release(original: Callable[..., None], req: Any, tree_cache: Any, is_insert: bool = True) -> None:
    """AROUND release_kv_cache."""
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    entry = _half.table[req.rid] if _half else None
    if not _half or entry is None or not req.finished():  # unfinished: a retraction, it will be back
        return original(req, tree_cache, is_insert)
    aborted = isinstance(req.finished_reason, FINISH_ABORT)
    ids = None if aborted else (req.origin_input_ids + req.output_ids)[: req._cache_commit_len()]
    cached = tree.Path(req.last_node, req.cache_protected_len)
    return _half.table.released(entry, ids, cached, lambda insert: original(req, tree_cache, insert))


def _flush(original: Callable[..., bool], scheduler: Any, *args: Any, **kwargs: Any) -> bool:
    """AROUND flush_cache: locks do not outlive the tree."""
    if _half and _half.table and scheduler.is_fully_idle():
        _half.table.lose_all("the cache was flushed")
    return original(scheduler, *args, **kwargs)


def _aborted(result: None, scheduler: Any, recv_req: Any) -> None:
    """AFTER abort_request."""
    if _half and recv_req.abort_all:
        _half.table.lose_all("all requests were aborted")


def _new_weights(updater: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE update_weights_from_*: the front has ended all branches; this is the second safety net."""
    if _half:
        _half.table.lose_all("the weights were updated")


_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
_POLICY = "sglang.srt.managers.schedule_policy"
_UPDATER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"

HOOKS = (
    Hook(f"{_SCHEDULER}.init_request_dispatcher", ("self",), _attach, "after"),
    Hook(f"{_SCHEDULER}._add_request_to_queue", ("self", "req", "is_retracted"), _queueing, "before"),
    Hook(f"{_SCHEDULER}._add_request_to_queue", ("self", "req", "is_retracted"), _queued, "after"),
    Hook(f"{_SCHEDULER}.get_next_batch_to_run", ("self",), _next_batch, "before"),
    Hook(
        f"{_SCHEDULER}._get_new_batch_prefill_raw",
        ("self", "prefill_delayer_single_pass"),
        _next_prefill,
        "before",
    ),
    Hook(f"{_SCHEDULER}.flush_cache", ("self", "empty_cache"), _flush, "around"),
    Hook(f"{_SCHEDULER}.abort_request", ("self", "recv_req"), _aborted, "after"),
    Hook(
        f"{_POLICY}.SchedulePolicy.calc_priority",
        ("self", "waiting_queue", "running_batch"),
        _order,
        "around",
    ),
    Hook(
        f"{_POLICY}.PrefillAdder.add_one_req",
        ("self", "req", "has_chunked_req", "truncation_align_size"),
        _admit,
        "around",
    ),
    Hook(f"{_POLICY}.PrefillAdder.add_chunked_req", ("self", "req"), _continue, "around"),
    Hook(
        f"{_POLICY}.PrefillAdder._get_running_request_total_token_offset",
        ("self", "req"),
        _reserve,
        "around",
    ),
    Hook(
        "sglang.srt.managers.schedule_batch.ScheduleBatch.check_decode_mem",
        ("self", "selected_indices"),
        _check_decode,
        "around",
    ),
    Hook(
        "sglang.srt.mem_cache.common.release_kv_cache", ("req", "tree_cache", "is_insert"), _release, "around"
    ),
    *(
        Hook(f"{_UPDATER}.update_weights_from_{source}", ("self", "recv_req"), _new_weights, "before")
        for source in ("disk", "distributed", "tensor", "ipc")
    ),
)
