"""The timeline picture: one task run both ways, one lane a phase, hits and misses marked."""

from __future__ import annotations

from pathlib import Path

from orchestrator.schema import Outcome, Rollout, Span, SpanKind

LANES: tuple[tuple[SpanKind, str, str], ...] = (
    (SpanKind.POLICY, "policy", "#3b6fb6"),
    (SpanKind.TOOL, "tool", "#b9bec7"),
    (SpanKind.WORLD_MODEL, "world model", "#e0952f"),
    (SpanKind.SPECULATIVE_POLICY, "speculative policy", "#7fb0e6"),
)
HIT, MISS = "#2e8b57", "#c0392b"


def draw(sequential: Rollout, speculative: Rollout, note: str, path: Path) -> None:
    """Write the picture of one task's two rollouts to `path` (PNG); `note` says what is simulated."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, 1, sharex=True, figsize=(12, 5.6), gridspec_kw={"height_ratios": [2, 4]}, layout="constrained"
    )
    for axis, rollout, lanes, name in (
        (axes[0], sequential, LANES[:2], "sequential"),
        (axes[1], speculative, LANES, "speculative"),
    ):
        origin = _origin(rollout)
        for row, (kind, _, color) in enumerate(lanes):
            for span in rollout.spans:
                if span.kind is kind:
                    width = max(span.end_s - span.start_s, 0.004)
                    kept = span.attributes.get("committed", True)
                    axis.barh(
                        row,
                        width,
                        left=span.start_s - origin,
                        height=0.62,
                        color=color if kept else "none",
                        edgecolor=color,
                        hatch=None if kept else "////",
                        linewidth=0 if kept else 1,
                    )
        axis.set_yticks(range(len(lanes)), [label for _, label, _ in lanes])
        axis.set_ylim(len(lanes) - 0.4, -0.6)
        axis.set_title(
            f"{name}: agent latency {rollout.agent_latency_s or 0.0:.2f} s, {len(rollout.turns)} turns, "
            f"reward {rollout.reward if rollout.reward is not None else 'none'}",
            loc="left",
            fontsize=10,
        )
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.tick_params(axis="y", length=0)
    _mark_outcomes(axes[1], speculative)
    axes[1].set_xlabel("seconds since the agent's first action began")
    handles = [plt.Line2D([], [], marker="o", linestyle="", color=c, label=t) for c, t in _KEY]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(
        f"{speculative.task}, seed {speculative.seed}, run both ways. {note}", fontsize=10, x=0.01, ha="left"
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


_KEY = (
    (HIT, "hit: the prediction equals the observation, the speculative action is kept"),
    (MISS, "miss: the speculative action (hatched) is thrown away"),
)


def _mark_outcomes(axis: object, rollout: Rollout) -> None:
    """A dot where each compared tool call ended, and a rule down to the branch that it decided."""
    origin = _origin(rollout)
    tools = {span.turn: span for span in rollout.spans if span.kind is SpanKind.TOOL}
    for turn in rollout.turns:
        outcome = turn.prediction.outcome if turn.prediction else None
        span: Span | None = tools.get(turn.index)
        if span is None or outcome not in (Outcome.HIT, Outcome.MISS):
            continue
        color, x = (HIT if outcome is Outcome.HIT else MISS), span.end_s - origin
        axis.plot([x, x], [1, 3], color=color, linewidth=1.2)  # type: ignore[attr-defined]
        axis.plot([x], [1], marker="o", color=color, markersize=7)  # type: ignore[attr-defined]


def _origin(rollout: Rollout) -> float:
    return min((span.start_s for span in rollout.spans if span.kind is SpanKind.POLICY), default=0.0)
