"""Prometheus metrics of one service, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from orchestrator.schema import Rollout

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.queued = Gauge("obsspec_rollouts_queued", "Rollouts that wait.", registry=self.registry)
        self.running = Gauge("obsspec_rollouts_running", "Rollouts that run.", registry=self.registry)
        self._rollouts = Counter(
            "obsspec_rollouts", "Rollouts that ended.", ["status", "mode"], registry=self.registry
        )
        self._predictions = Counter(
            "obsspec_predictions", "Tool calls by what came of their prediction.", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        self._tokens = Counter(
            "obsspec_tokens",
            "Tokens: action, observation, discarded_policy, discarded_world_model.",
            ["kind"],
            registry=self.registry,
        )
        self._latency = Histogram(
            "obsspec_agent_latency_seconds",
            "From the first policy call to the end of the last action or tool.",
            ["mode"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._spans = Histogram(
            "obsspec_span_seconds", "Phases of rollouts.", ["kind"], buckets=_SECONDS, registry=self.registry
        )

    def observe(self, rollout: Rollout) -> None:
        """Count an ended rollout."""
        self._rollouts.labels(rollout.status, rollout.mode).inc()
        if rollout.agent_latency_s is not None:
            self._latency.labels(rollout.mode).observe(rollout.agent_latency_s)
        for turn in rollout.turns:
            if turn.prediction is not None:
                self._predictions.labels(turn.prediction.outcome).inc()
        for span in rollout.spans:
            self._spans.labels(span.kind).observe(span.end_s - span.start_s)
        totals = rollout.totals
        for kind in ("action", "observation", "discarded_policy", "discarded_world_model"):
            self._tokens.labels(kind).inc(getattr(totals, f"{kind}_tokens"))

    def render(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
