"""Decides what speculation is worth: which predictors are asked, which predictions get a branch.

A branch on a prediction that holds saves what it has generated when the tool returns, at most the whole
action. One that does not hold costs what it takes from other requests of the engine, and the work thrown
away, priced at `waste` seconds a second; so does a prediction. Both are expectations under what was measured
so far:

    gain = net · (p · saved − (1 − p) · wasted · waste) − (1 − p) · wasted · taken − opening − stalled

with p(hit) from `calibration`, the tool's remaining time from `times`, and from `load` the engine's speed
and what others lose. For a branch ahead of its tool (depth above 1), `saved` is what it saves beyond a
branch that is opened when that tool starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.schema import Reason, SpeculationMode, SpeculationSettings
from orchestrator.speculation.calibration import Calibration
from orchestrator.speculation.load import Load
from orchestrator.speculation.times import Times

_EXPLORE = 0.005
"""Part of the rollouts' time, at most, that questions are to cost that are not expected to pay."""
_FEARED = 0.05
"""Of a second, what such a question is taken to cost each other request for each of its seconds: that it was
found to cost less may be all there is to learn."""
_IDLE = 10
"""Times that, where an answer could not pay even if it was always exact: only its time is to learn."""
_PROMPT_S = 0.05
"""So long, at least, such a question is taken to keep its engine busy: its prompt is read."""
_UNSPENT = 0.999
"""Of the time for that, what is left after each further tool call: it is not saved up."""
_FINISH = 20
"""Predictions for each that is finished however unsure it becomes."""
_TRIES = 4
"""At once, as long as nothing is known of what they bring."""
_SURE_ENOUGH = 0.5
"""A prediction this sure so far is finished without further questions."""
_LEAST_S = 0.001
"""Gains below the noise of a clock are none."""


@dataclass(frozen=True)
class Decision:
    yes: bool
    reason: Reason
    gain_s: float | None = None
    """Expected seconds; None where nothing was computed."""


@dataclass(frozen=True)
class Tool:
    """The tool call that is speculated on."""

    kind: str
    elapsed_s: float | None
    """Since it started; None: it has not."""
    lead_s: float = 0.0
    """Until it is expected to start."""
    p_path: float = 1.0
    """Probability that it will, as it is imagined."""


class Governor:
    """Of one scope; what it measures is what its rollouts met."""

    def __init__(self, load: Load):
        self.load = load
        self.tools = Times()
        self.answers = Times()
        """By source: seconds from a question to its answer."""
        self.calibration = Calibration()
        self._to_explore_s = 0.0
        self._begun: Counter[str] = Counter()

    def ask(
        self, settings: SpeculationSettings, tool: Tool, source: str, p_known: float, again: bool = False
    ) -> Decision:
        """Whether to ask a predictor; `p_known`: that one of the guesses there are is exact; `again`: the
        same question was refused before."""
        if settings.mode is SpeculationMode.ALWAYS:
            return Decision(True, Reason.ALWAYS)
        remaining, answer_s = self._remaining(tool), self.answers.mean(source)
        if not remaining or answer_s is None or not self.load.known:
            return Decision(self.load.predictions.value < _TRIES, Reason.UNKNOWN_TIMES)
        p = tool.p_path * (1 - p_known) * self.calibration.p_source(source, tool.kind)
        saved = self._saved(remaining, tool.lead_s - answer_s)
        if tool.elapsed_s is None:  # asked when the tool starts, it would save this
            saved -= self._saved(remaining, -answer_s)
        net, short = self.load.net(), saved < _LEAST_S
        asked_s = min(answer_s, sum(remaining) / len(remaining) + tool.lead_s)
        asking = asked_s * self.load.taken_by_prediction()
        taken = asking + p * self.load.taken_by_opening(1.0)
        decision = _decide(net * p * saved, net * (1 - p) * asked_s, taken, settings)
        if short:
            decision = Decision(False, Reason.TOO_SHORT, decision.gain_s)
        if decision.yes or again:
            return decision
        cost_s = max(asked_s, _PROMPT_S) * (settings.waste + _FEARED * self.load.others())
        if short or net * saved <= asking:  # however often it is right
            cost_s *= _IDLE
        return self._explored(decision, cost_s)

    def branch(self, settings: SpeculationSettings, tool: Tool, p: float) -> Decision:
        """Whether a guess that is exact with probability `p`, where its tool is called, gets a branch."""
        if settings.mode is SpeculationMode.ALWAYS:
            return Decision(True, Reason.ALWAYS)
        load, most = self.load, settings.max_open_tokens
        if most is not None and (load.branches.value + 1) * load.action_tokens > most:
            return Decision(False, Reason.BUDGET)
        remaining = self._remaining(tool)
        if not remaining or not load.known:
            return Decision(load.branches.value < _TRIES, Reason.UNKNOWN_TIMES)
        saved = self._saved(remaining, tool.lead_s)
        wasted = (1 - tool.p_path * p) * saved
        if tool.elapsed_s is None:
            later = self._saved(remaining, 0.0)
            early = min(self.load.generation_s(), tool.lead_s)
            wasted = (1 - tool.p_path) * early + tool.p_path * (1 - p) * (saved - later)
            saved -= later
        opening = self.load.opening_s.value or 0.0
        if saved < _LEAST_S:
            return Decision(False, Reason.TOO_SHORT, saved * tool.p_path * p)
        taken = wasted * self.load.taken_by_branch() + self.load.taken_by_opening(tool.p_path * p)
        net = self.load.net()
        return _decide(net * tool.p_path * p * saved - opening, net * wasted, taken, settings)

    def hopeless(
        self, settings: SpeculationSettings, tool: Callable[[], Tool], source: str
    ) -> Callable[[float], bool]:
        """Whether a prediction that is this sure so far would get no branch, and need not be finished.

        Of predictions that nothing is known of, and of every so many, none is: each is a lesson.
        """
        self._begun[source] += 1
        if settings.mode is not SpeculationMode.GOVERNED or self._begun[source] % _FINISH == 0:
            return lambda confidence: False

        def hopeless(confidence: float) -> bool:
            if confidence > _SURE_ENOUGH or not self.calibration.is_known(source, confidence):
                return False
            now = tool()
            p = self.calibration.p_hit(source, confidence, now.kind)
            return self.branch(settings, now, p).reason is Reason.UNLIKELY

        return hopeless

    def returned(self, kind: str, tool_s: float) -> None:
        """A tool has."""
        self.tools.add(kind, tool_s)
        turn_s = tool_s + (self.load.generation_s() if self.load.known else 0.0)
        self._to_explore_s = self._to_explore_s * _UNSPENT + turn_s * _EXPLORE

    def outrun(self, source: str, seconds: float) -> None:
        """A question was cancelled after so long: the answer takes longer, at the least as long again."""
        self.answers.add(source, max(2 * seconds, self.answers.mean(source) or 0.0))

    def _explored(self, refusal: Decision, least_s: float) -> Decision:
        """A refused question is asked all the same where that costs little: what is never asked is never
        measured. It is taken to cost `least_s`, whatever others were found to lose."""
        assert refusal.gain_s is not None
        cost_s = max(least_s, -refusal.gain_s)
        if cost_s > self._to_explore_s:
            return refusal
        self._to_explore_s -= cost_s
        return Decision(True, Reason.EXPLORE, refusal.gain_s)

    def _remaining(self, tool: Tool) -> Sequence[float]:
        return self.tools.remaining(tool.kind, tool.elapsed_s or 0.0)

    def _saved(self, remaining: Sequence[float], lead_s: float) -> float:
        """Expected seconds of generation that are done when the tool returns, begun `lead_s` before now."""
        whole = self.load.generation_s()
        done = [
            whole if lead_s + left > whole else lead_s + left for left in remaining if lead_s + left > 0.0
        ]
        return sum(done) / len(remaining)


def _decide(gain: float, wasted: float, taken: float, settings: SpeculationSettings) -> Decision:
    net = gain - wasted * settings.waste
    if net <= 0:
        return Decision(False, Reason.UNLIKELY, net - taken)
    if net - taken <= 0:
        return Decision(False, Reason.LOAD, net - taken)
    return Decision(True, Reason.PAYS, net - taken)
