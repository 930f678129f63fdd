"""One tool call, running or imagined: the guesses at its observation, and what goes on for each.

An imagined call is what a finished branch asks for. Nothing of it is ever executed; it becomes the running
call if its branch is committed and the agent's next action is read from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.action import SampledAction
from orchestrator.backends.base import BackendError, Branch, SamplingParams
from orchestrator.predictors.base import Candidate, PredictionContext, Predictor, TokenMeter
from orchestrator.schema import Fate, Reason, SpanKind, SpeculationMode
from orchestrator.speculation.governor import Tool
from orchestrator.speculation.guess import Guess, State
from tasks.observation import OutputSoFar

if TYPE_CHECKING:
    from orchestrator.speculation.speculator import Speculator

_HOPELESS = 0.05
"""Governed: a branch this unlikely, beside better guesses, is not worth what it still generates."""
_FIRST_LOOK_S = 0.03


@dataclass
class Ask:
    """A question to a predictor that costs something."""

    predictor: str
    source: str
    asked_s: float
    meter: TokenMeter = field(default_factory=TokenMeter)
    text: str | None = None
    """The answer."""
    known: frozenset[str] = frozenset()
    """What other guesses had said when the answer came."""
    answered_s: float | None = None
    """When it ended by itself."""
    error: str | None = None


class Call:
    def __init__(
        self,
        owner: Speculator,
        context: PredictionContext,
        kind: str,
        above: Call | None = None,
        parent: Guess | None = None,
    ):
        """`parent`: the guess of the call `above` whose branch makes this one; None: its tool runs."""
        self.context = context
        self.kind = kind
        self.above = above
        self.parent = parent
        self.guesses: dict[str, Guess] = {}
        self.children: dict[str, Call] = {}
        """By guess: the call that its branch makes."""
        self.asks: list[Ask] = []
        self.started_s: float | None = None
        self.error: str | None = None
        """Of the predictor that failed last."""
        self.refused: Reason | None = None
        """Of the last decision not to ask."""
        self._owner = owner
        self._asked: set[tuple[str, int]] = set()
        self._refused: set[tuple[str, int]] = set()
        self._output = OutputSoFar(owner.observation_limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        self._governed = owner.settings.mode is SpeculationMode.GOVERNED

    @property
    def depth(self) -> int:
        """1: its tool runs; 2: it is the call after that; ..."""
        return self.context.turn - self._owner.turn + 1

    @property
    def reason(self) -> Reason | None:
        """Why a predictor was not asked, or not to the end; of the last one."""
        stopped = any(ask.meter.stopped for ask in self.asks)
        return self.refused or (Reason.UNLIKELY if stopped else None)

    def begin(self) -> None:
        """Its tool starts now."""
        self.above = self.parent = None
        self.started_s = self._owner.spans.now()
        self.predict()
        self._look_ahead()
        if self._governed:
            self._spawn(self._look_again())

    def predict(self) -> None:
        """Ask what was not asked so far and is worth it, and decide on every guess."""
        self.refused = None
        for predictor in self._owner.predictors:
            try:
                self._consult(predictor)
            except Exception as error:
                self._failed(predictor.name, error)
        self._decide()

    def on_output(self, stream: str, data: bytes) -> None:
        """The tool has printed something: what contradicts a guess ends its branch."""
        if self._over or not self._owner.settings.early_drop:
            return
        self._output.feed(stream, data)
        if any(guess.alive and self._output.contradicts(guess.text) for guess in self.guesses.values()):
            self._decide()
            if self._governed:  # what was known already may be worth a question now
                self.predict()

    def end(self, observation: str | None = None) -> Guess | None:
        """No guess goes on but an open one on `observation`, which is given back, to be committed.

        Branches end in the call itself, those that were opened on others first.
        """
        if self._over:
            return None
        self._over = True
        kept = self.guesses.get(observation) if observation is not None else None
        if kept is not None and kept.state is not State.OPEN:
            kept = None
        for task in self._tasks:
            task.cancel()
        for guess in self.guesses.values():
            if guess is not kept:
                self._give_up(guess, Fate.DROPPED)
        self._owner.count_asks(self, observation)
        self._let_go()
        return kept

    def frontier(self) -> int:
        """Depth of the deepest open branch on this call, counted from here; 0: there is none."""
        depths = (
            1 + (self.children[text].frontier() if text in self.children else 0)
            for text, guess in self.guesses.items()
            if guess.state is State.OPEN
        )
        return max(depths, default=0)

    # Guesses

    def _consult(self, predictor: Predictor) -> None:
        """Take what it knows at once, and ask it what was not asked so far and is worth it."""
        owner = self._owner
        for candidate in predictor.recall(self.context):
            self._add(candidate, predictor.name, 0.0)
        ranks = owner.settings.breadth if predictor.ranks is None else predictor.ranks
        for rank in range(ranks):
            question = predictor.name, rank
            if question in self._asked:
                continue
            if self._governed and any(ask.predictor == predictor.name for ask in self._pending()):
                return  # its answer may make another one needless
            if (source := predictor.source(rank)) is not None:
                again = question in self._refused
                decision = owner.governor.ask(owner.settings, self._tool(), source, self._p_known(), again)
                if not decision.yes:
                    self._refused.add(question)
                    self.refused = decision.reason
                    continue
            self._asked.add(question)
            ask = Ask(predictor.name, source or predictor.name, owner.spans.now())
            ask.meter.hopeless = owner.governor.hopeless(owner.settings, self._tool, ask.source)
            if source is None:
                self._spawn(self._listen(predictor, rank, ask))
            else:
                self.asks.append(ask)
                self._spawn(self._ask(predictor, rank, ask))

    async def _ask(self, predictor: Predictor, rank: int, ask: Ask) -> None:
        """Raises nothing but CancelledError."""
        owner = self._owner
        with (
            owner.spans.measure(SpanKind.WORLD_MODEL, self.context.turn) as attributes,
            owner.load.counted(owner.load.predictions),
        ):
            attributes |= {"source": ask.source, "depth": self.depth}
            await self._listen(predictor, rank, ask)
        ask.answered_s = owner.spans.now()
        if ask.text is None:
            ask.known = frozenset(self.guesses)
        if ask.error is None:
            owner.governor.answers.add(ask.source, ask.answered_s - ask.asked_s)
        if self._governed and not self._over:
            self.predict()

    async def _listen(self, predictor: Predictor, rank: int, ask: Ask) -> None:
        try:
            async with aclosing(predictor.predict(self.context, rank, ask.meter)) as candidates:
                async for candidate in candidates:
                    ask.text, ask.known = candidate.text, frozenset(self.guesses)
                    self._add(candidate, predictor.name, self._owner.spans.now() - ask.asked_s)
                    self._decide()
        except Exception as error:
            ask.error = str(error) or type(error).__name__
            self._failed(predictor.name, error)

    def _failed(self, name: str, error: Exception) -> None:
        self.error = f"{name}: {str(error) or type(error).__name__}"

    def _add(self, candidate: Candidate, predictor: str, seconds: float) -> None:
        """Raises ValueError for a confidence that is none."""
        if not 0 <= candidate.confidence <= 1:
            raise ValueError(f"a confidence of {candidate.confidence}")
        p = self._owner.governor.calibration.p_hit(candidate.source, candidate.confidence, self.kind)
        known = self.guesses.get(candidate.text)
        if known is None:
            turn = self.context.turn + 1
            self.guesses[candidate.text] = Guess(candidate, predictor, seconds, p, self.depth, turn)
        elif p > known.p_hit and known.state is State.PREDICTED:
            known.candidate, known.predictor, known.predictor_s, known.p_hit = (
                candidate,
                predictor,
                seconds,
                p,
            )

    def _pending(self) -> Iterator[Ask]:
        """Questions that are not answered so far."""
        return (ask for ask in self.asks if ask.answered_s is None)

    def _p_known(self) -> float:
        """Probability that one of the guesses is exact, as far as the tool's output has not ruled it out."""
        missing = 1.0
        for guess in self.guesses.values():
            if guess.reason is not Reason.CONTRADICTED:
                missing *= 1 - guess.p_hit
        return 1 - missing

    def _ranked(self) -> Iterator[tuple[Guess, float]]:
        """Guesses that may still come true, the likeliest first, each with the probability that it does and
        no likelier one."""
        left = 1.0
        alive = (guess for guess in self.guesses.values() if guess.alive)
        for guess in sorted(alive, key=lambda guess: -guess.p_hit):
            yield guess, left * guess.p_hit
            left *= 1 - guess.p_hit

    def _decide(self) -> None:
        """Open branches on guesses that are worth one, and end those that no longer are."""
        if self._over:
            return
        owner, tool = self._owner, self._tool()
        places = owner.settings.breadth
        for guess, p in list(self._ranked()):
            if self._output.contradicts(guess.text):
                self._give_up(guess, Fate.CONTRADICTED, Reason.CONTRADICTED)
            elif guess.state is not State.PREDICTED:
                if self._governed and p < _HOPELESS and places < owner.settings.breadth:
                    self._give_up(guess, Fate.OUTBID)
                else:
                    places -= 1
            else:
                decision = owner.governor.branch(owner.settings, tool, p)
                guess.reason, guess.gain_s = decision.reason, decision.gain_s
                if decision.yes and places <= 0:
                    guess.reason = Reason.BREADTH
                elif decision.yes:
                    places -= 1
                    self._open(guess)
        if places < 0:  # a likelier guess came when every place was taken
            extra = [g for g, _ in self._ranked() if g.state in (State.OPENING, State.OPEN)][places:]
            for guess in extra:
                self._give_up(guess, Fate.OUTBID)

    async def _look_again(self) -> None:
        """A tool that runs on has more left than was expected when it started."""
        wait_s = _FIRST_LOOK_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s *= 2
            if self.refused or any(guess.state is State.PREDICTED for guess in self.guesses.values()):
                self.predict()

    def _tool(self) -> Tool:
        owner = self._owner
        if self.started_s is not None:
            return Tool(self.kind, owner.spans.now() - self.started_s)
        return Tool(self.kind, None, *owner.ahead_of(self))

    # Branches

    def _open(self, guess: Guess) -> None:
        guess.move(State.OPENING)
        self._owner.opening(guess)
        guess.opener = self._spawn(self._opening(guess))

    async def _opening(self, guess: Guess) -> None:
        """Raises nothing but CancelledError."""
        owner = self._owner
        try:
            ids = owner.chat.observation(guess.text).token_ids
            params = owner.params(guess.turn, len(self.context.token_ids) + len(ids))
            guess.branch = await self._branch(ids, params)
        except Exception as error:
            owner.finished(guess)
            guess.fail(str(error) or type(error).__name__)
            self._decide()
            return
        owner.load.opening_s.add(owner.spans.now() - guess.opened_s)
        guess.move(State.OPEN)
        guess.fate = Fate.DROPPED
        self._look_ahead()

    async def _branch(self, ids: Sequence[int], params: SamplingParams) -> Branch:
        """A new one on the parent's, as long as that is open: once it is committed it takes no more, and its
        tokens are the context's own."""
        backend, parent = self._owner.backend, self.parent
        if parent is not None and parent.state is State.OPEN:
            assert parent.branch is not None
            try:
                (branch,) = await backend.open(parent.branch, [ids], params)
                return branch
            except BackendError:
                if parent.state is State.OPEN:
                    raise
        (branch,) = await backend.open(self.context.token_ids, [ids], params)
        return branch

    def _look_ahead(self) -> None:
        """Read branches where the call that they end with may be speculated on as well."""
        if self.depth >= self._owner.settings.depth:
            return
        for guess in self.guesses.values():
            if guess.state is State.OPEN and guess.reader is None:
                guess.reader = self._spawn(self._reading(guess))
        for child in self.children.values():
            child._look_ahead()

    async def _reading(self, guess: Guess) -> None:
        """Raises nothing but CancelledError."""
        assert guess.branch is not None
        try:
            action = await SampledAction().read(guess.branch.read())
        except Exception as error:  # it shows again at the commit, if it comes to that
            guess.error = str(error) or type(error).__name__
            return
        self._owner.finished(guess)
        imagined = self._owner.imagine(self.context, guess.text, action)
        if imagined is not None:
            self.children[guess.text] = call = Call(self._owner, *imagined, self, guess)
            call.predict()

    def _give_up(self, guess: Guess, fate: Fate, reason: Reason | None = None) -> None:
        """End a guess that was not committed, and all that builds on it."""
        if not guess.alive:
            return
        if (child := self.children.get(guess.text)) is not None:
            child.end()
        for task in (guess.opener, guess.reader):
            if task is not None:
                task.cancel()
        guess.reason = reason or guess.reason
        if guess.state is State.OPEN:
            guess.move(State.DROPPED)
            guess.fate = fate
            self._owner.drop(guess, early=fate is not Fate.DROPPED)
        else:
            if guess.state is State.OPENING:
                self._owner.finished(guess)
                self._owner.cancelled(guess.opened_s)
            guess.move(State.UNUSED)

    def _let_go(self) -> None:
        """Of all that refers back here: what has ended is gone at once, not when garbage is collected."""
        self.above = self.parent = None
        for guess in self.guesses.values():
            guess.opener = guess.reader = None
        for ask in self.asks:
            ask.meter.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._owner.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
