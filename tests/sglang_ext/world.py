"""A scheduler in miniature around SGLang's own radix cache and allocators: no model, no batches, no clock."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

from sglang_ext.compat.tree import Path, Tree
from sglang_ext.messages import Dropped
from sglang_ext.scheduler.pressure import Pressure
from sglang_ext.scheduler.table import Table

CAPACITY, LONGEST = 512, 128


class Request:
    """What RadixCache reads and writes of SGLang's Req."""

    def __init__(self, rid: str, ids: Sequence[int]):
        self.rid = rid
        self.origin_input_ids, self.output_ids = array("q", ids), array("q")
        self.extra_key, self.priority = None, 0
        self.req_pool_idx: int | None = None
        self.last_node: Any = None
        self.prefix_indices = torch.empty(0, dtype=torch.int64)
        self.cache_protected_len = 0
        self.allocated = 0

    @property
    def ids(self) -> array[int]:
        return self.origin_input_ids + self.output_ids

    @property
    def kv_len(self) -> int:
        """Tokens with KV: the last one sampled has none yet."""
        return len(self.ids) - 1

    def get_fill_ids(self) -> array[int]:
        return self.ids[: self.kv_len]

    def pop_committed_kv_cache(self) -> int:
        return self.kv_len


class World:
    """Implements the table's Engine."""

    def __init__(self, page_size: int):
        kind = (TokenToKVPoolAllocator, ()) if page_size == 1 else (PagedTokenToKVPoolAllocator, (page_size,))
        self.allocator = kind[0](CAPACITY, *kind[1], torch.float32, "cpu", None, need_sort=False)  # type: ignore[arg-type]
        self.slots = ReqToTokenPool(8, LONGEST, "cpu", enable_memory_saver=False)
        self.cache = RadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.slots,
                token_to_kv_pool_allocator=self.allocator,
                page_size=page_size,
            )
        )
        self.page_size = page_size
        self.tree = Tree(self.cache)
        self.table = Table(self.tree, self)
        self.pressure = Pressure(self.table, lambda r: r in self.running, lambda r: r in self.queue)
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.sent: list[Any] = []

    # The table's Engine

    def end(self, request: Request, reason: str) -> bool:
        if request in self.queue:
            self.queue.remove(request)
            return True
        if request not in self.running:
            return True
        self.running.remove(request)
        self._release(request, finished=False)
        return False

    def has(self, request: Request) -> bool:
        return request in self.queue or request in self.running

    def made_room(self) -> None:
        pass  # nobody waits for it here

    def send(self, message: Any) -> None:
        self.sent.append(message)

    # A scheduler's day

    def submit(self, rid: str, ids: Sequence[int]) -> Request:
        request = Request(rid, ids)
        self.queue.append(request)
        if rid.startswith("b"):
            self.table.arrived(rid, request)
        return request

    def start(self, request: Request) -> bool:
        """Prefill, and sample the first token; False: there is no room."""
        cached = self.cache.match_prefix(
            MatchPrefixParams(key=RadixKey(request.origin_input_ids[:-1], request.extra_key))
        )
        length = len(cached.device_indices)
        self.cache.inc_lock_ref(cached.last_device_node)
        if not self.slots.free_slots or not self._allocate(
            request, length, len(request.origin_input_ids), cached.device_indices
        ):
            self.cache.dec_lock_ref(cached.last_device_node)
            return False
        request.last_node, request.cache_protected_len = cached.last_device_node, length
        self.queue.remove(request)
        self.running.append(request)
        request.output_ids.append(1000 + sum(request.origin_input_ids) % 7)
        self.cache.cache_unfinished_req(request)  # type: ignore[arg-type]
        if not self.table.is_speculative(request.rid):
            self.table.extended(request.last_node)
        return True

    def decode(self, request: Request) -> bool:
        """One more token; False: there is no room for it."""
        if len(request.ids) >= LONGEST or not self._allocate(request, request.kv_len, request.kv_len + 1):
            return False
        request.output_ids.append(1000 + len(request.output_ids))
        return True

    def finish(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request, finished=True)

    def evict(self, tokens: int) -> None:
        self.cache.evict(EvictParams(num_tokens=tokens))

    def uncached(self) -> int:
        """Tokens of KV that belong to running requests alone."""
        return sum(request.allocated - request.cache_protected_len for request in self.running)

    def accounted(self) -> int:
        return sum(self.tree.sizes()) + self.uncached()

    def dropped(self) -> list[Dropped]:
        return [message for message in self.sent if isinstance(message, Dropped)]

    def _allocate(self, request: Request, start: int, end: int, prefix: torch.Tensor | None = None) -> bool:
        size = self.page_size
        first, last = -(-max(start, request.allocated) // size), -(-end // size)
        if (need := (last - first) * size) > 0:
            if self.allocator.available_size() < need:
                self.evict(need)
            indices = self.allocator.alloc(need)
            if indices is None:
                return False
        if request.req_pool_idx is None:
            self.slots.alloc([request])  # type: ignore[list-item]
        row = request.req_pool_idx
        if prefix is not None:
            self.slots.write((row, slice(0, len(prefix))), prefix.to(torch.int32))
        if need > 0:
            self.slots.write((row, slice(first * size, last * size)), indices.to(torch.int32))
        request.allocated = last * size
        return True

    def _release(self, request: Request, finished: bool) -> None:
        def release(insert: bool) -> None:
            self.cache.cache_finished_req(request, is_insert=insert)  # type: ignore[arg-type]
            self.slots.free(request)  # type: ignore[arg-type]

        entry = self.table[request.rid]
        if entry is None:
            release(finished)
            return
        cached = Path(request.last_node, request.cache_protected_len)
        self.table.released(entry, request.ids[: request.kv_len] if finished else None, cached, release)
