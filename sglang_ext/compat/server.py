"""The HTTP server's process of SGLang 0.5.14: its TokenizerManager, and the hooks on it."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from sglang_ext.compat import engines
from sglang_ext.front.branch import Chunk, GivenUp
from sglang_ext.front.branches import Branches
from sglang_ext.front.metrics import Metrics
from sglang_ext.front.routes import Routes
from sglang_ext.front.settings import Settings
from sglang_ext.hooks import Hook
from sglang_ext.messages import Commit, Drop, Dropped, Hello, Lost, Open, Reclaimed, Release

logger = logging.getLogger(__name__)


class Server:
    """One TokenizerManager."""

    def __init__(self, manager: Any):
        self._manager = manager

    async def generate(
        self,
        branch_id: str,
        ids: Sequence[int],
        sampling_params: dict[str, Any],
        extra_key: str | None,
        return_logprob: bool,
    ) -> AsyncGenerator[Chunk]:
        """Chunks of an ordinary request with the branch's id. Raises GivenUp where the engine ends it."""
        from sglang.srt.managers.io_struct import GenerateReqInput

        request = GenerateReqInput(
            rid=branch_id,
            input_ids=list(ids),
            sampling_params=dict(sampling_params),
            extra_key=extra_key,
            return_logprob=return_logprob,
            stream=True,
        )
        request._is_a_branch = True  # nothing that came over HTTP has it
        sent = 0
        async for output in self._manager.generate_request(request, None):
            meta = output["meta_info"]
            finish = meta["finish_reason"]
            if finish is not None and finish["type"] == "abort":
                raise GivenUp(finish.get("message") or "the engine aborted it")
            total = meta["completion_tokens"]
            fresh = total - sent
            triples = meta.get("output_token_logprobs") or []
            yield Chunk(
                list(output["output_ids"][-fresh:]) if fresh else [],
                [triple[0] for triple in triples[-fresh:]] if fresh and return_logprob else None,
                finish,
                meta.get("weight_version"),
            )
            sent = total

    def check(self, longest: int, ids: Iterable[int], sampling_params: dict[str, Any]) -> None:
        from sglang.srt.sampling.sampling_params import SamplingParams

        manager = self._manager
        most = manager.max_req_input_len or manager.context_len - 6
        if longest >= most:
            raise ValueError(f"parent and candidate have {longest} tokens, and this engine takes {most - 1}")
        new_tokens = sampling_params["max_new_tokens"]
        if longest + new_tokens > manager.context_len:
            raise ValueError(
                f"parent and candidate have {longest} tokens, which with {new_tokens} new ones are more than "
                f"the {manager.context_len} of this model"
            )
        vocabulary = manager.model_config.vocab_size
        if (worst := max(ids)) >= vocabulary:
            raise ValueError(f"token {worst} is outside the vocabulary of {vocabulary}")
        seed = sampling_params.get("sampling_seed")
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**63):
            raise ValueError("sampling_params.sampling_seed must be a whole number from 0 to 2**63 - 1")
        params = SamplingParams(**sampling_params)
        params.normalize(manager.tokenizer)
        params.verify(vocabulary)

    def listen(self) -> None:
        self._manager.auto_create_handle_loop()

    def send(self, message: Open | Commit | Release | Drop) -> None:
        self._manager.send_to_scheduler.send_pyobj(message)

    def abort(self, branch_id: str) -> None:
        self._manager.abort_request(branch_id)

    def forget(self, branch_id: str) -> None:
        self._manager.rid_to_state.pop(branch_id, None)

    def unavailable(self) -> str | None:
        return "generation is paused" if self._manager.is_pause else None


_branches: Branches | None = None
_refused: str | None = None


def refuse(reason: str) -> None:
    """Say so to whoever asks for branches in this process."""
    global _refused
    _refused = reason


def _attach(result: None, manager: Any) -> None:
    """AFTER init_request_dispatcher: the FastAPI application exists, the scheduler may not yet."""
    global _branches
    from sglang.utils import TypeBasedDispatcher

    from sglang_ext import sampling

    args = manager.server_args
    metrics = Metrics()
    reason = _refused or engines.refusal(args)
    _branches = Branches(Server(manager), Settings.from_environment(), metrics, reason)
    manager._result_dispatcher += TypeBasedDispatcher(
        [
            (Hello, _branches.on_hello),
            (Dropped, _branches.on_dropped),
            (Lost, _branches.on_lost),
            (Reclaimed, _branches.on_reclaimed),
        ]
    )
    routes = Routes(
        _branches,
        metrics,
        seeds=sampling.honours_seeds(args),
        batch_invariant=sampling.is_batch_invariant(args),
    )
    routes.add_to(sys.modules["sglang.srt.entrypoints.http_server"].app)
    # A warning, because that is the level at which engines log.
    logger.warning("obsspec plugin ready: GET /branch (%s)", _branches.reason or "branches are supported")


def _guard(manager: Any, obj: Any, request: Any = None) -> None:
    """BEFORE generate_request: nobody else takes a request id that is reserved for branches, or that is the
    beginning of one: SGLang aborts by prefix.
    """
    manager.auto_create_handle_loop()
    reserved = engines.RESERVED
    rids = obj.rid if isinstance(obj.rid, list) else [obj.rid]
    if not getattr(obj, "_is_a_branch", False) and any(
        isinstance(rid, str) and rid and (rid.startswith(reserved) or reserved.startswith(rid))
        for rid in rids
    ):
        raise ValueError(f"request ids that begin with {reserved!r} belong to branches: take another")


def _closing(reason: str) -> Callable[..., Awaitable[Any]]:
    """AROUND a coroutine that no branch may see the end of."""

    async def hook(original: Callable[..., Awaitable[Any]], manager: Any, *args: Any, **kwargs: Any) -> Any:
        if _branches is None:
            return await original(manager, *args, **kwargs)
        manager.auto_create_handle_loop()
        async with _branches.closed(reason):
            return await original(manager, *args, **kwargs)

    return hook


_MANAGER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
_REQUEST = ("self", "obj", "request")

HOOKS = (
    Hook(f"{_MANAGER}.init_request_dispatcher", ("self",), _attach, "after"),
    Hook(f"{_MANAGER}.generate_request", _REQUEST, _guard, "before"),
    *(
        Hook(
            f"{_MANAGER}.update_weights_from_{source}",
            _REQUEST,
            _closing("the weights are being updated"),
            "around",
        )
        for source in ("disk", "distributed", "tensor", "ipc")
    ),
    Hook(
        f"{_MANAGER}.release_memory_occupation",
        _REQUEST,
        _closing("the engine's memory is being released"),
        "around",
    ),
    Hook(f"{_MANAGER}.flush_cache", ("self", "timeout_s"), _closing("the cache is being flushed"), "around"),
    Hook(f"{_MANAGER}.pause_generation", ("self", "obj"), _closing("generation is being paused"), "around"),
)
