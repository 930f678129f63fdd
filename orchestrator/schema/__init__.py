"""Types that cross the HTTP border; the trainer and the clients import these and nothing deeper."""

from orchestrator.schema.base import Frozen
from orchestrator.schema.request import (
    Limits,
    NoLatency,
    RolloutRequest,
    Sampling,
    SpeculationMode,
    Submitted,
    ToolLatency,
)
from orchestrator.schema.rollout import (
    Outcome,
    Prediction,
    Rollout,
    RolloutStatus,
    Span,
    SpanKind,
    ToolCallRecord,
    Totals,
    Turn,
)
from orchestrator.schema.service import EngineState, FamilyInfo, Problem, Readiness, RolloutSummary, TaskList
from orchestrator.schema.trajectory import Segment, SegmentKind, Trajectory

__all__ = [
    "EngineState",
    "FamilyInfo",
    "Frozen",
    "Limits",
    "NoLatency",
    "Outcome",
    "Prediction",
    "Problem",
    "Readiness",
    "Rollout",
    "RolloutRequest",
    "RolloutStatus",
    "RolloutSummary",
    "Sampling",
    "Segment",
    "SegmentKind",
    "Span",
    "SpanKind",
    "SpeculationMode",
    "Submitted",
    "TaskList",
    "ToolCallRecord",
    "ToolLatency",
    "Totals",
    "Trajectory",
    "Turn",
]
