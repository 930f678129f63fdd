"""Speculation over the tool calls of one rollout.

While a tool runs, predictors guess its observation and branches of the policy continue the guesses that are
worth it; a finished branch may call a tool of its own, which is guessed at in turn (depth). When the tool
returns, the branch on exactly its observation is committed and its tokens are the next action, and every
other branch is dropped. What was guessed about the committed branch's own call goes on.

Every branch ends exactly once, whatever fails or is cancelled. No failure or slowness of a predictor or a
branch reaches the rollout, and a drop is not waited for: its figures come with `settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.action import SampledAction, read_call
from orchestrator.backends.base import Backend, BackendError, SamplingParams
from orchestrator.chat import ChatFormat
from orchestrator.predictors.base import PredictionContext
from orchestrator.schema import Fate, Outcome, Prediction, SpanKind, SpeculationSettings
from orchestrator.spans import Spans
from orchestrator.speculation.call import Call
from orchestrator.speculation.guess import Guess, State
from orchestrator.speculation.scope import Scope
from orchestrator.tools import Observation
from orchestrator.views import Concat

_OPENING_S = 0.05


@dataclass(frozen=True)
class TurnResult:
    """The observation, what came of the speculation on it, and the next action if a branch was committed.

    `prediction` lacks what the engine says of dropped branches until `settle`.
    """

    observation: Observation
    returned_s: float
    """When the tool returned, in seconds since the rollout's start."""
    prediction: Prediction
    action: SampledAction | None = None


class RunTool(Protocol):
    def __call__(self, on_output: Callable[[str, bytes], None]) -> Awaitable[Observation]: ...


@dataclass
class _Tally:
    """What one tool call and all branches that ended with it came to."""

    turn: int
    call: Call
    observation: str | None = None
    outcome: Outcome = Outcome.TOOL_FIRST
    committed: Guess | None = None
    ended: list[Guess] = field(default_factory=list)
    """Whose branches were dropped or lost."""
    frontier: int = 0
    block_s: float = 0.0
    cancelled: int = 0
    cancelled_s: float = 0.0
    world_model_tokens: int = 0
    error: str | None = None

    def prediction(self) -> Prediction:
        observation = self.observation
        guesses = self.call.guesses.values() if observation is not None else ()
        hit = self.outcome is Outcome.HIT
        return Prediction(
            outcome=self.outcome,
            guesses=tuple(guess.record(observation) for guess in guesses if observation is not None),
            reason=self.call.reason,
            block_s=self.block_s,
            saved_s=self.committed.overlap_s if hit and self.committed else 0.0,
            frontier=self.frontier,
            cancelled=self.cancelled,
            cancelled_s=self.cancelled_s,
            discarded_policy_tokens=sum(guess.policy_tokens for guess in self.ended),
            discarded_world_model_tokens=self.world_model_tokens,
            error=self.error or next((guess.error for guess in self.ended if guess.error), None),
        )


@asynccontextmanager
async def speculating(
    backend: Backend,
    chat: ChatFormat,
    scope: Scope,
    settings: SpeculationSettings,
    params: Callable[[int, int], SamplingParams],
    spans: Spans,
    *,
    max_turns: int,
    observation_limit: int,
) -> AsyncGenerator[Speculator]:
    """Speculation for as long as the agent runs; at the end nothing of it is left but drops under way.

    `params`: of the action of a turn, given the length of its context in tokens; may raise.
    """
    try:
        async with asyncio.TaskGroup() as group:
            speculator = Speculator(
                backend, chat, scope, settings, params, spans, group, max_turns, observation_limit
            )
            try:
                yield speculator
            finally:
                speculator.close()
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None


class Speculator:
    def __init__(
        self,
        backend: Backend,
        chat: ChatFormat,
        scope: Scope,
        settings: SpeculationSettings,
        params: Callable[[int, int], SamplingParams],
        spans: Spans,
        group: asyncio.TaskGroup,
        max_turns: int,
        observation_limit: int,
    ):
        self.backend = backend
        self.chat = chat
        self._scope = scope
        self.governor = scope.governor
        self.load = scope.governor.load
        self.predictors = [scope.predictor(name) for name in settings.predictors]
        self.settings = settings
        self.params = params
        self.spans = spans
        self.observation_limit = observation_limit
        self.turn = 0
        """Of the tool call that runs, or ran last."""
        self._group = group
        self._max_turns = max_turns
        self._call: Call | None = None
        """The one that runs, or that the committed branch makes."""
        self._tallies: list[_Tally] = []
        self._running: dict[int, asyncio.TimerHandle] = {}

    async def run(self, context: PredictionContext, kind: str, tool: RunTool) -> TurnResult:
        """Run the tool and speculate meanwhile. Raises what the tool raises."""
        call = self._begin(context, kind)
        tally = _Tally(context.turn, call)
        self._tallies.append(tally)
        call.begin()
        observation = await tool(call.on_output)
        returned_s = self.spans.now()
        await self._opened_or_late(call, observation.text)
        tally.observation = observation.text
        tally.frontier = call.frontier()
        tally.outcome = self._outcome(call, observation.text)
        guess = call.end(observation.text)
        self._call = None
        self._learn(call, observation)
        self._scope.learn(context, kind, observation.tool_s, observation.text)
        action = None
        if guess is not None:
            self._call = call.children.get(guess.text)
            action = await self._commit(tally, guess, returned_s)
        return TurnResult(observation, returned_s, tally.prediction(), action)

    def close(self) -> None:
        """End every branch."""
        if self._call is not None:
            self._call.end()
            self._call = None

    async def settle(self) -> list[tuple[int, Prediction]]:
        """Turns and what came of the speculation on them, once the engine has answered every drop."""
        ended = [guess for tally in self._tallies for guess in tally.ended if guess.dropping is not None]
        answers = [guess.dropping for guess in ended if guess.dropping is not None]
        try:
            if answers:
                await asyncio.wait(answers)
        except asyncio.CancelledError:
            for answer in answers:
                answer.cancel()
            await asyncio.wait(answers)
            raise
        for guess, answer in zip(ended, answers, strict=True):
            try:
                guess.policy_tokens += answer.result()
            except BackendError as error:
                guess.error = str(error)
            guess.dropping = None
            self._end_span(guess, committed=False)
        settled = [(tally.turn, tally.prediction()) for tally in self._tallies]
        self._tallies.clear()
        return settled

    # The running call

    def _begin(self, context: PredictionContext, kind: str) -> Call:
        """The imagined call where it is the very one, else a new one."""
        imagined, self._call = self._call, None
        self.turn = context.turn
        if imagined is not None:
            before = imagined.context
            if (before.command, before.turn, len(before.token_ids)) == (
                context.command,
                context.turn,
                len(context.token_ids),
            ):
                imagined.context = context
                self._call = imagined
                return imagined
            imagined.end()
        self._call = Call(self, context, kind)
        return self._call

    async def _opened_or_late(self, call: Call, observation: str) -> None:
        """A branch that is being opened on the very observation is ahead of an ordinary request, unless its
        opening takes long."""
        guess = call.guesses.get(observation)
        if guess is not None and guess.state is State.OPENING:
            assert guess.opener is not None
            await asyncio.wait({guess.opener}, timeout=_OPENING_S)

    def _outcome(self, call: Call, observation: str) -> Outcome:
        """Before the call ends."""
        guesses = call.guesses.values()
        match = call.guesses.get(observation)
        if match is not None and match.state is State.OPEN:
            return Outcome.HIT
        if any(guess.state in (State.OPEN, State.DROPPED) for guess in guesses):
            return Outcome.MISS
        if any(guess.state is State.FAILED for guess in guesses):
            return Outcome.BRANCH_FAILED
        if any(guess.state is State.OPENING for guess in guesses):
            return Outcome.TOOL_FIRST
        if any(ask.answered_s is None for ask in call.asks):
            return Outcome.TOOL_FIRST
        if call.error is not None:
            return Outcome.PREDICTOR_FAILED
        return Outcome.DECLINED if guesses or call.reason else Outcome.NO_PREDICTION

    def _learn(self, call: Call, observation: Observation) -> None:
        calibration = self.governor.calibration
        for guess in call.guesses.values():
            candidate = guess.candidate
            exact = guess.text == observation.text
            calibration.learn(candidate.source, candidate.confidence, call.kind, guess.p_hit, exact)
        for ask in call.asks:
            told = ask.answered_s is not None and ask.error is None
            if told and observation.text not in ask.known:
                calibration.learn_source(ask.source, call.kind, ask.text == observation.text)
        tally = self._tallies[-1]
        errors = [guess.error for guess in call.guesses.values() if guess.error]
        tally.error = errors[0] if errors else call.error

    async def _commit(self, tally: _Tally, guess: Guess, returned_s: float) -> SampledAction | None:
        assert guess.branch is not None
        guess.move(State.COMMITTED)
        guess.fate, guess.ended_s, tally.committed = Fate.COMMITTED, returned_s, guess
        self.finished(guess)
        action = SampledAction()
        try:
            chunks = guess.branch.commit()
        except BackendError as error:  # lost before; a drop tells what it had come to
            self._commit_failed(tally, guess, error)
            guess.dropping = asyncio.ensure_future(guess.branch.drop())
            return None
        try:
            with (
                self.spans.measure(SpanKind.POLICY, tally.turn + 1) as attributes,
                self.load.counted(self.load.ordinary, begins=False),
            ):
                attributes["branch"] = True
                await action.read(chunks)
        except BackendError as error:
            guess.policy_tokens += len(action.token_ids)
            self._commit_failed(tally, guess, error)
            return None
        finally:
            tally.block_s = self.spans.now() - returned_s
            self._end_span(guess, committed=True)
        guess.error = None
        return action

    def _commit_failed(self, tally: _Tally, guess: Guess, error: BackendError) -> None:
        guess.fail(str(error))
        tally.ended.append(guess)
        tally.outcome, tally.error = Outcome.BRANCH_FAILED, str(error)
        self.close()

    # What calls ask of their rollout

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)

    def ahead_of(self, call: Call) -> tuple[float, float]:
        """Seconds until an imagined call's tool is expected to start, and the probability that it will."""
        above, parent = call.above, call.parent
        assert above is not None
        assert parent is not None
        if above.started_s is not None:
            remaining = self.governor.tools.remaining(above.kind, self.spans.now() - above.started_s)
            return (sum(remaining) / len(remaining) if remaining else 0.0), parent.p_hit
        lead_s, p = self.ahead_of(above)
        return lead_s + (self.governor.tools.mean(above.kind) or 0.0), p * parent.p_hit

    def imagine(
        self, context: PredictionContext, observation: str, action: SampledAction
    ) -> tuple[PredictionContext, str] | None:
        """The tool call that a finished branch makes, and its kind; None where it makes none."""
        turn = context.turn + 1
        read = read_call(self.chat, action)
        call = read.call
        if call is None or call.command is None or not read.ended or turn + 1 >= self._max_turns:
            return None
        between = self.chat.observation(observation).token_ids
        ids = Concat(context.token_ids, between, action.token_ids)
        return (
            PredictionContext(
                ids,
                context.task_id,
                context.environment,
                context.history.then(context.command),
                call.command,
                turn,
                context.seed,
            ),
            call.kind,
        )

    def opening(self, guess: Guess) -> None:
        """There will be a branch. It counts as load until it has finished, as far as one knows."""
        guess.opened_s = self.spans.now()
        expected_s = self.load.generation_s() if self.load.known else 1.0
        self.load.count_branch(1)
        timer = asyncio.get_running_loop().call_later(expected_s, self.finished, guess)
        self._running[id(guess)] = timer

    def finished(self, guess: Guess) -> None:
        """Its branch generates no longer, or is an ordinary request now."""
        if (timer := self._running.pop(id(guess), None)) is not None:
            timer.cancel()
            self.load.count_branch(-1)

    def drop(self, guess: Guess, early: bool) -> None:
        assert guess.branch is not None
        self.finished(guess)
        guess.ended_s = self.spans.now()
        guess.dropping = asyncio.ensure_future(guess.branch.drop())
        self._tallies[-1].ended.append(guess)
        if early:
            self.cancelled(guess.opened_s)

    def cancelled(self, since_s: float) -> None:
        """Something that had begun was ended early."""
        self._tallies[-1].cancelled += 1
        self._tallies[-1].cancelled_s += self.spans.now() - since_s

    def count_asks(self, call: Call, observation: str | None) -> None:
        """The call is over; `observation`: what its tool returned, if it came to that."""
        tally = self._tallies[-1]
        for ask in call.asks:
            if ask.answered_s is None:
                self.cancelled(ask.asked_s)
                self.governor.outrun(ask.source, self.spans.now() - ask.asked_s)
            hit = tally.outcome is Outcome.HIT and ask.text is not None and ask.text == observation
            if not hit:
                tally.world_model_tokens += ask.meter.tokens

    def _end_span(self, guess: Guess, committed: bool) -> None:
        """The commit or the drop was answered: only now is it sure to be known when the branch finished."""
        assert guess.branch is not None
        end_s = guess.ended_s
        if guess.branch.finished_at is not None:
            end_s = min(end_s, self.spans.since_start(guess.branch.finished_at))
        guess.overlap_s = max(0.0, end_s - guess.opened_s)
        self.spans.add(
            SpanKind.SPECULATIVE_POLICY,
            guess.opened_s,
            guess.opened_s + guess.overlap_s,
            guess.turn,
            {"committed": committed, "depth": guess.depth, "source": guess.candidate.source},
        )
        guess.branch = None
