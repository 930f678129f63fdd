"""The world model as a predictor: greedy generation of the observation from the trajectory's own tokens."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from orchestrator.backends.base import Backend, SamplingParams
from orchestrator.chat import ChatFormat
from orchestrator.predictors.base import Candidate, PredictionContext


class WorldModelPredictor:
    """Reads the trajectory and the opening of a tool response; generates the body up to its closing tag."""

    name = "world_model"

    def __init__(
        self, backend: Backend, chat: ChatFormat, max_new_tokens: int, context_tokens: int | None = None
    ):
        """`context_tokens`: tokens of the trajectory, from its end, that the model reads; None: all."""
        self._backend = backend
        self._chat = chat
        self._context_tokens = context_tokens
        self._params = SamplingParams(
            max_new_tokens, temperature=0.0, stop_token_ids=(chat.world_model_stop_id, chat.end_id)
        )

    async def predict(self, context: PredictionContext) -> AsyncGenerator[Candidate]:
        start = max(0, len(context.token_ids) - self._context_tokens) if self._context_tokens else 0
        prompt = [*context.token_ids[start:], *self._chat.opening]
        ids: list[int] = []
        logprobs: list[float] = []
        async with aclosing(self._backend.generate(prompt, self._params)) as chunks:
            async for chunk in chunks:
                context.meter.tokens += len(chunk.token_ids)
                ids += chunk.token_ids
                logprobs += chunk.logprobs
        total = math.fsum(logprobs)
        text = self._chat.prediction_text(ids)
        yield Candidate(text, math.exp(total), total / max(1, len(logprobs)), len(ids))
