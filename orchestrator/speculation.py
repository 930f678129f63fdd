"""Speculation over one tool call, at depth 1 and breadth 1: the preset `paper`.

The tool starts and the predictor is asked at the same time. A prediction opens a branch; when the tool
returns the same text, the branch is committed and its tokens are the next action, else it is dropped; a
tool that returns before there is a branch cancels the attempt. The branch ends exactly once, whatever
fails or is cancelled, and no failure or slowness of predictor or branch reaches the rollout: a drop is
not waited for, its figures come with `settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.action import SampledAction
from orchestrator.backends.base import Backend, BackendError, Branch, SamplingParams
from orchestrator.chat import ChatFormat
from orchestrator.predictors.base import Candidate, PredictionContext, Predictor
from orchestrator.schema import Outcome, Prediction, SpanKind
from orchestrator.spans import Attributes, Spans
from orchestrator.tools import Observation


class State(StrEnum):
    PREDICTING = "predicting"
    OPENING = "opening"
    SPECULATING = "speculating"
    """There is an open branch; in no other state is there one."""
    COMMITTED = "committed"
    DROPPED = "dropped"
    ABANDONED = "abandoned"
    """No branch came to be, or its commit failed: the rollout goes on as without speculation."""


_MOVES: dict[State, frozenset[State]] = {
    State.PREDICTING: frozenset({State.OPENING, State.ABANDONED}),
    State.OPENING: frozenset({State.SPECULATING, State.ABANDONED}),
    State.SPECULATING: frozenset({State.COMMITTED, State.DROPPED}),
    State.COMMITTED: frozenset({State.ABANDONED}),
    State.DROPPED: frozenset(),
    State.ABANDONED: frozenset(),
}


class IllegalMove(AssertionError):
    """A move that the table does not allow: a defect of this module."""


@dataclass(frozen=True)
class TurnResult:
    """The observation, what came of its prediction, and the next action if a branch was committed.

    Where a branch was dropped, `prediction` lacks its tokens and its overlap until `settle`.
    """

    observation: Observation
    returned_s: float
    """When the tool returned, in seconds since the rollout's start."""
    prediction: Prediction
    action: SampledAction | None = None


class SpeculativeTurn:
    """One tool call with speculation. Use once: `run`, and later, whatever came of it, `settle`."""

    def __init__(
        self,
        backend: Backend,
        predictor: Predictor,
        chat: ChatFormat,
        context: PredictionContext,
        params: Callable[[int], SamplingParams],
        spans: Spans,
        turn: int,
    ):
        """`params`: of the next action, given the length of its context in tokens; may raise."""
        self.turn = turn
        self.state = State.PREDICTING
        self._backend = backend
        self._predictor = predictor
        self._chat = chat
        self._context = context
        self._params = params
        self._spans = spans
        self._started_s = spans.now()
        self._opened_s = self._started_s
        self._predictor_s: float | None = None
        self._candidate: Candidate | None = None
        self._branch: Branch | None = None
        self._dropping: Awaitable[int] | None = None
        self._dropped_s = 0.0
        self._outcome = Outcome.TOOL_FIRST
        self._error: str | None = None
        self._overlap_s = 0.0
        self._discarded = 0

    async def run(self, tool: Callable[[], Awaitable[Observation]]) -> TurnResult:
        """Run the tool and speculate meanwhile. Raises what the tool raises."""
        action: SampledAction | None = None
        try:
            async with asyncio.TaskGroup() as group:
                attempt = group.create_task(self._attempt())
                observation = await tool()
                returned_s = self._spans.now()
                attempt.cancel()
            if self.state is State.SPECULATING and self._candidate_text() == observation.text:
                action = await self._commit(returned_s)
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            self._drop()
        return TurnResult(observation, returned_s, self._prediction(), action)

    async def settle(self) -> Prediction:
        """What came of the prediction, once the engine has answered a drop."""
        if (dropping := self._dropping) is not None:
            self._dropping = None
            try:
                self._discarded += await dropping
            except BackendError as error:
                self._error = str(error)
            finally:
                self._end_branch_span(self._dropped_s, committed=False)
        return self._prediction()

    def _candidate_text(self) -> str | None:
        return None if self._candidate is None else self._candidate.text

    async def _attempt(self) -> None:
        """Predict, then open a branch. Raises nothing but CancelledError."""
        failure = Outcome.PREDICTOR_FAILED
        try:
            with self._spans.measure(SpanKind.WORLD_MODEL, self.turn):
                candidate = await self._first_candidate()
            self._candidate = candidate
            self._predictor_s = self._spans.now() - self._started_s
            self._move(State.OPENING)
            failure = Outcome.BRANCH_FAILED
            self._branch = await self._open(candidate)
            self._move(State.SPECULATING)
            self._outcome = Outcome.MISS
        except Exception as error:
            self._abandon(failure, str(error) or type(error).__name__)
        except asyncio.CancelledError:
            self._abandon(Outcome.TOOL_FIRST)
            raise

    async def _first_candidate(self) -> Candidate:
        async with aclosing(self._predictor.predict(self._context)) as candidates:
            async for candidate in candidates:
                return candidate
        raise LookupError(f"{self._predictor.name} had no candidate")

    async def _open(self, candidate: Candidate) -> Branch:
        ids = self._chat.observation(candidate.text).token_ids
        parent = self._context.token_ids
        params = self._params(len(parent) + len(ids))
        self._opened_s = self._spans.now()
        (branch,) = await self._backend.open(parent, [ids], params)
        return branch

    async def _commit(self, returned_s: float) -> SampledAction | None:
        assert self._branch is not None
        self._move(State.COMMITTED)
        action = SampledAction()
        try:
            with self._spans.measure(SpanKind.POLICY, self.turn + 1) as attributes:
                attributes["branch"] = True
                return await action.read(self._branch.commit())
        except BackendError as error:
            self._discarded += len(action.token_ids)
            self._abandon(Outcome.BRANCH_FAILED, str(error))
            return None
        finally:
            self._end_branch_span(returned_s, committed=True)

    def _drop(self) -> None:
        if self.state is State.SPECULATING:
            assert self._branch is not None
            self._move(State.DROPPED)
            self._dropped_s = self._spans.now()
            self._dropping = self._branch.drop()

    def _end_branch_span(self, end_s: float, committed: bool) -> None:
        """The commit or the drop was answered: only now is it sure to be known when the branch finished."""
        assert self._branch is not None
        if self._branch.finished_at is not None:
            end_s = min(end_s, self._spans.since_start(self._branch.finished_at))
        self._overlap_s = max(0.0, end_s - self._opened_s)
        end_s = self._opened_s + self._overlap_s
        attributes: Attributes = {"committed": committed}
        self._spans.add(SpanKind.SPECULATIVE_POLICY, self._opened_s, end_s, self.turn + 1, attributes)
        self._branch = None

    def _abandon(self, outcome: Outcome, error: str | None = None) -> None:
        self._outcome, self._error = outcome, error
        self._move(State.ABANDONED)

    def _move(self, to: State) -> None:
        if to not in _MOVES[self.state]:
            raise IllegalMove(f"{self.state} → {to}")
        self.state = to

    def _prediction(self) -> Prediction:
        candidate = self._candidate
        hit = self.state is State.COMMITTED
        return Prediction(
            outcome=Outcome.HIT if hit else self._outcome,
            predictor=self._predictor.name,
            text=self._candidate_text(),
            confidence=candidate and candidate.confidence,
            mean_logprob=candidate and candidate.mean_logprob,
            predictor_s=self._predictor_s,
            overlap_s=self._overlap_s,
            discarded_policy_tokens=self._discarded,
            discarded_world_model_tokens=0 if hit else self._context.meter.tokens,
            error=self._error,
        )
