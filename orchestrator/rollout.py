"""One rollout, from the sandbox's start to the reward; sequential and speculative on the same code path.

Whatever happens, the sandbox is stopped and no branch stays open. A limit truncates the agent, whose work
is still verified; an engine or sandbox that fails ends the rollout with one sentence and no reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from orchestrator.action import SampledAction, read_call
from orchestrator.backends.base import Backend, BackendError, SamplingParams
from orchestrator.chat import ChatFormat
from orchestrator.history import History
from orchestrator.predictors.base import PredictionContext
from orchestrator.record import RolloutRecord, RolloutSpec
from orchestrator.schema import (
    Outcome,
    Prediction,
    RolloutStatus,
    SpanKind,
    SpeculationMode,
    ToolCallRecord,
    Turn,
)
from orchestrator.seeds import derive
from orchestrator.spans import Spans
from orchestrator.speculation import Scopes, Speculator, TurnResult, speculating
from orchestrator.tools import Tools
from orchestrator.trajectory import GrowingTrajectory
from tasks.sandbox.base import Sandbox, SandboxError
from tasks.task import Task


@dataclass(frozen=True)
class World:
    """What every rollout of a service shares."""

    policy: Backend
    scopes: Scopes
    chat: ChatFormat
    sandbox: Callable[[Task], Sandbox]
    observation_limit: int
    context_tokens: int | None = None
    """Longest sequence that the policy's engine takes."""


class LimitMet(Exception):
    """A limit that truncates the rollout; the message says which."""


async def run_rollout(world: World, task: Task, record: RolloutRecord) -> None:
    """Run one rollout into `record`. Raises only CancelledError and defects."""
    spans = record.start()
    try:
        async with _started(world.sandbox(task), spans) as sandbox:
            limit_met = await _Agent(world, task, record, sandbox).run()
            with spans.measure(SpanKind.VERIFY):
                record.reward = await sandbox.verify(task)
        record.end(RolloutStatus.TRUNCATED if limit_met else RolloutStatus.FINISHED, limit_met)
    except (BackendError, SandboxError) as error:
        record.end(RolloutStatus.FAILED, str(error))
    except asyncio.CancelledError:
        record.end(RolloutStatus.CANCELLED, "cancelled")
        raise


@asynccontextmanager
async def _started(sandbox: Sandbox, spans: Spans) -> AsyncGenerator[Sandbox]:
    """A started sandbox, stopped whatever happens."""
    try:
        with spans.measure(SpanKind.SANDBOX):
            await sandbox.start()
        yield sandbox
    finally:
        await sandbox.stop()


class _Agent:
    """The loop of actions and observations."""

    def __init__(self, world: World, task: Task, record: RolloutRecord, sandbox: Sandbox):
        assert record.spans is not None
        spec: RolloutSpec = record.spec
        self._world = world
        self._task = task
        self._record = record
        self._spec = spec
        self._spans = record.spans
        self._scope = world.scopes[spec.speculation.scope]
        self._trajectory = GrowingTrajectory(world.chat.prompt(task.instruction))
        self._history = History()
        seed = f"latency/{spec.task}/{spec.seed}"
        self._tools = Tools(sandbox, self._spans, world.observation_limit, spec.tool_latency, seed)

    async def run(self) -> str | None:
        """Until the agent is done (None) or meets a limit (which one)."""
        limit = self._spec.limits.timeout_s or self._task.agent_timeout_s
        start = self._spans.now()
        speculator = None
        try:
            load = self._world.scopes.load
            with load.counted(load.rollouts):
                async with asyncio.timeout(limit) as clock:
                    if self._spec.speculation.mode is SpeculationMode.NEVER:
                        await self._turns(None)
                    else:
                        async with self._speculating() as speculator:
                            await self._turns(speculator)
            return None
        except LimitMet as reason:
            return str(reason)
        except TimeoutError:
            if not clock.expired():
                raise
            return f"the agent ran out of its {limit:g} s"
        finally:
            self._record.agent_latency_s = self._spans.now() - start
            self._record.trajectory = self._trajectory.to_schema()
            if speculator is not None:
                for turn, prediction in await speculator.settle():
                    self._record.settle(turn, prediction)

    def _speculating(self) -> AbstractAsyncContextManager[Speculator]:
        return speculating(
            self._world.policy,
            self._world.chat,
            self._scope,
            self._spec.speculation,
            self._params,
            self._spans,
            max_turns=self._spec.limits.max_turns,
            observation_limit=self._world.observation_limit,
        )

    async def _turns(self, speculator: Speculator | None) -> None:
        max_turns = self._spec.limits.max_turns
        speculated: SampledAction | None = None
        waiting_since = self._spans.now()
        for turn in range(max_turns):
            action = speculated or await self._generate(turn)
            call = self._act(turn, action, speculated is not None, waiting_since)
            if call is None:
                speculated, waiting_since = None, self._spans.now()
                continue
            if call.name == "done":
                return
            result = await self._run_tool(turn, call, speculator if turn + 1 < max_turns else None)
            self._trajectory.append_observation(self._world.chat.observation(result.observation.text))
            self._record.complete(result.observation, result.prediction)
            speculated, waiting_since = result.action, result.returned_s
        raise LimitMet(f"the agent took {max_turns} turns without calling done")

    def _params(self, turn: int, length: int) -> SamplingParams:
        """For the action of `turn` after `length` tokens. Raises LimitMet when there is no room for it."""
        limits, sampling = self._spec.limits, self._spec.sampling
        bound = min(limits.max_tokens, self._world.context_tokens or limits.max_tokens)
        room = bound - length
        if room < 1:
            raise LimitMet(f"the trajectory has no room left within {bound} tokens")
        return SamplingParams(
            max_new_tokens=min(limits.max_action_tokens, room),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_token_ids=(self._world.chat.end_id,),
            seed=derive("action", self._spec.task, self._spec.seed, turn),
        )

    async def _generate(self, turn: int) -> SampledAction:
        params = self._params(turn, len(self._trajectory))
        load = self._world.scopes.load
        with self._spans.measure(SpanKind.POLICY, turn), load.measured() as measured:
            action = await SampledAction().read(self._world.policy.generate(self._trajectory.ids, params))
            measured.read(len(action.token_ids), action.first_s, action.first_tokens)
        return action

    def _act(
        self, turn: int, action: SampledAction, speculated: bool, waiting_since: float
    ) -> ToolCallRecord | None:
        """Append an action and record its turn; None, and the policy is told so, where it is malformed."""
        chat = self._world.chat
        self._trajectory.append_action(action.token_ids, action.logprobs, action.weight_version)
        read = read_call(chat, action)
        if not read.ended:
            self._trajectory.append_synthetic([chat.end_id])
        if read.complaint is not None:
            self._trajectory.append_synthetic(chat.observation(read.complaint).token_ids)
        self._record.add(
            Turn(
                index=turn,
                text=read.text,
                thought=read.text.partition("<tool_call>")[0].strip(),
                tool_call=read.call,
                observation=read.complaint,
                weight_version=action.weight_version,
                action_tokens=len(action.token_ids),
                speculated=speculated,
                start_s=waiting_since,
                generation_s=self._spans.now() - waiting_since,
            )
        )
        return read.call

    async def _run_tool(self, turn: int, call: ToolCallRecord, speculator: Speculator | None) -> TurnResult:
        assert call.command is not None
        context = PredictionContext(
            self._trajectory.ids,
            self._spec.task,
            self._record.environment,
            self._history,
            call.command,
            turn,
            self._spec.seed,
        )
        if speculator is None:
            observation = await self._tools.run(call, turn)
            prediction = Prediction(outcome=Outcome.NOT_ATTEMPTED)
            result = TurnResult(observation, self._spans.now(), prediction)
            self._scope.learn(context, call.kind, observation.tool_s, observation.text)
        else:
            result = await speculator.run(
                context, call.kind, lambda on_output: self._tools.run(call, turn, on_output)
            )
        self._history = self._history.then(call.command)
        return result
