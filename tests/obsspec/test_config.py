from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from obsspec.config import ConfigError, load_config
from orchestrator.config import ScriptedConfig, SGLangConfig
from tests.obsspec.command import assert_one_sentence, obsspec

ROOT = Path(__file__).parents[2]
GOOD = """
engines:
  policy:
    model: models/p
    port: 30000
  world_model:
    model: /models/w
orchestrator:
  port: 8900
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        file = tmp_path / "config.yaml"
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_config_is_valid(file: Path) -> None:
    load_config(file)


def test_the_orchestrator_learns_of_the_engines(write) -> None:
    config = load_config(write(GOOD), ["orchestrator.policy.timeout_s=7"])
    assert config.orchestrator.policy.url == config.engine("policy").url == "http://127.0.0.1:30000"
    assert config.orchestrator.policy.timeout_s == 7
    assert config.orchestrator.world_model.url == config.engine("world_model").url
    assert config.orchestrator.tokenizer == config.engine("policy").model


def test_the_orchestrator_learns_how_much_the_models_read(write, tmp_path: Path) -> None:
    for name, length in (("p", 900), ("w", 700)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(f'{{"max_position_embeddings": {length}}}')
    file = write("engines: {policy: {model: p}, world_model: {model: w}}\norchestrator: {}\n")
    service = load_config(file, ["orchestrator.speculation.max_prediction_tokens=100"]).orchestrator
    assert service.context_tokens == 900 - 6  # SGLang refuses prompts of context_length - 6 and more
    assert 700 - 200 < (service.speculation.world_model_context_tokens or 0) < 700 - 100
    shorter = load_config(file, ["engines.policy.context_length=512"]).orchestrator
    assert shorter.context_tokens == 512 - 6
    given = load_config(file, ["orchestrator.context_tokens=300"]).orchestrator
    assert given.context_tokens == 300
    assert load_config(write(GOOD)).orchestrator.context_tokens is None  # no such model on disk


def test_what_the_file_says_of_a_backend_comes_first(write) -> None:
    config = load_config(
        write(GOOD), ["orchestrator.policy.url=http://10.0.0.1:1", "orchestrator.tokenizer=/t"]
    )
    assert config.orchestrator.policy.url == "http://10.0.0.1:1"
    assert config.orchestrator.tokenizer == Path("/t")


def test_a_backend_elsewhere_is_an_sglang_unless_it_says_otherwise(write) -> None:
    text = "orchestrator: {policy: {url: 'http://10.0.0.1:1'}, tokenizer: t}"
    assert load_config(write(text)).orchestrator.policy == SGLangConfig(url="http://10.0.0.1:1")
    config = load_config(write(GOOD), ["orchestrator.policy={kind: scripted, script: a:b}"])
    assert config.orchestrator.policy == ScriptedConfig(kind="scripted", script="a:b")


def test_relative_paths_start_at_the_file(write, tmp_path: Path) -> None:
    config = load_config(write(GOOD))
    assert config.engine("policy").model == tmp_path / "models/p"
    assert config.engine("world_model").model == Path("/models/w")
    assert config.orchestrator.cache.is_absolute()


def test_relative_paths_start_at_the_project_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").write_text(GOOD)
    assert load_config(tmp_path / "configs/a.yaml").engine("policy").model == tmp_path / "models/p"


def test_a_dumped_config_loads_as_the_same(write) -> None:
    config = load_config(write(GOOD))
    assert load_config(write(yaml.safe_dump(config.model_dump(mode="json")))) == config


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (GOOD.replace("port: 30000", "prot: 30000"), ("config.yaml:5", "'engines.policy.prot'", "'port'?")),
        (
            GOOD + "  speculation: {modes: always}",
            ("config.yaml:10", "'orchestrator.speculation.modes'", "'mode'?"),
        ),
        (GOOD + "  policy: {urll: x}", ("config.yaml:10", "'orchestrator.policy.urll'", "'url'?")),
        (GOOD + "zzz: 1", ("config.yaml:10", "'zzz'", "engines, orchestrator")),
        (GOOD.replace("30000", "many"), ("config.yaml:5", "'engines.policy.port'", "integer", "'many'")),
        (GOOD.replace("30000", "70000"), ("config.yaml:5", "'engines.policy.port'", "55535", "70000")),
        (
            GOOD.replace("model: models/p", "device: tpu"),
            ("config.yaml", "'engines.policy.model' is missing"),
        ),
        (
            GOOD + "  policy: {kind: scripted, script: a, url: x}",
            ("config.yaml:10", "unknown key 'orchestrator.policy.url'", "script, tokens_per_s"),
        ),
        *(
            (GOOD + f"  policy: {{url: '{url}'}}", ("'orchestrator.policy.url'", "http://127.0.0.1", url))
            for url in ("localhost:30000", "http://:30000", "http://host:port", "http://[::1")
        ),
        (GOOD + "  policy: {kind: vllm}", ("'orchestrator.policy'", "vllm", "sglang")),
        (GOOD + "  task_folders: [3]", ("'orchestrator.task_folders.0'", "path", "3")),
        (GOOD + "  tool_latency: 3", ("'orchestrator.tool_latency'", "3")),
        ("orchestrator: 3", ("'orchestrator'", "keys and values")),
        ("just text", ("config.yaml", "keys and values")),
        ("a: [", ("config.yaml", "not valid YAML")),
        ("", ("config.yaml", "keys and values")),
    ],
)
def test_a_mistake_is_named_with_its_place(write, text: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text))
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("engines.policy.prot=1", ("'engines.policy.prot'", "'port'?")),
        ("engines.policy.port=x", ("integer",)),
        ("engines.policy.port", ("key=value",)),
        ("engines.policy.port.deeper=1", ("'port' is a value",)),
        ("engines.policy.port=[", ("not valid YAML",)),
    ],
)
def test_a_mistake_in_an_override_is_named(write, override: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(GOOD), [override])
    for part in (f"--set {override}", *parts):
        assert part in str(caught.value)


def test_the_command_says_one_sentence(write, tmp_path: Path) -> None:
    assert obsspec("config", "check", write(GOOD)).returncode == 0
    file = write(GOOD.replace("device", "devise").replace("port: 30000", "prot: 30000"))
    assert_one_sentence(obsspec("config", "check", file), "config.yaml:5", "did you mean 'port'?", status=2)
    file = write(GOOD.replace("30000", "many"))
    assert_one_sentence(
        obsspec("config", "check", file), "'engines.policy.port' should be an integer", status=2
    )
    missing = tmp_path / "none.yaml"
    assert_one_sentence(obsspec("config", "check", missing), f"{missing}: No such file", status=2)


def test_every_command_says_it_the_same_way(write) -> None:
    file = write(GOOD.replace("port: 30000", "prot: 30000"))
    for command in (("engine", "policy"), ("orchestrator",), ("up",)):
        assert_one_sentence(obsspec(*command, "--config", file), "did you mean 'port'?", status=2)
