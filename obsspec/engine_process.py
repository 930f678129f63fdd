"""The process of one engine: SGLang's server with its plugins, none of whose children outlives it.

On a CPU the scheduler and the detokenizer are forked rather than spawned. Each would otherwise import
torch and SGLang again, 13 s of computing that two engines on two cores cannot hide: 19 s to the first
token instead of 47. Forking is safe there: no thread and no CUDA context exists yet.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from obsspec.processes.lifetime import bind_descendants, follow_parent


def main(argv: list[str]) -> None:
    """Serve until told to stop. Arguments are those of `sglang serve`."""
    bind_descendants()
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    args = prepare_server_args(argv)
    if args.device == "cpu" and args.tp_size == args.dp_size == args.pp_size == 1:
        HookRegistry.register("sglang.srt.entrypoints.engine._set_envs_and_config", _fork, HookType.AFTER)
        HookRegistry.apply_hooks()
    from sglang.srt.entrypoints.http_server import launch_server

    try:
        launch_server(args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _fork(result: None, *args: object) -> None:
    multiprocessing.set_start_method("fork", force=True)


if __name__ == "__mp_main__":
    follow_parent()
elif __name__ == "__main__":
    main(sys.argv[1:])
