"""A world without processes: a scripted policy and world model, and sandboxes that answer from a table."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator import predictors
from orchestrator.backends.base import BackendError, Branch, Chunk, SamplingParams
from orchestrator.backends.scripted import Script, ScriptedBackend
from orchestrator.predictors.base import Candidate, PredictionContext, PredictorTools, TokenMeter
from orchestrator.record import RolloutRecord, RolloutSpec
from orchestrator.rollout import World, run_rollout
from orchestrator.schema import (
    PRESETS,
    Limits,
    Rollout,
    Sampling,
    SpeculationMode,
    SpeculationSettings,
    ToolLatency,
)
from orchestrator.seeds import derive
from orchestrator.speculation import Scopes
from tasks.observation import canonical
from tasks.sandbox.base import ExecResult, OutputListener, SandboxError
from tasks.task import Task
from tasks.tools import render_action
from tests.orchestrator import qwen_like

CHAT = qwen_like.chat()
TOKENIZER = qwen_like.tokenizer()
PAPER = PRESETS["paper"]
PROMPT_ENDS = 2
"""End tokens in a prompt: after the system text and after the instruction."""

Answer = tuple[str, float]
"""What a command prints, and the seconds it takes."""


def task(agent_timeout_s: float = 120.0) -> Task:
    return Task("family/1", "family", "List the files.", Path("/nowhere"), agent_timeout_s)


@dataclass
class FakeSandbox:
    """Answers a command from `answers`; `error` is raised by the method it names."""

    answers: dict[str, Answer]
    reward: float = 1.0
    error: str = ""
    calls: list[str] = field(default_factory=list)

    async def start(self) -> None:
        await self._step("start")

    async def exec(
        self, command: str, timeout_s: float | None = None, on_output: OutputListener | None = None
    ) -> ExecResult:
        self.calls.append(command)
        text, seconds = self.answers[command]
        lines = text.splitlines(keepends=True)
        for line in lines:  # the last one comes with the end
            await asyncio.sleep(seconds / len(lines))
            if on_output:
                on_output("stdout", line.encode())
        if not lines:
            await asyncio.sleep(seconds)
        self._fail("exec")
        return ExecResult(text.encode(), b"", 0, duration_s=seconds)

    async def verify(self, task: Task) -> float:
        await self._step("verify")
        return self.reward

    async def stop(self) -> None:
        await self._step("stop")

    async def _step(self, name: str) -> None:
        self.calls.append(name)
        await asyncio.sleep(0.1)
        self._fail(name)

    def _fail(self, name: str) -> None:
        if self.error == name:
            raise SandboxError(f"sandbox family/1 failed at {name}")

    async def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        raise NotImplementedError


def turn_of(ids: Sequence[int]) -> int:
    """Which turn's action follows these ids."""
    return (list(ids).count(CHAT.end_id) - PROMPT_ENDS) // 2


def actor(texts: Sequence[str]) -> Callable[[Sequence[int], SamplingParams], list[int]]:
    """A policy that says `texts` in turn; the number it adds depends on every id before and on the seed."""

    def script(ids: Sequence[int], params: SamplingParams) -> list[int]:
        context = f"{list(ids)} {params.seed} {params.temperature}".encode()
        number = int.from_bytes(hashlib.blake2b(context, digest_size=2).digest())
        return [*TOKENIZER.encode(texts[turn_of(ids)].replace("NUMBER", str(number))), CHAT.end_id]

    return script


class FragileBackend(ScriptedBackend):
    """Its `broken` branches, by number, die after four tokens; ordinary requests do not."""

    def __init__(self, script: Script, tokens_per_s: float, broken: set[int]):
        super().__init__(script, tokens_per_s=tokens_per_s)
        self._broken = broken
        self._opened = 0
        self._dying = ScriptedBackend(self._die, tokens_per_s=tokens_per_s)

    def _die(self, ids: Sequence[int], params: SamplingParams) -> Iterator[int]:
        yield from list(self._script(ids, params))[:5]
        raise BackendError("the policy engine at nowhere died after 4 tokens")

    async def open(
        self, parent: Sequence[int] | Branch, candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        engine = self._dying if self._opened in self._broken else self
        self._opened += 1
        return self.branches.open(parent, candidates, lambda ids: engine.generate(ids, params))


class LateBranch:
    """As a branch over HTTP: a drop takes a second, and what is known of its end comes with the answers."""

    def __init__(self, branch: Branch):
        self.finished_at: float | None = None
        self.drops = 0
        self.inside = branch

    def read(self) -> AsyncGenerator[Chunk]:
        return self.inside.read()

    async def commit(self) -> AsyncGenerator[Chunk]:
        async with aclosing(self.inside.commit()) as chunks:
            async for chunk in chunks:
                yield chunk
        self.finished_at = self.inside.finished_at

    def drop(self) -> Awaitable[int]:
        self.drops += 1
        return asyncio.create_task(self._dropped(asyncio.ensure_future(self.inside.drop())))

    async def _dropped(self, answer: Awaitable[int]) -> int:
        tokens = await answer
        await asyncio.sleep(1)
        self.finished_at = self.inside.finished_at
        return tokens


class LateBackend(ScriptedBackend):
    def __init__(self, script: Script, **options: float):
        super().__init__(script, **options)  # type: ignore[arg-type]
        self.late: list[LateBranch] = []

    async def open(
        self, parent: Sequence[int] | Branch, candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        on = parent.inside if isinstance(parent, LateBranch) else parent
        opened = [LateBranch(branch) for branch in await super().open(on, candidates, params)]
        self.late += opened
        return list(opened)


class RecordedBranch:
    """Tells its engine how it ends."""

    def __init__(self, engine: RecordingBackend, number: int, parent: int | None, inside: Branch):
        self.number = number
        self.parent = parent
        """Number of the branch that it was opened on."""
        self.inside = inside
        self._engine = engine

    @property
    def finished_at(self) -> float | None:
        return self.inside.finished_at

    def read(self) -> AsyncGenerator[Chunk]:
        return self.inside.read()

    def commit(self) -> AsyncGenerator[Chunk]:
        chunks = self.inside.commit()  # refused where the branch was lost, and then no end
        self._engine.ends.append(("commit", self.number))
        return chunks

    def drop(self) -> Awaitable[int]:
        self._engine.ends.append(("drop", self.number))
        answer = self.inside.drop()
        return self._died(answer) if self.number in self._engine.undroppable else answer

    async def _died(self, answer: Awaitable[int]) -> int:
        await answer
        raise BackendError("the policy engine at nowhere died at drop")


class RecordingBackend(ScriptedBackend):
    """Remembers what was asked of it; its branches, by number, can be made to fail.

    Those in `broken` die after four tokens, those in `refused` are not opened, and the drop of those in
    `undroppable` is not answered. Opening takes `opening_s`, and none is opened on a committed branch.
    """

    def __init__(self, script: Script, *, opening_s: float = 0.0, **options: float):
        super().__init__(script, **options)  # type: ignore[arg-type]
        self._dying = ScriptedBackend(self._die, **options)  # type: ignore[arg-type]
        self._opening_s = opening_s
        self.opened: list[RecordedBranch] = []
        self.ends: list[tuple[str, int]] = []
        """`commit` or `drop`, and the branch's number, in the order of the calls."""
        self.tokens = 0
        """Generated, in requests and branches."""
        self.requests = 0
        self.broken: set[int] = set()
        self.refused: set[int] = set()
        self.undroppable: set[int] = set()
        self._asked = 0

    async def generate(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[Chunk]:
        self.requests += 1
        async with aclosing(super().generate(token_ids, params)) as chunks:
            async for chunk in chunks:
                self.tokens += len(chunk.token_ids)
                yield chunk

    async def open(
        self, parent: Sequence[int] | Branch, candidates: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Branch]:
        number, self._asked = self._asked, self._asked + len(candidates)
        await asyncio.sleep(self._opening_s)
        if number in self.refused:
            raise BackendError("the policy engine at nowhere refused with status 429: too many branches")
        on = parent.inside if isinstance(parent, RecordedBranch) else parent
        above = parent.number if isinstance(parent, RecordedBranch) else None
        if ("commit", above) in self.ends:
            raise BackendError("the policy engine refused with status 409: the branch has ended")
        generate = self._generate_and_die if number in self.broken else self.generate
        inside = self.branches.open(on, candidates, lambda ids: generate(ids, params))
        opened = [RecordedBranch(self, number + i, above, branch) for i, branch in enumerate(inside)]
        self.opened += opened
        return list(opened)

    def check_each_branch_ended_once(self) -> None:
        """And no branch before those that were opened on it, but by a commit."""
        at = {number: i for i, (_, number) in enumerate(self.ends)}
        assert len(at) == len(self.ends)
        assert at.keys() == {branch.number for branch in self.opened}
        for branch in self.opened:
            if branch.parent is not None and ("drop", branch.parent) in self.ends:
                assert at[branch.number] < at[branch.parent]

    async def _generate_and_die(
        self, token_ids: Sequence[int], params: SamplingParams
    ) -> AsyncGenerator[Chunk]:
        async with aclosing(self._dying.generate(token_ids, params)) as chunks:
            async for chunk in chunks:
                self.tokens += len(chunk.token_ids)
                yield chunk

    def _die(self, ids: Sequence[int], params: SamplingParams) -> Iterator[int]:
        yield from list(self._script(ids, params))[:5]
        raise BackendError("the policy engine at nowhere died after 4 tokens")


def bash(command: str) -> str:
    return render_action("Number NUMBER.", command)


DONE = render_action("Solved, NUMBER.", None)


def foreteller(texts: Sequence[str]) -> Callable[[Sequence[int], SamplingParams], list[int]]:
    """A world model that predicts `texts` in turn."""

    def script(ids: Sequence[int], params: SamplingParams) -> list[int]:
        assert tuple(ids[-len(CHAT.opening) :]) == CHAT.opening
        assert params.temperature == 0
        rendered = CHAT.observation(texts[turn_of(ids[: -len(CHAT.opening)])])
        return list(rendered.token_ids[rendered.body_start : rendered.body_end])

    return script


def foreteller_by_rank(
    texts: Sequence[Sequence[str]], seeds: Iterable[int] = (0,)
) -> Callable[[Sequence[int], SamplingParams], list[int]]:
    """A world model that predicts `texts[turn][rank]`, the greedy answer having rank 0, in rollouts with such
    seeds; questions beyond the last rank are answered as that."""
    ranks = {
        derive("observation", "family/1", seed, turn, rank): rank
        for seed in seeds
        for turn in range(len(texts))
        for rank in range(1, 8)
    }

    def script(ids: Sequence[int], params: SamplingParams) -> list[int]:
        assert tuple(ids[-len(CHAT.opening) :]) == CHAT.opening
        answers = texts[turn_of(ids[: -len(CHAT.opening)])]
        rank = 0 if params.temperature == 0 else ranks[params.seed or 0]
        rendered = CHAT.observation(answers[min(rank, len(answers) - 1)])
        return list(rendered.token_ids[rendered.body_start : rendered.body_end])

    return script


def printed(text: str) -> str:
    """The observation of a command that prints `text`."""
    return canonical(ExecResult(text.encode(), b"", 0))


@dataclass
class Stage:
    """Everything that a rollout needs, with knobs; `run` runs one."""

    actions: Sequence[str]
    answers: dict[str, Answer]
    predictions: Sequence[str] = ()
    reward: float = 1.0
    sandbox_error: str = ""
    policy_tokens_per_s: float = 50.0
    world_model_tokens_per_s: float = 200.0
    context_tokens: int | None = None
    sandboxes: list[FakeSandbox] = field(default_factory=list)
    most_alive: int = 0
    """Sandboxes at once."""

    def __post_init__(self) -> None:
        self.policy: ScriptedBackend = ScriptedBackend(
            actor(self.actions), tokens_per_s=self.policy_tokens_per_s
        )
        self.world_model = ScriptedBackend(
            foreteller(self.predictions), tokens_per_s=self.world_model_tokens_per_s
        )
        self.predict_with(self.world_model)

    def predict_with(self, world_model: ScriptedBackend) -> None:
        """With fresh memories."""
        self.world_model = world_model
        self.tools = PredictorTools(CHAT, world_model, 200, None, 1000)
        self.scopes = Scopes(partial(predictors.create, tools=self.tools))

    @property
    def world(self) -> World:
        return World(self.policy, self.scopes, CHAT, self._sandbox, 2000, self.context_tokens)

    def _sandbox(self, _: Task) -> FakeSandbox:
        alive = sum("stop" not in sandbox.calls for sandbox in self.sandboxes)
        self.most_alive = max(self.most_alive, alive + 1)
        self.sandboxes.append(FakeSandbox(self.answers, self.reward, self.sandbox_error))
        return self.sandboxes[-1]

    def check_nothing_left(self) -> None:
        assert len(self.policy.branches) == self.policy.running == self.world_model.running == 0
        assert all(sandbox.calls[-1] == "stop" for sandbox in self.sandboxes)

    def record(
        self,
        mode: SpeculationMode | SpeculationSettings = SpeculationMode.ALWAYS,
        seed: int = 0,
        limits: Limits | None = None,
        tool_latency: ToolLatency | None = None,
    ) -> RolloutRecord:
        """`mode`: with the settings of the preset `paper`, or all settings."""
        limits = limits or Limits(max_tokens=100_000)
        if isinstance(mode, SpeculationMode):
            mode = PAPER.model_copy(update={"mode": mode})
        spec = RolloutSpec("r1", "family/1", "family", mode, seed, Sampling(), limits, tool_latency)
        return RolloutRecord(spec)

    async def run(self, record: RolloutRecord | None = None, agent_timeout_s: float = 120.0) -> Rollout:
        record = record or self.record()
        await run_rollout(self.world, task(agent_timeout_s), record)
        self.check_nothing_left()
        return record.snapshot()


@dataclass
class Foreseer:
    """A predictor that says every (text, confidence, seconds that it takes), whatever it is asked."""

    says: Sequence[tuple[str, float, float]]
    at_once: bool = False
    """By recalling them."""
    name: str = "world_model"
    ranks: int | None = None
    learned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranks = 0 if self.at_once else len(self.says)

    def recall(self, context: PredictionContext) -> Sequence[Candidate]:
        return [Candidate(text, self.name, p) for text, p, _ in self.says] if self.at_once else []

    def source(self, rank: int) -> str:
        return f"{self.name}/{rank}"

    async def predict(
        self, context: PredictionContext, rank: int, meter: TokenMeter
    ) -> AsyncGenerator[Candidate]:
        text, p, seconds = self.says[rank]
        await asyncio.sleep(seconds)
        yield Candidate(text, self.source(rank), p)

    def learn(self, context: PredictionContext, observation: str) -> None:
        self.learned.append(observation)


def foreseen(stage: Stage, *says: tuple[str, float, float], at_once: bool = False) -> Stage:
    """With a predictor that says just that."""
    stage.scopes = Scopes(lambda name: Foreseer(says, at_once))
    return stage


def stage(commands: Iterable[str] = ("ls", "cat a.txt", "pwd"), **options: object) -> Stage:
    """Three turns and done: the first two observations are predicted, the third is not."""
    actions = [*map(bash, commands), DONE]
    answers = {"ls": ("a.txt\n", 2.0), "cat a.txt": ("", 0.5), "pwd": ("/work\n", 1.0)}
    predictions = [printed("a.txt"), printed(""), printed("/home")]
    return Stage(actions, answers, predictions, **options)  # type: ignore[arg-type]
