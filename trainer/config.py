"""Configuration of the learner: model shape, optimiser, schedule, curriculum, supervised training."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Frozen):
    """Shape of a Qwen3 model with tied embeddings; the vocabulary comes from the tokenizer."""

    hidden_size: PositiveInt = 256
    """Width of the residual stream."""
    intermediate_size: PositiveInt = 768
    """Width of the gated MLP."""
    layers: PositiveInt = 6
    """Number of decoder layers."""
    heads: PositiveInt = 4
    """Query heads."""
    kv_heads: PositiveInt = 4
    """Key and value heads."""
    head_dim: PositiveInt = 64
    """Width of one head."""
    context: PositiveInt = 2048
    """Longest sequence, in tokens."""
    rope_theta: PositiveFloat = 1_000_000.0
    """Base of the rotary embedding."""
    init_std: PositiveFloat = 0.02
    """Standard deviation of the initial weights."""
    induction: bool = True
    """Write a copying circuit into the initial weights (trainer/induction.py)."""


class OptimizerConfig(Frozen):
    """AdamW."""

    lr: PositiveFloat = 1.5e-3
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the two moments."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay, times the learning rate."""
    clip_grad: PositiveFloat = 1.0
    """Largest gradient norm."""


class BudgetConfig(Frozen):
    """How long a phase lasts: whichever limit is met first; its schedule follows the steps, where given."""

    minutes: PositiveFloat | None = None
    """Wall-clock limit."""
    steps: PositiveInt | None = None
    """Limit in optimiser steps."""

    @model_validator(mode="after")
    def _bounded(self) -> BudgetConfig:
        if self.minutes is None and self.steps is None:
            raise ValueError("a budget needs minutes, steps or both")
        return self

    def progress(self, steps: int, seconds: float) -> float:
        """Fraction of the budget used, 1.0 at its end."""
        by_time = 0.0 if self.minutes is None else seconds / (60 * self.minutes)
        if self.steps is None or by_time >= 1:
            return by_time
        return steps / self.steps


class ScheduleConfig(Frozen):
    """Learning-rate factor over one phase: linear warm-up, constant, linear decay."""

    warmup_steps: int = Field(20, ge=0)
    """Steps from zero to the peak."""
    decay_fraction: float = Field(0.6, ge=0, le=1)
    """Last part of the budget, over which the rate falls linearly."""
    final_factor: float = Field(0.02, ge=0, le=1)
    """Factor at the end of the phase."""

    def factor(self, step: int, progress: float) -> float:
        """Factor of step `step` (from 0) when `progress` (0..1) of the phase's budget is used."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        left = max(0.0, 1.0 - progress)
        decay = 1.0 if self.decay_fraction == 0 else min(1.0, left / self.decay_fraction)
        return warm * (self.final_factor + (1 - self.final_factor) * decay)


class CopyConfig(Frozen):
    """The copy curriculum: synthetic sequences that can only be predicted by copying from context."""

    budget: BudgetConfig = BudgetConfig(minutes=1.5, steps=80)
    """How long the curriculum lasts."""
    schedule: ScheduleConfig = ScheduleConfig(decay_fraction=0)
    """Its learning rate; constant by default, since the trajectories follow."""
    length: tuple[PositiveInt, PositiveInt] = (96, 256)
    """Tokens of a sequence at the start and at the end of the phase."""
    segment: tuple[PositiveInt, PositiveInt] = (3, 10)
    """Shortest and longest repeated segment, in tokens."""
    symbols: tuple[PositiveInt, PositiveInt] = (2048, 2048)
    """Distinct tokens that sequences draw from, at the start and at the end (at most the vocabulary)."""
    repeat: float = Field(0.6, ge=0, le=1)
    """Probability that the next segment repeats an earlier one of the same sequence."""
    lookup: float = Field(0.5, ge=0, le=1)
    """Share of sequences that are key-value tables followed by look-ups."""
    gap: tuple[NonNegativeInt, NonNegativeInt] = (0, 6)
    """Fewest and most filler tokens between a key and its value."""
    grow_until: float = Field(0.8, gt=0, le=1)
    """Part of the phase after which lengths and symbols stay at their end values."""
    fresh_weight: bool = False
    """Whether tokens that cannot be predicted count in the loss too."""


class BatchConfig(Frozen):
    """Tokens a step, and how a step is cut."""

    tokens: PositiveInt = 2048
    """Tokens of one optimiser step."""
    micro_tokens: PositiveInt = 4096
    """Tokens of one forward and backward pass; no sequence may be longer."""
    bucket: PositiveInt = 32
    """Steps whose sequences are sorted by length together, so that padding is small."""


class SftConfig(Frozen):
    """One supervised training: an optional copy curriculum, then trajectories."""

    model: ModelConfig = ModelConfig()
    """Shape of the model."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser of both phases."""
    batch: BatchConfig = BatchConfig()
    """Batch sizes of both phases."""
    copying: CopyConfig | None = CopyConfig()
    """The copy curriculum; null leaves it out."""
    budget: BudgetConfig = BudgetConfig(minutes=45)
    """How long the trajectories are trained on."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over the trajectories."""
    loss: Literal["all", "observations", "actions"] = "all"
    """Tokens the loss counts: actions and observations, or one of them."""
    final_loss: Literal["all", "observations", "actions"] | None = None
    """What the loss counts in the last part of the budget; null: no change."""
    final_from: float = Field(0.7, ge=0, le=1)
    """Part of the budget after which `final_loss` holds."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """Arithmetic of forward and backward; weights and optimiser state are float32."""
    seed: int = 0
    """Seeds weights, order and curriculum."""
    validation_minutes: PositiveFloat = 5.0
    """Time between two validations."""
    validation_trajectories: PositiveInt = 200
    """Held-out trajectories a validation reads."""
    checkpoint_minutes: PositiveFloat = 5.0
    """Time between two exports of the weights."""


class TokenizerConfig(Frozen):
    """The tokenizer that both models share."""

    vocab_size: PositiveInt = 2048
    """Tokens in all, fixed texts included."""
    merges: PositiveInt = 256
    """Pieces kept for words that are not one token."""


class WarmstartConfig(Frozen):
    """The two tiny models: policy and world model."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    """Their tokenizer."""
    policy: SftConfig = SftConfig()
    """The policy."""
    world_model: SftConfig = SftConfig(model=ModelConfig(layers=4), final_loss="observations")
    """The world model."""
