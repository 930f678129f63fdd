"""Running a coroutine that starts processes: stopped cleanly by a signal, with a folder of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

from obsspec.errors import ConfigError


def run(body: Coroutine[Any, Any, None]) -> bool:
    """Run `body` to its end. SIGINT and SIGTERM cancel it, so that it cleans up; True if one did."""

    async def interruptible() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        await body

    try:
        asyncio.run(interruptible())
    except asyncio.CancelledError:
        return True
    return False


def new_folder(runs: Path) -> Path:
    """A new folder below `runs`, named after the time. Raises ConfigError where none can be made."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{i}" for i in range(2, 100))):
        folder = runs.resolve() / f"{now}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(
                f"--runs {runs}: cannot make a folder there ({error.strerror}); name another place"
            ) from error
        return folder
    raise FileExistsError(f"a hundred runs began at {now}")
