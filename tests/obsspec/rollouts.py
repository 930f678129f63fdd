"""Rollouts made by hand, for what reads them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.schema import (
    Outcome,
    Prediction,
    Rollout,
    RolloutStatus,
    Span,
    SpanKind,
    SpeculationMode,
    ToolCallRecord,
    Turn,
)


def made(
    family: str, outcomes: Sequence[Outcome], reward: float, latency: float, mode: SpeculationMode
) -> Rollout:
    """A rollout with a tool call for each outcome, 1 s apart, whose second observation is empty."""
    turns = [
        Turn(
            index=i,
            text="…",
            thought="…",
            tool_call=ToolCallRecord(
                name="bash", command="cat a.txt" if i % 2 == 0 else "sed -i s/a/b/ a.txt"
            ),
            observation="…",
            observation_empty=i == 1,
            prediction=Prediction(
                outcome=outcome, predictor_s=0.1, discarded_policy_tokens=7 * (outcome is Outcome.MISS)
            ),
            action_tokens=20,
            start_s=float(i),
            generation_s=0.3,
            tool_s=0.5,
            simulated_s=0.45,
        )
        for i, outcome in enumerate(outcomes)
    ]
    spans = [
        span
        for i in range(len(outcomes))
        for span in (
            Span(kind=SpanKind.POLICY, turn=i, start_s=i + 0.0, end_s=i + 0.3),
            Span(kind=SpanKind.TOOL, turn=i, start_s=i + 0.3, end_s=i + 0.8),
            Span(kind=SpanKind.WORLD_MODEL, turn=i, start_s=i + 0.3, end_s=i + 0.4),
            Span(
                kind=SpanKind.SPECULATIVE_POLICY,
                turn=i + 1,
                start_s=i + 0.4,
                end_s=i + 0.7,
                attributes={"committed": outcomes[i] is Outcome.HIT},
            ),
        )
    ]
    return Rollout(
        id=f"{family}-{mode}",
        task=f"{family}/1000000",
        family=family,
        mode=mode,
        seed=0,
        status=RolloutStatus.FINISHED,
        reward=reward,
        agent_latency_s=latency,
        turns=turns,
        spans=spans,
    )
