"""What a person sees while processes start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from obsspec.processes.stack import Event


@contextmanager
def starting(console: Console) -> Iterator[Callable[[Event], None]]:
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
