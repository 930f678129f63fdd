from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from orchestrator.action import SampledAction
from orchestrator.backends.base import BackendError, BranchEnded, FinishReason, SamplingParams
from orchestrator.backends.factory import create
from orchestrator.backends.scripted import ScriptedBackend
from orchestrator.backends.sglang import SGLangBackend
from orchestrator.config import ScriptedConfig, SGLangConfig
from tests.orchestrator.virtual import run

STOP = 9


def count(ids: Sequence[int], params: SamplingParams) -> list[int]:
    """Continues 1, 2, 3 with 4, 5, ... up to the stop token 9."""
    return list(range(ids[-1] + 1, STOP + 1))


def dying(ids: Sequence[int], params: SamplingParams) -> Iterator[int]:
    yield from (4, 5, 6)
    raise BackendError("the policy engine at nowhere died after 3 tokens")


PARAMS = SamplingParams(max_new_tokens=10, stop_token_ids=(STOP,), seed=7)


def engine(script: object = count, **options: float) -> ScriptedBackend:
    return ScriptedBackend(script, tokens_per_s=10, prefill_s=0.5, **options)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_stop_token_is_part_of_an_action() -> None:
    async def main() -> None:
        backend = engine()
        action = await SampledAction().read(backend.generate([1, 2, 3], PARAMS))
        assert action.token_ids == [4, 5, 6, 7, 8, 9]
        assert len(action.logprobs) == 6
        assert all(logprob <= 0 for logprob in action.logprobs)
        assert action.finish is FinishReason.STOP
        assert action.weight_version == "scripted"
        assert now() == pytest.approx(0.5 + 6 / 10)
        assert backend.running == 0

    run(main())


def test_an_action_is_cut_at_its_limit() -> None:
    async def main() -> None:
        action = await SampledAction().read(engine(chunk_tokens=2).generate([1], SamplingParams(3)))
        assert (action.token_ids, action.finish) == ([2, 3, 4], FinishReason.LENGTH)

    run(main())


def test_a_branch_is_the_continuation_of_parent_and_candidate() -> None:
    async def main() -> None:
        backend = engine()
        (branch,) = await backend.open([1, 2], [[3, 4]], PARAMS)
        direct = await SampledAction().read(backend.generate([1, 2, 3, 4], PARAMS))
        assert await SampledAction().read(branch.commit()) == direct
        assert len(backend.branches) == backend.running == 0

    run(main())


def test_committing_a_finished_branch_takes_no_time_and_a_running_one_streams_on() -> None:
    async def main() -> None:
        backend = engine()
        (finished,) = await backend.open([1], [[2, 3]], PARAMS)
        await asyncio.sleep(10)
        assert finished.finished_at == pytest.approx(1.1)
        await SampledAction().read(finished.commit())
        assert now() == 10

        (running,) = await backend.open([1], [[2, 3]], PARAMS)
        await asyncio.sleep(0.75)
        assert running.finished_at is None
        arrivals = []
        async for chunk in running.commit():
            arrivals += [round(now() - 10, 2)] * len(chunk.token_ids)
        assert arrivals == [0.75, 0.75, 0.8, 0.9, 1.0, 1.1]

    run(main())


def test_a_dropped_branch_stops_generating_and_says_what_it_threw_away() -> None:
    async def main() -> None:
        backend = engine()
        (branch,) = await backend.open([1], [[2, 3]], PARAMS)
        await asyncio.sleep(0.75)
        assert (len(backend.branches), backend.running) == (1, 1)
        assert await branch.drop() == 2
        assert (len(backend.branches), backend.running) == (0, 0)

    run(main())


@pytest.mark.parametrize("first", ["commit", "drop"])
@pytest.mark.parametrize("second", ["commit", "drop"])
def test_a_branch_ends_once(first: str, second: str) -> None:
    async def main() -> None:
        backend = engine()
        (branch,) = await backend.open([1], [[2]], PARAMS)
        if first == "commit":
            await SampledAction().read(branch.commit())
        else:
            await branch.drop()
        with pytest.raises(BranchEnded, match="ends once"):
            branch.commit() if second == "commit" else await branch.drop()

    run(main())


def test_no_branch_survives_a_weight_update() -> None:
    async def main() -> None:
        backend = engine()
        (branch,) = await backend.open([1], [[2]], PARAMS)
        await asyncio.sleep(0.75)
        await backend.update_weights("/models/next", "v2")
        assert (len(backend.branches), backend.running) == (0, 0)
        with pytest.raises(BranchEnded):
            branch.commit()
        assert await branch.drop() == 2
        action = await SampledAction().read(backend.generate([1], PARAMS))
        assert action.weight_version == "v2"

    run(main())


def test_leaving_a_committed_branch_early_ends_its_generation() -> None:
    async def main() -> None:
        backend = engine()
        (branch,) = await backend.open([1], [[2, 3]], PARAMS)
        chunks = branch.commit()
        assert (await anext(chunks)).token_ids == (4,)
        await chunks.aclose()
        assert backend.running == 0

    run(main())


def test_an_engine_that_dies_in_a_branch_is_known_at_commit_and_harmless_at_drop() -> None:
    async def main() -> None:
        backend = engine(dying)
        first, second = await backend.open([1], [[2], [3]], PARAMS)
        await asyncio.sleep(5)
        action = SampledAction()
        with pytest.raises(BackendError, match="died after 3 tokens"):
            await action.read(first.commit())
        assert action.token_ids == [4, 5]
        assert await second.drop() == 2
        assert len(backend.branches) == 0

    run(main())


def test_closing_an_engine_ends_its_branches() -> None:
    async def main() -> None:
        backend = engine()
        await backend.open([1], [[2], [3]], PARAMS)
        await backend.close()
        await backend.close()
        assert (len(backend.branches), backend.running) == (0, 0)

    run(main())


def test_an_answer_without_a_token_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(BackendError, match="gave no token"):
            await SampledAction().read(engine(lambda ids, params: []).generate([1], PARAMS))

    run(main())


def test_which_engine_is_a_line_in_the_config() -> None:
    scripted = create("policy", ScriptedConfig(kind="scripted", script=f"{__name__}:count", tokens_per_s=5))
    assert isinstance(scripted, ScriptedBackend)
    assert isinstance(create("policy", SGLangConfig(url="http://127.0.0.1:1")), SGLangBackend)
    for address in ("nowhere:script", f"{__name__}:nothing", "no-colon"):
        with pytest.raises(BackendError, match=r"no script at .* write it as package\.module:function"):
            create("policy", ScriptedConfig(kind="scripted", script=address))
