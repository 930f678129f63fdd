"""task.toml as Harbor defines it, schema versions 0.1, 1.0 and 1.1 (and what later ones share with them).

Fields that are not listed here are kept, never refused; `unknown` names them. Harbor's defaults hold where
a task names nothing, except for memory, storage and CPUs, where None leaves the choice to what runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.harbor.values import Above0, Count, Megabytes, Name, NotNegative, OptionalAbove0, Size, Text, shown
from tasks.task import Healthcheck

VERSIONS = ("0.1", "1.0", "1.1")

Location = tuple[str | int, ...]
NetworkMode = Literal["public", "no-network", "allowlist"]


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Network(Table):
    """Of versions after 1.1, in each of the tables of the environment and of what runs in it."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] = Field(default_factory=list)


class AgentSettings(Network):
    timeout_sec: Above0 = 600.0
    user: Name = None


class VerifierSettings(Network):
    timeout_sec: Above0 = 600.0
    user: Name = None
    env: dict[str, Text] = Field(default_factory=dict)
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    end_processes: bool = False
    """Ours, not Harbor's: what the agent left running is ended before the tests appear."""

    @property
    def separate(self) -> bool:
        return self.environment_mode == "separate" or self.environment is not None


class SolutionSettings(Table):
    env: dict[str, Text] = Field(default_factory=dict)


class HealthcheckSettings(Table):
    command: str
    interval_sec: Above0 = 5.0
    timeout_sec: Above0 = 30.0
    start_period_sec: NotNegative = 0.0
    start_interval_sec: Above0 = 5.0
    retries: Count = 3

    def value(self) -> Healthcheck:
        periods = self.interval_sec, self.timeout_sec, self.start_period_sec, self.start_interval_sec
        return Healthcheck(self.command, *periods, self.retries)


class EnvironmentSettings(Network):
    build_timeout_sec: Above0 = 600.0
    docker_image: Name = None
    os: str = "linux"
    cpus: OptionalAbove0 = None
    memory_mb: Megabytes = None
    memory: Size = None
    """The older spelling of `memory_mb`; it wins, as in Harbor."""
    storage_mb: Megabytes = None
    storage: Size = None
    gpus: Count = 0
    gpu_types: list[Any] | None = None
    allow_internet: bool = True
    env: dict[str, Text] = Field(default_factory=dict)
    mcp_servers: list[Any] = Field(default_factory=list)
    skills_dir: Name = None
    workdir: Name = None
    healthcheck: HealthcheckSettings | None = None

    @property
    def internet(self) -> bool:
        """Off for a list of allowed hosts too: none that the task forbids may be reached."""
        if self.network_mode is None and not self.allowed_hosts:
            return self.allow_internet
        return self.network_mode == "public"


class PackageSettings(Table):
    """[task]: what a registry shows of the task. Nothing that runs it depends on these."""

    name: str | None = None
    description: str = ""
    authors: list[Any] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)


class Settings(Table):
    version: Text | None = None
    schema_version: Text | None = None
    source: Any = None
    task: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: AgentSettings = AgentSettings()
    verifier: VerifierSettings = VerifierSettings()
    solution: SolutionSettings = SolutionSettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    steps: Any = None
    """Tables of a task of several steps, which nothing here can run."""
    artifacts: Any = None


def unknown(table: Table, at: Location = ()) -> Iterator[tuple[Location, list[str]]]:
    """Where each field is that a table does not define, and the fields that it does."""
    for name in table.model_extra or {}:
        yield (*at, name), list(type(table).model_fields)
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, Table):
            yield from unknown(value, (*at, name))


def mistakes(error: ValidationError) -> Iterator[tuple[Location, str]]:
    """Where each value is that cannot be used, and what it must be: both complete "task.toml ..."."""
    kinds = {
        "model_type": "must be a table",
        "dict_type": "must be a table",
        "list_type": "must be a list",
        "string_type": "must be text",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
    }
    for detail in error.errors(include_url=False):
        kind, name, context = detail["type"], ".".join(map(str, detail["loc"])), detail.get("ctx", {})
        if kind == "missing":
            yield detail["loc"], f"lacks {name}: add it"
            continue
        what = f"must be {context['expected']}" if kind == "literal_error" else kinds.get(kind)
        what = what or str(context.get("error", detail["msg"]))
        yield detail["loc"], f"has {name} = {shown(detail['input'])}: it {what}"
