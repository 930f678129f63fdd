"""The local equivalent of a test runner that `tests/test.sh` would download.

Most task sets fetch `uv` and let it fetch pytest. Where a sandbox has no network that cannot work, and to
download the same packages for every rollout would be a waste. Instead the packages that a test.sh names are
installed once for a base image, and put into the sandbox when the tests are, beside programs that stand in
for uv, pip and their like (`stand_ins.sh`). The version of Python is the image's own, whatever test.sh asks
for.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tasks.sandbox.archive import EPOCH

FOLDER = "/opt/verifier"
"""Where it is put; first on the PATH of test.sh."""
SITE = f"{FOLDER}/site"
"""The packages; on the PYTHONPATH of test.sh."""
FAILURES = f"{FOLDER}/failures"
"""What test.sh could not do in spite of the stand-ins, a line each."""
NAMES = ("uv", "uvx", "pip", "pip3", "pipx", "pytest", "py.test", "curl", "wget", "apt-get", "apt")
_FOR_OLD_PYTHONS = ("exceptiongroup", "tomli", "typing-extensions")


@dataclass(frozen=True)
class RunnerNeeds:
    """What a test.sh wants to have downloaded."""

    packages: tuple[str, ...]
    """Of Python; none: the programs alone are put there."""


def dockerfile(image: str, packages: tuple[str, ...]) -> str:
    """How they are installed, for the builder."""
    words = " ".join(shlex.quote(package) for package in (*packages, *_FOR_OLD_PYTHONS))
    pip = "python3 -m pip"
    options = f"--no-cache-dir --no-compile --root-user-action ignore --target {SITE}"
    return (
        f"FROM {image}\n"
        f"RUN {pip} --version || (apt-get update && apt-get install -y --no-install-recommends python3-pip)\n"
        f"RUN {pip} install {options} {words}\n"
    )


def programs() -> bytes:
    """Tar bytes of the stand-ins, for `/`. Any user may write to FAILURES."""
    text = Path(__file__).with_name("stand_ins.sh").read_bytes()
    files = {f"{FOLDER}/{name}": (text, 0o755) for name in NAMES} | {FAILURES: (b"", 0o666)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(name.lstrip("/"))
            info.size, info.mode, info.mtime = len(data), mode, EPOCH
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


_PROGRAMS = r"(?:uvx?|pytest|py\.test|pipx?|pip3|python3?(?:\.\d+)?)"
_SCRIPT = r"^[^\n:]*tests/[^\n:/]*\.sh: (?:line )?\d+: (?:exec: )?"
_BROKEN = re.compile(
    rf"{_SCRIPT}(?:[^\n: ]*/)?{_PROGRAMS}: (?:(?:command )?not found|No such file or directory)[^\n]*"
    r"|^[^\s:]*python[\d.]*: No module named '?pytest\b[^\n]*"
    r"|^(?:__main__\.py|[^\s:]*pytest): error: unrecognized arguments:[^\n]*"
    r"|^ERROR: file or directory not found: [^\n ]*tests/[^\n]*"
    r"|^E +File \"[^\n\"]*tests/[^\n]*(?=\n(?:[^\n]*\n){1,3}?E +SyntaxError: )",
    re.MULTILINE,
)
"""Said by the shell of test.sh, by Python for `-m pytest`, and by pytest itself: of its arguments, and of
tests that are for another version of Python. What the tests run says nothing in these words."""


def broken(output: str) -> str | None:
    """The line of a test.sh's output that says that its test runner could not run, if there is one."""
    found = _BROKEN.search(output)
    return None if found is None else " ".join(found[0].removeprefix("E ").split())
