"""A fixed clock for the programs of a sandbox, by libfaketime: every program starts at the same moment.

The kernel's clock is not ours to set, so this is between a program and its library: one that is statically
linked, or asks the kernel itself, sees the real time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tasks.sandbox.base import Sandbox, SandboxError

_FIND = "ls /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 2>/dev/null"
_TIMEOUT_S = 20.0


async def variables(sandbox: Sandbox, start: datetime) -> Mapping[str, str]:
    """What programs need in their environment to start at a moment (UTC). Raises SandboxError."""
    found = (await sandbox.run(["sh", "-c", _FIND], _TIMEOUT_S, cwd="/")).stdout.decode().split()
    if not found:
        raise SandboxError(
            "a fixed clock (sandbox.clock) needs libfaketime in the image: apt-get install libfaketime, "
            "on the host where the image is the host's own system"
        )
    return {
        "LD_PRELOAD": found[0],
        "FAKETIME": f"@{start:%Y-%m-%d %H:%M:%S}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
