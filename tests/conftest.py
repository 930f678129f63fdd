"""What tests of every package share: two real SGLang engines, started once a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from obsspec.config import Config, load_config
from obsspec.processes import Stack

REPOSITORY = Path(__file__).parents[1]
SHIPPED = {"policy": REPOSITORY / "models/tiny-policy", "world_model": REPOSITORY / "models/tiny-world-model"}


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shipped models, or untrained ones of the same kind where none are shipped; by role."""
    if all((folder / "config.json").is_file() for folder in SHIPPED.values()):
        return SHIPPED
    from tasks.tools import SYSTEM, TOOLS
    from trainer.config import ModelConfig
    from trainer.models import create
    from trainer.tokenizer import train

    tokenizer = train(["ls notes\n", "cat notes\n"], system=SYSTEM, tools=TOOLS, vocab_size=1400, merges=32)
    shape = ModelConfig(hidden_size=64, intermediate_size=128, layers=2, heads=2, kv_heads=2, head_dim=32)
    root = tmp_path_factory.mktemp("models")
    for seed, role in enumerate(SHIPPED):
        create(shape, tokenizer, seed, root / role)
    return {role: root / role for role in SHIPPED}


@pytest.fixture(scope="session")
def config_file(model_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with those models and free ports."""
    file = tmp_path_factory.mktemp("config") / "test.yaml"
    engines = {role: {"model": str(folder)} for role, folder in model_folders.items()}
    file.write_text(yaml.safe_dump({"engines": engines, "orchestrator": {"port": 0}}))
    return file


@pytest.fixture(scope="session")
def engines(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """Both engines, running; the configuration says where. Only for tests marked `engine`."""
    stack = Stack(load_config(config_file), tmp_path_factory.mktemp("engines"), service=False)
    with asyncio.Runner() as runner:
        runner.run(stack.start())
        try:
            yield stack.config
        finally:
            runner.run(stack.stop())
