"""Observations already seen of the same command in the same environment; they cost nothing.

`memo/exact`: after exactly the same commands. `memo/effects`: after the same commands but for those that
only read. `memo/command`, where neither knows any: whatever the commands before; how far that holds is for
the governor to learn. Rollouts of a group often run the same commands at the same time, so an observation
may also come from another rollout while this one's tool still runs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.predictors.base import Candidate, PredictionContext, Predictor, PredictorTools, TokenMeter

_Key = tuple[str | bytes, ...]
_LOOSEST = "memo/command"
_KEPT = 4
"""Different observations kept of one key, the latest last."""


@dataclass
class _Entry:
    seen: dict[str, int] = field(default_factory=dict)
    """How often each observation was seen."""

    def add(self, observation: str) -> None:
        count = self.seen.pop(observation, 0)
        self.seen[observation] = count + 1
        while len(self.seen) > _KEPT:
            del self.seen[next(iter(self.seen))]


class Memo:
    name: str = "memo"
    ranks: int | None = 1

    def __init__(self, entries: int):
        """`entries`: keys kept; those used longest ago are forgotten first."""
        self._capacity = entries
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._waiting: defaultdict[_Key, set[asyncio.Event]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._entries)

    def recall(self, context: PredictionContext) -> Sequence[Candidate]:
        candidates: dict[str, Candidate] = {}
        for source, key in _keys(context):
            if (entry := self._entries.get(key)) is None:
                continue
            self._entries.move_to_end(key)
            if source == _LOOSEST and candidates:
                continue
            total = sum(entry.seen.values())
            for text in sorted(entry.seen, key=entry.seen.__getitem__)[::-1]:
                confidence = (entry.seen[text] + 1) / (total + 1 + len(entry.seen))
                candidates.setdefault(text, Candidate(text, source, confidence))
        return tuple(candidates.values())

    def source(self, rank: int) -> None:
        return None

    async def predict(
        self, context: PredictionContext, rank: int, meter: TokenMeter
    ) -> AsyncGenerator[Candidate]:
        """What other rollouts see from now on."""
        known = {candidate.text for candidate in self.recall(context)}
        news = asyncio.Event()
        keys = [key for _, key in _keys(context)]
        for key in keys:
            self._waiting[key].add(news)
        try:
            while True:
                await news.wait()
                news.clear()
                for candidate in self.recall(context):
                    if candidate.text not in known:
                        known.add(candidate.text)
                        yield candidate
        finally:
            for key in keys:
                self._waiting[key].discard(news)
                if not self._waiting[key]:
                    del self._waiting[key]

    def learn(self, context: PredictionContext, observation: str) -> None:
        for _, key in _keys(context):
            self._entries.setdefault(key, _Entry()).add(observation)
            self._entries.move_to_end(key)
            for news in self._waiting.get(key, ()):
                news.set()
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


def _keys(context: PredictionContext) -> Iterator[tuple[str, _Key]]:
    """From the surest to the least sure."""
    where, history = (context.task_id, context.environment), context.history
    yield "memo/exact", (*where, "exact", history.commands, context.command)
    yield "memo/effects", (*where, "effects", history.effects, context.command)
    yield _LOOSEST, (*where, "command", context.command)


def create(tools: PredictorTools) -> Predictor:
    return Memo(tools.memo_entries)
