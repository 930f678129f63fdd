"""An event loop whose clock jumps to the next timer: seconds of engine and tool time pass at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_THREADS_S = 10.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Also counts its iterations, so that a test can act at each of them."""

    def __init__(self) -> None:
        self._now = 0.0
        self.iteration = 0
        self.on_iteration: Callable[[int], None] = lambda iteration: None
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def _run_once(self) -> None:
        self.iteration += 1
        self.on_iteration(self.iteration)
        super()._run_once()  # type: ignore[misc]


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:  # only a thread can still make something happen
            events = super().select(_THREADS_S)
            assert events, "everything waits, and nothing is left that could happen"
            return events
        events = super().select(0)
        if not events:
            self._loop.advance(timeout)
        return events


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time, and check that nothing was left running."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(main)
        left = asyncio.all_tasks(runner.get_loop())
        assert not left, f"tasks left running: {left}"
        return result


def cancel_everywhere(make: Callable[[], Coroutine[Any, Any, object]], check: Callable[[], None]) -> int:
    """Run `make()` again and again, cancelled at each iteration of the loop in turn, until it ends before.

    `check` runs after each, in the loop. Returns the number of runs that were cancelled.
    """

    async def once(iteration: int) -> bool:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        task = asyncio.create_task(make())
        first = loop.iteration

        def cancel(now: int) -> None:
            if now == first + iteration:
                task.cancel()

        loop.on_iteration = cancel
        await asyncio.wait({task})
        check()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"cancelled at iteration {iteration}, tasks left running: {left}"
        if not task.cancelled():
            task.result()
        return task.cancelled()

    cancelled = 0
    for iteration in range(10_000):
        if run(once(iteration)):
            cancelled += 1
        elif iteration > cancelled + 5:
            return cancelled
    raise AssertionError("it never ended before it was cancelled")
