"""What a person sees while processes start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from rich.console import Console

from obsspec.config import Config
from obsspec.processes.stack import Event, Stack


@asynccontextmanager
async def announced(config: Config, folder: Path, console: Console) -> AsyncIterator[Stack]:
    """A `Stack` that is up inside, with a line printed for each process that is ready."""
    async with AsyncExitStack() as stack:
        with _starting(console) as report:
            up = await stack.enter_async_context(Stack(config, folder, report=report))
        yield up


@contextmanager
def _starting(console: Console) -> Iterator[Callable[[Event], None]]:
    """Give to a Stack as `report`: names what is awaited, and prints a line for each that is ready."""
    awaited: dict[str, str] = {}
    with console.status("Starting") as status:

        def report(event: Event) -> None:
            if event.state == "starting":
                awaited[event.name] = event.url
            else:
                del awaited[event.name]
                console.print(f"{event.name} ready on {event.url} after {event.seconds:.0f} s")
            status.update(f"Waiting for {', '.join(awaited)}" if awaited else "Starting")

        yield report
