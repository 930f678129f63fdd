"""How one SGLang server is started: its arguments, its environment, and what must hold before.

The defaults for a CPU were measured on two cores with a model of 5M parameters (tokens/s alone and at
four streams): bfloat16 84 and 198, float32 97 and 239, and without overlapped scheduling 110 and 295.
"""

from __future__ import annotations

import sys

import httpx

from obsspec.config import EngineConfig, Role
from obsspec.errors import ConfigError, ProcessError
from obsspec.processes import ports
from obsspec.processes.child import Command

_CPU_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    # With more threads than cores the spinning barriers of two engines starve each other.
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


def name(role: Role) -> str:
    """What messages call the engine of that role."""
    return f"{role.replace('_', '-')}-engine"


def check(role: Role, engine: EngineConfig) -> None:
    """Raises ConfigError or ProcessError where the engine cannot start, which SGLang would say at length."""
    if not (engine.model / "config.json").is_file():
        raise ConfigError(
            f"engines.{role}.model: no model in {engine.model} (no config.json there); "
            f"name a folder that transformers saved, or make the tiny ones with 'obsspec warmstart'"
        )
    ports.require_free(name(role), engine.host, engine.port)


def arguments(engine: EngineConfig) -> list[str]:
    """Arguments of `sglang serve`."""
    options: dict[str, object] = {
        "model-path": engine.model,
        "host": engine.host,
        "port": engine.port,
        "device": engine.device,
        "dtype": "float32" if (engine.dtype, engine.device) == ("auto", "cpu") else engine.dtype,
        "mem-fraction-static": engine.memory_fraction,
        "context-length": engine.context_length,
        "max-total-tokens": engine.max_total_tokens,
        "max-running-requests": engine.max_running_requests,
        "log-level": "warning",
    }
    # Tokens in, tokens out: no text, so no detokenizer between the scheduler and the front; a chunk carries
    # its own tokens only, not all since the first.
    flags = ["--skip-tokenizer-init", "--skip-server-warmup", "--incremental-streaming-output"]
    if engine.device == "cpu":
        # An idle scheduler would otherwise keep a core busy; overlapping two steps needs a second one.
        flags += ["--sleep-on-idle", "--disable-overlap-schedule"]
    pairs = ((f"--{key}", str(value)) for key, value in options.items() if value is not None)
    return [*(part for pair in pairs for part in pair), *flags, *engine.extra_args]


def command(
    role: Role, engine: EngineConfig, scratch: str | None = None, api_key: str | None = None
) -> Command:
    """The process of an engine; its sockets and temporary files go to `scratch`, which outlives it."""
    env = {
        "SGLANG_PLUGINS": "obsspec",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
        **{f"OBSSPEC_BRANCH_{key.upper()}": str(value) for key, value in engine.branches},
        "OBSSPEC_BATCH_INVARIANT": str(int(engine.batch_invariant)),
        **(_CPU_ENVIRONMENT if engine.device == "cpu" else {}),
        **({"TMPDIR": scratch} if scratch else {}),
    }
    key = ["--api-key", api_key] if api_key else []
    return Command(
        name=name(role),
        argv=[sys.executable, "-m", "obsspec.engine_process", *arguments(engine), *key],
        # Answers after a token went through the scheduler.
        ready_url=f"{engine.url}/health_generate",
        env=env,
        startup_timeout_s=engine.startup_timeout_s,
        # Its clients are gone by then; SGLang's own way out of SIGTERM is SIGKILL after 5 s.
        stop_timeout_s=0,
    )


async def require_plugin(name: str, url: str, api_key: str | None = None) -> None:
    """Raises ProcessError where a ready engine runs without the plugin, which SGLang itself only logs."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            answer = await client.get(f"{url}/branch", timeout=30)
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ProcessError(f"{name} was ready and no longer answers on {url} ({reason})") from error
    if answer.status_code != 200:
        raise ProcessError(
            f"{name} runs without the obsspec plugin (GET {url}/branch answers {answer.status_code}): "
            f"'make setup' installs its entry point, and the engine's log says why it did not load"
        )
