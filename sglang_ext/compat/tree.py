"""The radix cache as branches need it: match, lock, prune, sizes. For `RadixCache` of SGLang 0.5.14."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sglang.srt.mem_cache.radix_cache import RadixCache, TreeNode


class Path(NamedTuple):
    """The cached part of some token ids."""

    node: TreeNode
    """Where it ends; an end on a node's border is made by splitting the node."""
    length: int
    """Tokens from the root to the end of `node`."""


class Sizes(NamedTuple):
    """Tokens of the KV cache. Constant in sum while no request runs."""

    available: int
    evictable: int
    protected: int


def refusal(cache: Any) -> str | None:
    """Why branches cannot be held in this cache; None: they can."""
    from sglang.srt.mem_cache.radix_cache import RadixCache

    if type(cache) is not RadixCache:
        return f"the cache is a {type(cache).__name__}, not SGLang's plain radix cache"
    if cache.disable:
        return "the radix cache is off"
    return None


class Tree:
    """A RadixCache. A locked node and all above it cannot be evicted."""

    def __init__(self, cache: RadixCache):
        self._cache = cache

    def match(self, ids: array[int], extra_key: str | None = None) -> Path:
        """The longest cached prefix of `ids`, in whole pages."""
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        result = self._cache.match_prefix(MatchPrefixParams(key=RadixKey(ids, extra_key)))
        return Path(result.last_device_node, len(result.device_indices))

    def lock(self, node: TreeNode) -> None:
        self._cache.inc_lock_ref(node)

    def unlock(self, node: TreeNode) -> None:
        self._cache.dec_lock_ref(node)

    def prune(self, path: Path, keep: int) -> int:
        """Free the end of `path` beyond its first `keep` tokens; returns the tokens freed.

        Stops where a lock or another continuation begins: what somebody else uses stays.
        """
        cache, (node, length) = self._cache, path
        keep -= keep % cache.page_size
        freed = 0
        while length > keep and node.lock_ref == 0 and not node.children:
            start = length - len(node.key)
            if start < keep:
                cache._split_node(node.key, node, keep - start)
                start = keep
            cache.token_to_kv_pool_allocator.free(node.value)
            freed += len(node.value)
            cache._delete_leaf(node)
            cache._record_remove_event(node)
            node, length = node.parent, start
        return freed

    def is_above(self, node: TreeNode, below: TreeNode | None) -> bool:
        """Whether `node` lies on the way from the root to `below`, its end included."""
        while below is not None:
            if below is node:
                return True
            below = below.parent
        return False

    def sizes(self) -> Sizes:
        cache = self._cache
        available = cache.token_to_kv_pool_allocator.available_size()
        return Sizes(available, cache.evictable_size(), cache.protected_size())
