"""`obsspec warmstart`: from nothing to the two tiny models, in one folder; what is finished there is kept.

1. demonstrations/: the experts at work in real sandboxes.
2. data/: the tokenizer, and the demonstrations as trajectories of its tokens.
3. policy/, world-model/: the two trainings, side by side, a process and a thread each.
4. The finished models, copied to where the configuration's engines look for them, with provenance.json.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from obsspec import demonstrations
from obsspec.config import Config, Role
from obsspec.errors import ProcessError
from obsspec.processes import lifetime
from orchestrator.chat import ChatFormat
from orchestrator.tokenizer import ModelTokenizer
from tasks.families.words import WORDS
from tasks.tools import TOOLS
from trainer.config import TokenizerConfig

Say = Callable[[str], None]
ROLES: dict[Role, str] = {"policy": "policy", "world_model": "world-model"}


def warmstart(config: Config, out: Path, command: str, say: Say) -> dict[str, Any]:
    """Make both models; returns the provenance, whose times are those of each training alone.

    Raises ConfigError, before the work, where a model has no place; ProcessError when a training fails.
    """
    targets: dict[Role, Path] = {role: config.engine(role).model for role in ROLES}
    out.mkdir(parents=True, exist_ok=True)
    demos = demonstrations.collect(
        config.demonstrations, out / "demonstrations", lambda n, of: say(f"demonstrations: {n} of {of}")
    )
    data = out / "data"
    _write_data(demos, config.warmstart.tokenizer, config.orchestrator.system, data)
    final = _train(config, data, out, say)
    provenance = {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "threads": len(ROLES),
        "config": config.warmstart.model_dump(mode="json"),
        "demonstrations": config.demonstrations.model_dump(mode="json"),
        "training": final,
    }
    for role, folder in ROLES.items():
        _install(out / folder / "model", targets[role], provenance)
        say(f"{folder}: {targets[role]}")
    return provenance


def _write_data(
    demos: list[demonstrations.Demonstration], config: TokenizerConfig, system: str, data: Path
) -> None:
    """tokenizer/, train.jsonl and validation.jsonl, as `trainer.sft` reads them."""
    from trainer.tokenizer import train

    training = [d for d in demos if not demonstrations.is_validation(d)]
    validation = [d for d in demos if demonstrations.is_validation(d)]
    random.Random(0).shuffle(validation)
    fast = train(
        demonstrations.texts(training),
        system=system,
        tools=TOOLS,
        words=WORDS,
        vocab_size=config.vocab_size,
        merges=config.merges,
    )
    fast.save_pretrained(data / "tokenizer")
    tokenizer = ModelTokenizer.load(data / "tokenizer")
    chat = ChatFormat(tokenizer, system, TOOLS)
    for name, part in (("train", training), ("validation", validation)):
        with (data / f"{name}.jsonl").open("w") as file:
            for demonstration in part:
                file.write(demonstrations.trajectory(demonstration, chat, tokenizer).model_dump_json() + "\n")


def _train(config: Config, data: Path, out: Path, say: Say) -> dict[str, Any]:
    """Both trainings side by side; returns the last validation of each."""
    settings = out / "training.yaml"
    settings.write_text(yaml.safe_dump(config.warmstart.model_dump(mode="json")))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    running = {}
    try:
        for role, folder in ROLES.items():
            if _is_trained(out / folder, getattr(config.warmstart, role).model_dump_json(indent=1)):
                say(f"{folder}: found in {out / folder}")
                continue
            arguments = ["--config", settings, "--model", folder, "--data", data, "--out", out / folder]
            log = out / f"{folder}.log"
            say(f"{folder}: training, log in {log}")
            with log.open("w") as file:
                running[folder] = subprocess.Popen(
                    [*lifetime.launcher(), sys.executable, "-m", "trainer.sft", *map(str, arguments)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
        for folder, process in running.items():
            if process.wait() != 0:
                last = "".join((out / f"{folder}.log").read_text().splitlines(keepends=True)[-5:]).strip()
                raise ProcessError(f"training the {folder} ended with status {process.returncode}: {last}")
    finally:
        for process in running.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    return {folder: _last_metrics(out / folder / "metrics.jsonl") for folder in ROLES.values()}


def _is_trained(folder: Path, settings: str) -> bool:
    """Whether an earlier run finished this training with the same settings."""
    stamp = folder / "config.json"
    return (folder / "model").is_dir() and stamp.is_file() and stamp.read_text() == settings


def _last_metrics(path: Path) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    return last


def _install(model: Path, target: Path, provenance: dict[str, Any]) -> None:
    """Copy a model to its place: whole or not at all."""
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(model, fresh)
    (fresh / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
