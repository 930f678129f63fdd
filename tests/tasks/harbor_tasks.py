"""Task directories as other people make them, for tests that read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILES = {
    "task.toml": """\
version = "1.0"

[metadata]
difficulty = "easy"

[agent]
timeout_sec = 300.0

[environment]
memory_mb = 2048
""",
    "instruction.md": "Make the file `result`.\n\nIt holds one word.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nRUN apt-get update\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/bash\npytest /tests/test_result.py && echo 1 > /logs/verifier/reward.txt\n",
    "tests/test_result.py": "def test_result():\n    assert open('/app/result').read()\n",
    "solution/solve.sh": "#!/bin/bash\necho word > /app/result\n",
}


def make(path: Path, changes: Mapping[str, str | bytes | None] | None = None) -> Path:
    """A valid task at `path`, with files changed, added, or (None) left out."""
    for name, content in {**FILES, **(changes or {})}.items():
        if content is None:
            continue
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if name.endswith(".sh"):
            file.chmod(0o755)
    return path
