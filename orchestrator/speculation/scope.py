"""What rollouts learn from one another: the memories of predictors, and the governor's measurements."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import structlog

from orchestrator.predictors.base import PredictionContext, Predictor
from orchestrator.speculation.governor import Governor
from orchestrator.speculation.load import Load

Create = Callable[[str], Predictor]

log = structlog.get_logger()

_SCOPES = 64


class Scope:
    def __init__(self, governor: Governor, create: Create):
        self.governor = governor
        self._create = create
        self._predictors: dict[str, Predictor] = {}

    def predictor(self, name: str) -> Predictor:
        """Raises Unavailable."""
        if name not in self._predictors:
            self._predictors[name] = self._create(name)
        return self._predictors[name]

    def learn(self, context: PredictionContext, kind: str, tool_s: float, observation: str) -> None:
        """A tool has returned, in a rollout of this scope."""
        self.governor.returned(kind, tool_s)
        for predictor in self._predictors.values():
            try:
                predictor.learn(context, observation)
            except Exception:  # what it does not learn costs the rollout nothing
                log.exception("a predictor could not learn", predictor=predictor.name)


class Scopes:
    """By name; those used longest ago are forgotten first."""

    def __init__(self, create: Create):
        """`create`: a fresh predictor by its name; raises Unavailable."""
        self.load = Load()
        """Of the policy's engine, whoever asks."""
        self._create = create
        self._scopes: OrderedDict[str, Scope] = OrderedDict()

    def __getitem__(self, name: str) -> Scope:
        if name not in self._scopes:
            self._scopes[name] = Scope(Governor(self.load), self._create)
        self._scopes.move_to_end(name)
        if len(self._scopes) > _SCOPES:
            self._scopes.popitem(last=False)
        return self._scopes[name]

    def check(self, names: Iterable[str]) -> None:
        """Raises Unavailable for a predictor that cannot be had."""
        for name in names:
            self._create(name)

    def items(self) -> list[tuple[str, Scope]]:
        return list(self._scopes.items())
