"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orchestrator.schema import NoLatency, ToolLatency

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="YAML file, such as configs/tiny.yaml.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a key, as engines.policy.port=30100."),
]

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of Harbor task directories, a .jsonl or .parquet index, families, or family:NAME.",
    ),
]
Cache = Annotated[Path, typer.Option(help="Where tasks without a directory of their own are written.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Take only the first so many; of families, which have no end, 20 by default."),
]
CACHE = Path("runs/cache/tasks")


def require_writable(json: Path | None) -> None:
    """Raises ConfigError where --json cannot be written: said before the work that it costs."""
    from obsspec.errors import ConfigError

    if json is not None and (json.is_dir() or not json.parent.is_dir()):
        raise ConfigError(f"--json {json}: name a file in a folder that exists")


def parse_latency(text: str) -> ToolLatency | NoLatency:
    """`none`, `MEAN` or `MEAN:SIGMA`, in seconds. Raises ConfigError."""
    from obsspec.errors import ConfigError
    from orchestrator.schema import ToolLatency

    if text == "none":
        return "none"
    mean, _, sigma = text.partition(":")
    try:
        return ToolLatency(mean_s=float(mean), sigma=float(sigma or 0.6))
    except ValueError:
        raise ConfigError(
            f"--tool-latency {text}: write seconds as MEAN or MEAN:SIGMA, such as 1.0:0.6, or none"
        ) from None
