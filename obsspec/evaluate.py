"""How good the two models are: success of the policy and exact matches of the world model, held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from obsspec.comparison import exact, percent
from orchestrator.report import by_command_kind, by_family, report
from orchestrator.schema import Rollout


def evaluation(rollouts: Sequence[Rollout], temperature: float) -> dict[str, Any]:
    """Fractions in [0, 1]; null where there is nothing to divide by."""
    whole = report(rollouts)
    families = {
        name: {
            "rollouts": r.rollouts,
            "success_rate": r.success_rate,
            **exact(r.speculation),
        }
        for name, r in by_family(rollouts).items()
    }
    inside = [row for row in families.values() if 0.1 <= (row["success_rate"] or 0.0) <= 0.9]
    return {
        "rollouts": whole.rollouts,
        "failed": whole.failed,
        "temperature": temperature,
        "success_rate": whole.success_rate,
        "families_between_10_and_90_percent": len(inside) / len(families) if families else None,
        "turns": whole.turns,
        "tool_calls": whole.speculation.tool_calls,
        "exact_frac": whole.speculation.exact_frac,
        "exact_frac_nonempty": whole.speculation.exact_frac_nonempty,
        "hit_frac": whole.speculation.hit_frac,
        "hit_frac_nonempty": whole.speculation.hit_frac_nonempty,
        "by_family": families,
        "by_command_kind": {
            kind: {
                "tool_calls": f.tool_calls,
                **exact(f),
            }
            for kind, f in by_command_kind(rollouts).items()
        },
    }


def tables(figures: dict[str, Any]) -> list[Table]:
    families = Table(
        title=f"{figures['rollouts']} held-out rollouts at temperature {figures['temperature']:g}"
    )
    for name in ("family", "success", "exact_frac", "without empty"):
        families.add_column(name, justify="left" if name == "family" else "right")
    for name, row in [*figures["by_family"].items(), ("all", figures)]:
        if name == "all":
            families.add_section()
        families.add_row(name, percent(row["success_rate"]), *_exact(row))
    kinds = Table(title="World model by command kind")
    for name in ("command", "calls", "exact_frac", "without empty"):
        kinds.add_column(name, justify="left" if name == "command" else "right")
    for name, row in figures["by_command_kind"].items():
        kinds.add_row(name, str(row["tool_calls"]), *_exact(row))
    return [families, kinds]


def _exact(row: dict[str, Any]) -> tuple[str, str]:
    return percent(row["exact_frac"]), percent(row["exact_frac_nonempty"])
