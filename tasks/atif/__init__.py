"""ATIF, the Agent Trajectory Interchange Format that Harbor writes: its types, reading, writing, checking.

What is read is written again with the same keys, values and order, whatever version of the format, and
whatever fields that nobody here knows. Nothing in this package knows of rollouts.
"""

from tasks.atif.models import (
    Agent,
    AtifModel,
    ContentPart,
    FinalMetrics,
    MediaSource,
    Metrics,
    Observation,
    ObservationResult,
    Source,
    Step,
    SubagentRef,
    ToolCall,
    Trajectory,
)
from tasks.atif.reader import loads, read
from tasks.atif.validator import problems
from tasks.atif.writer import dumps, write

__all__ = [
    "Agent",
    "AtifModel",
    "ContentPart",
    "FinalMetrics",
    "MediaSource",
    "Metrics",
    "Observation",
    "ObservationResult",
    "Source",
    "Step",
    "SubagentRef",
    "ToolCall",
    "Trajectory",
    "dumps",
    "loads",
    "problems",
    "read",
    "write",
]
