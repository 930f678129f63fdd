"""Supervised training of one model on verl's worker: first to copy, then trajectories.

    python -m trainer.sft --config X.yaml --model policy --data D --out O

D holds train.jsonl and validation.jsonl (one `Trajectory` a line) and tokenizer/. O receives
metrics.jsonl as it happens, weights/ at intervals (whole or absent), and the final model/.
The same seed and step budget give the same weights; a time budget depends on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tensordict import TensorDict
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from trainer import batches, models
from trainer.config import BudgetConfig, ScheduleConfig, SftConfig, WarmstartConfig
from trainer.copying import CopyCurriculum
from trainer.validation import validate
from trainer.worker import Worker, worker_config


@dataclass
class Run:
    """What the phases of one training share."""

    config: SftConfig
    worker: Worker
    tokenizer: PreTrainedTokenizerBase
    out: Path
    steps: int = 0
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    exported: float = field(default_factory=time.monotonic)

    def log(self, **entry: Any) -> None:
        seconds = round(time.monotonic() - self.started, 2)
        line = {"step": self.steps, "seconds": seconds, "tokens": self.tokens, **entry}
        with (self.out / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def export(self, name: str) -> None:
        """Write the weights as they are to `out/name`, bf16, loadable by transformers and SGLang."""
        hf_config = self.worker.model_config.hf_config
        models.export(self.worker.state(), hf_config, self.tokenizer, self.out / name)
        self.exported = time.monotonic()


def train(config: SftConfig, data: Path, out: Path, *, show: bool = True) -> dict[str, float]:
    """Train a fresh model and leave it in `out/model`; returns the final validation.

    Raises ValueError for data that is missing, malformed or too long for `batch.micro_tokens`.
    """
    tokenizer, training, held_out = load(data, config)
    out.mkdir(parents=True, exist_ok=True)
    (out / "metrics.jsonl").unlink(missing_ok=True)
    (out / "config.json").write_text(config.model_dump_json(indent=1))
    torch.manual_seed(config.seed)
    models.create(config.model, tokenizer, config.seed, out / "initial")
    worker = Worker(
        worker_config(out / "initial", config.optimizer, config.batch, config.precision, config.seed)
    )
    worker.reset()
    from verl.workers.utils.losses import sft_loss

    worker.set_loss_fn(partial(sft_loss, None))
    run = Run(config, worker, tokenizer, out)
    if config.copying is not None:
        phase(run, "copy", config.copying.budget, config.copying.schedule, copy_batches(run), show=show)
        run.export("weights")
    check = partial(validate, worker, tokenizer, held_out, config.batch.micro_tokens)
    final = phase(run, "sft", config.budget, config.schedule, sft_batches(run, training), check, show=show)
    run.export("model")
    return final


def load(
    data: Path, config: SftConfig
) -> tuple[PreTrainedTokenizerBase, list[batches.Sample], list[batches.Sample]]:
    """Tokenizer, training samples and held-out samples of a data folder."""
    for name in ("tokenizer", "train.jsonl", "validation.jsonl"):
        if not (data / name).exists():
            raise ValueError(f"{data / name} does not exist: write the demonstrations first")
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    longest = min(config.batch.micro_tokens, config.model.context)
    parts = []
    for name, limit in (("train.jsonl", None), ("validation.jsonl", config.validation_trajectories)):
        samples = batches.read(data / name, limit)
        fit = [s for s in samples if len(s) <= longest]
        if len(fit) < 0.95 * len(samples):
            raise ValueError(
                f"{len(samples) - len(fit)} of {len(samples)} trajectories in {data / name} are longer than "
                f"{longest} tokens: raise batch.micro_tokens and model.context"
            )
        parts.append(fit)
    return tokenizer, *parts


Batches = Callable[[float], tuple[TensorDict, int]]
"""From progress (0..1) to a batch and the tokens in it."""


def copy_batches(run: Run) -> Batches:
    copying = run.config.copying
    assert copying is not None
    special = set(run.tokenizer.all_special_ids)
    ordinary = np.array([i for i in range(len(run.tokenizer)) if i not in special])
    curriculum = CopyCurriculum(copying, ordinary, run.config.seed)

    def draw(progress: float) -> tuple[TensorDict, int]:
        samples = curriculum.batch(run.config.batch.tokens, progress)
        masks = [s.copied | copying.fresh_weight for s in samples]
        for mask in masks:
            mask[0] = False
        batch = batches.collate([s.ids for s in samples], masks, run.tokenizer.pad_token_id)
        return batch, sum(len(s.ids) for s in samples)

    return draw


def sft_batches(run: Run, samples: list[batches.Sample]) -> Batches:
    config, rng = run.config, np.random.default_rng(run.config.seed)
    stream = batches.epochs(samples, config.batch.tokens, config.batch.bucket, rng)

    def draw(progress: float) -> tuple[TensorDict, int]:
        late = config.final_loss is not None and progress >= config.final_from
        loss = config.final_loss if late and config.final_loss else config.loss
        group = next(stream)
        masks = [s.mask(loss) for s in group]
        return batches.collate([s.ids for s in group], masks, run.tokenizer.pad_token_id), sum(
            map(len, group)
        )

    return draw


def phase(
    run: Run,
    name: str,
    budget: BudgetConfig,
    schedule: ScheduleConfig,
    draw: Batches,
    check: Callable[[], dict[str, float]] | None = None,
    *,
    show: bool,
) -> dict[str, float]:
    """Step until the budget is used; validate and export at intervals and (with `check`) at the end."""
    config = run.config
    started = checked = time.monotonic()
    first = run.steps
    loss = float("nan")
    with _bar(name, show) as update:
        while (progress := budget.progress(run.steps - first, time.monotonic() - started)) < 1:
            batch, tokens = draw(progress)
            factor = schedule.factor(run.steps - first, progress)
            before = time.monotonic()
            run.worker.set_lr_factor(factor)
            metrics = run.worker.train_batch(batch)["metrics"]
            now = time.monotonic()
            run.steps += 1
            run.tokens += tokens
            loss = float(metrics["loss"])
            speed = tokens / (now - before)
            run.log(
                phase=name,
                loss=loss,
                lr_factor=round(factor, 4),
                grad_norm=metrics["grad_norm"],
                tokens_s=round(speed),
            )
            update(progress, f"loss {loss:.3f}  {speed:,.0f} tokens/s")
            if check is not None and now - checked > 60 * config.validation_minutes:
                run.log(phase=name, **check())
                checked = time.monotonic()
            if now - run.exported > 60 * config.checkpoint_minutes:
                run.export("weights")
    final = {"loss": loss} if check is None else check()
    run.log(phase=name, **final)
    return final


@contextmanager
def _bar(name: str, show: bool) -> Iterator[Callable[[float, str], None]]:
    """A progress bar of one phase; yields `update(progress, text)`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not show) as bar:
        task = bar.add_task(name, total=1.0, text="")
        yield lambda progress, text: bar.update(task, completed=progress, text=text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trainer.sft", description="Train one tiny model.")
    parser.add_argument("--config", type=Path, help="YAML with `policy` and `world_model`; default: built in")
    parser.add_argument("--model", choices=["policy", "world-model"], required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        given = yaml.safe_load(args.config.read_text()) if args.config else {}
        config = WarmstartConfig.model_validate(given or {})
        final = train(config.policy if args.model == "policy" else config.world_model, args.data, args.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps(final))


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()
