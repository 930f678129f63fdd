import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from trainer import batches, models, sft
from trainer.config import BudgetConfig, ModelConfig, SftConfig
from trainer.lean import target_log_probs
from trainer.worker import Worker, worker_config


@pytest.fixture(scope="module")
def trained(config: SftConfig, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    sft.train(config, data, out, show=False)
    return out


def test_training_teaches(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["phase"] == "sft" and "loss" in line]
    assert len(losses) == 25
    assert losses[-1] < 0.6 * losses[0]
    final = lines[-1]
    assert 0 <= final["exact"] <= 1
    assert final["actions_greedy"] > 0.3
    assert [line["step"] for line in lines if "loss" in line][:3] == [1, 2, 3]


def test_verl_runs_on_the_cpu() -> None:
    from verl.utils.device import get_device_id, get_device_name, get_torch_device

    assert get_device_name() == "cpu"
    assert get_device_id() == torch.device("cpu")
    assert get_torch_device().max_memory_allocated() == 0
    assert get_torch_device().get_device_name() == "CPU"


@pytest.mark.parametrize("entropy", [False, True], ids=["lean", "verl"])
def test_the_export_is_what_was_trained(trained: Path, data: Path, config: SftConfig, entropy: bool) -> None:
    """The engine's log-probs equal those of transformers, by the lean forward and by verl's own."""
    model = AutoModelForCausalLM.from_pretrained(trained / "model", dtype=torch.float32)
    assert load_file(trained / "model" / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16
    samples = batches.read(data / "validation.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    worker = Worker(worker_config(trained / "model", config.optimizer, config.batch, "fp32", 0))
    worker.reset()
    masks = [s.mask("all") for s in samples]
    batch = batches.collate([s.ids for s in samples], masks, tokenizer.pad_token_id)
    import verl.utils.tensordict_utils as tu

    tu.assign_non_tensor(batch, compute_loss=False, calculate_entropy=entropy)
    rows = worker.infer_batch(batch)["log_probs"].unbind()
    for sample, mask, row in zip(samples, masks, rows, strict=True):
        with torch.no_grad():
            logits = model(torch.from_numpy(sample.ids)[None]).logits[0]
        expected = (
            torch.log_softmax(logits[:-1], -1).gather(-1, torch.from_numpy(sample.ids[1:, None])).squeeze(-1)
        )
        shifted = torch.from_numpy(mask[1:])
        torch.testing.assert_close(row[:-1][shifted], expected[shifted], atol=1e-5, rtol=0)


def test_the_same_seed_gives_the_same_weights(config: SftConfig, data: Path, tmp_path: Path) -> None:
    short = config.model_copy(update={"budget": BudgetConfig(steps=3)})
    for name in ("a", "b"):
        sft.train(short, data, tmp_path / name, show=False)
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("a", "b"))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_the_lean_forward_equals_transformers(kv_heads: int, tokenizer: object) -> None:
    shape = ModelConfig(
        hidden_size=64,
        intermediate_size=96,
        layers=2,
        heads=2,
        kv_heads=kv_heads,
        head_dim=32,
        induction=False,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(models.qwen3_config(shape, tokenizer)).float()
    for p in model.parameters():  # gains of 1 would hide a mistake in how they are folded
        p.data += 0.1 * torch.randn_like(p)
    ids = torch.randint(0, 1000, (3, 17))
    index = torch.tensor([0, 5, 16, 20, 40, 49])
    targets = ids.reshape(-1)[index + 1]
    reference = torch.log_softmax(model(ids).logits, -1).reshape(-1, model.config.vocab_size)
    expected = reference[index].gather(-1, targets[:, None]).squeeze(-1)
    got, greedy = target_log_probs(model, ids, index, targets)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert greedy.tolist() == (reference[index].argmax(-1) == targets).tolist()
    parameters = list(model.parameters())
    ours = torch.autograd.grad(got.mean(), parameters)
    theirs = torch.autograd.grad(expected.mean(), parameters)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_missing_or_long_data_is_one_sentence(config: SftConfig, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        sft.load(tmp_path, config)
    narrow = config.model_copy(update={"batch": config.batch.model_copy(update={"micro_tokens": 16})})
    with pytest.raises(ValueError, match="longer than 16 tokens"):
        sft.load(data, narrow)


def test_a_failed_export_leaves_the_old_one(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    shape = ModelConfig(hidden_size=32, intermediate_size=32, layers=2, heads=1, kv_heads=1, head_dim=16)
    models.create(shape, tokenizer, 0, tmp_path / "m")
    before = (tmp_path / "m" / "model.safetensors").read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(models, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        models.create(shape, tokenizer, 1, tmp_path / "m")
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_learning_rate_warms_up_holds_and_falls(config: SftConfig) -> None:
    schedule = config.schedule.model_copy(
        update={"warmup_steps": 4, "decay_fraction": 0.5, "final_factor": 0.1}
    )
    assert schedule.factor(0, 0.0) == pytest.approx(0.2)
    assert schedule.factor(4, 0.3) == 1.0
    assert schedule.factor(50, 0.75) == pytest.approx(0.55)
    assert schedule.factor(99, 1.0) == pytest.approx(0.1)
