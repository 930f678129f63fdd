"""Which engines can hold branches, and why the others cannot."""

from __future__ import annotations

from typing import Any

VERSION = "0.5.14"
RESERVED = "obsspec-branch-"
"""How the request ids of branches begin, and no others."""


def refusal(args: Any) -> str | None:
    """Why an engine with these ServerArgs cannot hold branches; None: nothing speaks against it.

    What only the scheduler knows (which cache it made of them) is checked by `tree.refusal`.
    """
    checks = (
        (args.disable_radix_cache, "the radix cache is off (--disable-radix-cache)"),
        (args.tokenizer_worker_num > 1, "plugins are not loaded into several HTTP workers"),
        (args.dp_size > 1, "several data-parallel schedulers share one server: run one server for each"),
        (args.pp_size > 1, "pipeline parallelism schedules several batches at once"),
        (args.speculative_algorithm is not None, "speculative decoding keys the cache by pairs of tokens"),
        (args.disaggregation_mode != "null", "prefill and decode run on different engines"),
        (args.enable_hierarchical_cache, "the hierarchical cache moves KV between memories"),
        (args.enable_streaming_session, "streaming sessions pin the cache themselves"),
        (args.dllm_algorithm is not None, "a diffusion model does not generate from left to right"),
    )
    return next((reason for met, reason in checks if met), None)
