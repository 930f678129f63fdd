"""Trials: tasks built, worked on by scripted agents and verified; what fails is a row that says why."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tasks.agents import AgentName
from tasks.config import BuildConfig, SandboxConfig
from tasks.sources import open_source
from tasks.trials import Trial, all_of
from tasks.worlds import Worlds
from tests.tasks.harbor_tasks import make
from tests.tasks.layers import shared_layers

TASK_TOML = """\
version = "1.0"

[agent]
timeout_sec = 20.0

[verifier]
timeout_sec = 20.0

[environment]
allow_internet = false
"""
DOCKERFILE = "FROM ubuntu:22.04\nRUN useradd -m worker\nUSER worker\nWORKDIR /home/worker\n"
CHECK = """\
#!/bin/bash
if [ "$(cat /home/worker/result)" = word ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
TASK = {
    "task.toml": TASK_TOML,
    "environment/Dockerfile": DOCKERFILE,
    "tests/test.sh": CHECK,
    "tests/test_result.py": None,
    "solution/solve.sh": "#!/bin/bash\necho word > result\n",
}


@pytest.fixture
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(SandboxConfig(store=shared_layers(tmp_path_factory), build=BuildConfig(network=False)))


async def trials(
    folder: Path | str,
    worlds: Worlds,
    agent: AgentName | None = None,
    build_only: bool = False,
    cache: Path = Path("unused"),
) -> dict[str, Trial]:
    source = open_source(str(folder), cache)
    ids = [task_id for task_id, _ in zip(source.ids(), range(8), strict=False)]
    async with aclosing(all_of(source, ids, worlds, 2, agent, build_only)) as rows:
        return {row.task: row async for row in rows}


async def test_each_agent_has_its_reward(tmp_path: Path, worlds: Worlds) -> None:
    make(tmp_path / "good", TASK)
    for agent, reward in (("solution", 1.0), ("noop", 0.0), (None, 1.0)):
        (row,) = (await trials(tmp_path, worlds, agent)).values()  # type: ignore[arg-type]
        assert (row.built, row.verified, row.reward, row.refused) == (True, True, reward, None)
        assert (row.agent, row.note) == (agent or "solution", "")
        assert row.base.startswith("ubuntu:22.04 is served by this host's own system")
        assert min(row.start_s, row.agent_s if agent != "noop" else 1, row.verify_s) > 0


async def test_each_task_that_fails_is_a_row_with_its_reason(tmp_path: Path, worlds: Worlds) -> None:
    make(tmp_path / "good", TASK)
    make(tmp_path / "broken", {**TASK, "task.toml": "agent = 3\n"})
    make(tmp_path / "unbuilt", {**TASK, "environment/Dockerfile": "FROM ubuntu:22.04\nRUN exit 7\n"})
    make(tmp_path / "unverified", {**TASK, "tests/test.sh": "#!/bin/bash\necho what is wrong\n"})
    make(tmp_path / "dead", {**TASK, "environment/Dockerfile": DOCKERFILE + 'ENTRYPOINT ["false"]\n'})
    rows = await trials(tmp_path, worlds)
    assert {name: (row.built, row.verified, row.reward) for name, row in rows.items()} == {
        "broken": (False, False, None),
        "dead": (True, False, None),
        "good": (True, True, 1.0),
        "unbuilt": (False, False, None),
        "unverified": (True, False, None),
    }
    reasons = {name: row.refused or "" for name, row in rows.items()}
    assert "task.toml:1 has agent = 3: it must be a table" in reasons["broken"]
    assert "Dockerfile line 2: RUN exit 7 failed with exit code 7: it printed nothing" in reasons["unbuilt"]
    assert "(without a network: the task allows none" in reasons["unbuilt"]
    assert "unverified has no verdict" in reasons["unverified"]
    assert reasons["unverified"].endswith("last line: what is wrong)")
    assert "dead has an entry point that ended with status 1" in reasons["dead"]
    assert reasons["good"] == ""


async def test_a_task_without_a_solution_is_verified_with_nothing_done(
    tmp_path: Path, worlds: Worlds
) -> None:
    make(tmp_path / "open", {**TASK, "solution/solve.sh": None})
    row = (await trials(tmp_path, worlds, "solution"))["open"]
    assert (row.agent, row.verified, row.reward) == ("noop", True, 0.0)
    assert row.note == "it has no solution/solve.sh: nothing was done"
    row = (await trials(tmp_path, worlds, "expert"))["open"]
    assert row.refused is not None
    assert "is no task of a built-in family, so it has no expert" in row.refused


async def test_what_a_solution_says_and_leaves_running(tmp_path: Path, worlds: Worlds) -> None:
    talker = """\
#!/bin/bash
(while sleep 0.05; do echo more || echo deaf > ~/deaf; done) &
echo the reason >&2
exit 4
"""
    check = """\
#!/bin/bash
sleep 0.3
[ ! -e ~/deaf ] && pgrep sleep && echo 1 > /logs/verifier/reward.txt
"""
    make(tmp_path / "talker", {**TASK, "solution/solve.sh": talker, "tests/test.sh": check})
    make(
        tmp_path / "slow",
        {**TASK, "solution/solve.sh": "sleep 30\n", "task.toml": TASK_TOML.replace("20.0", "1.0")},
    )
    rows = await trials(tmp_path, worlds)
    assert (rows["talker"].note, rows["talker"].reward) == ("solve.sh ended with 4: the reason", 1.0)
    assert (rows["slow"].note, rows["slow"].reward) == ("solve.sh was not done within 1 s", 0.0)


async def test_variables_of_the_task(tmp_path: Path, worlds: Worlds) -> None:
    toml = TASK_TOML + '\n[environment.env]\nA = "a"\nB = "${B}"\n\n[solution.env]\nC = "${C:-c}"\n'
    solve = "#!/bin/bash\n[ $A$B$C = abc ] && echo word > result\n"
    make(tmp_path / "named", {**TASK, "task.toml": toml, "solution/solve.sh": solve})
    row = (await trials(tmp_path, worlds))["named"]
    assert row.refused is not None
    assert "B = '${B}' needs the variable B" in row.refused
    given = Worlds(worlds.config.model_copy(update={"env": {"B": "b"}}))
    assert (await trials(tmp_path, given))["named"].reward == 1.0


async def test_the_entry_point_serves_the_agent_and_the_tests(tmp_path: Path, worlds: Worlds) -> None:
    dockerfile = """\
FROM ubuntu:22.04
COPY --chmod=755 <<'E' /entry.sh
#!/bin/sh
python3 -m http.server 8000 -d /srv &
until python3 /get.py; do :; done 2>/dev/null
exec "$@"
E
COPY <<'E' /get.py
import urllib.request
print(urllib.request.urlopen('http://localhost:8000/').status)
E
ENTRYPOINT ["/entry.sh"]
"""
    check = """\
#!/bin/bash
[ $(cat /result) = 200 ] && [ $(python3 /get.py) = 200 ] && echo 1 > /logs/verifier/reward.txt
"""
    solve = "#!/bin/bash\npython3 /get.py > /result\n"
    files = {"environment/Dockerfile": dockerfile, "tests/test.sh": check, "solution/solve.sh": solve}
    make(tmp_path / "served", {**TASK, **files})
    row = (await trials(tmp_path, worlds))["served"]
    assert (row.refused, row.reward) == (None, 1.0)


async def test_building_alone_runs_nothing(tmp_path: Path, worlds: Worlds) -> None:
    make(tmp_path / "good", TASK)
    row = (await trials(tmp_path, worlds, build_only=True))["good"]
    assert (row.built, row.verified, row.reward, row.agent) == (True, False, None, None)


@pytest.mark.parametrize(("agent", "reward"), [("expert", 1.0), ("noop", 0.0)])
async def test_built_in_families(agent: AgentName, reward: float, tmp_path: Path, worlds: Worlds) -> None:
    rows = await trials("family:move_files", worlds, agent, cache=tmp_path)
    assert len(rows) == 8
    assert {(row.built, row.reward, row.refused, row.base) for row in rows.values()} == {
        (True, reward, None, "built in")
    }


async def test_whoever_stops_listening_stops_the_trials(tmp_path: Path, worlds: Worlds) -> None:
    make(tmp_path / "first", TASK)
    make(tmp_path / "second", {**TASK, "solution/solve.sh": "sleep 30\n"})
    source = open_source(str(tmp_path), tmp_path)
    before = asyncio.all_tasks()
    async with aclosing(all_of(source, ["second", "first"], worlds, 2)) as rows:
        async for row in rows:
            assert row.task == "first"
            break
    assert asyncio.all_tasks() == before
