"""Task groups for code whose callers expect one exception, not a group of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from obsspec.errors import ProcessError


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that raises one of its exceptions as it is.

    A ProcessError comes first: a process that ended explains whatever else went wrong.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        ended = [error for error in errors.exceptions if isinstance(error, ProcessError)]
        raise (ended or errors.exceptions)[0] from None
