from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from sglang_ext import linears

SHAPES = {
    "tiny qkv": (256, 768),
    "tiny o": (256, 256),
    "tiny gate and up": (256, 1536),
    "tiny down": (768, 256),
    "tiny head": (256, 1956),
    "SmolLM2 qkv": (576, 960),
    "SmolLM2 o": (576, 576),
    "SmolLM2 gate and up": (576, 3072),
    "SmolLM2 down": (1536, 576),
    "SmolLM2 head": (576, 49152),
}


@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_bit_equal_alone_and_in_batches(shape: str, with_bias: bool) -> None:
    features, outputs = SHAPES[shape]
    generator = torch.Generator().manual_seed(1)
    weight = (torch.randn(outputs, features, generator=generator) * 0.02).bfloat16()
    bias = torch.randn(outputs, generator=generator).bfloat16() if with_bias else None
    inputs = torch.randn(40, features, generator=generator).bfloat16()

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        return linears.in_pieces(lambda piece: functional.linear(piece, weight, bias), rows)

    counts = range(1, 41) if outputs < 10_000 else (2, 7, 15, 16, 17, 33, 40)
    alone = torch.cat([multiply(inputs[row : row + 1]) for row in range(40)])
    for count in counts:
        start = 40 - count
        assert torch.equal(multiply(inputs[start:]), alone[start:]), count
        assert torch.equal(multiply(inputs[:count]), alone[:count]), count
    torch.testing.assert_close(alone, functional.linear(inputs, weight, bias), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (16, 8), (17, 8), (3, 5, 8)])
def test_the_shape_is_kept(shape: tuple[int, ...]) -> None:
    weight = torch.randn(4, 8)
    inputs = torch.randn(shape)
    pieces: list[int] = []

    def multiply(piece: torch.Tensor) -> torch.Tensor:
        pieces.append(len(piece))
        return functional.linear(piece, weight)

    torch.testing.assert_close(linears.in_pieces(multiply, inputs), functional.linear(inputs, weight))
    assert set(pieces) == {linears.ROWS if inputs.numel() else 0}


def test_rows_that_are_not_contiguous_are_no_different() -> None:
    weight = torch.randn(96, 768).bfloat16()
    wide = torch.randn(16, 1536).bfloat16()

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        return linears.in_pieces(lambda piece: functional.linear(piece, weight), rows)

    assert torch.equal(multiply(wide[:, :768]), multiply(wide[:, :768].contiguous()))


def test_both_hooks_compute_by_pieces_on_a_cpu_only() -> None:
    layer = SimpleNamespace(weight=torch.randn(4, 8))
    inputs = torch.randn(5, 8)
    seen: list[int] = []

    def original(owner: object, *given: torch.Tensor) -> torch.Tensor:
        rows = next(one for one in given if isinstance(one, torch.Tensor))
        seen.append(len(rows))
        return functional.linear(rows, layer.weight)

    for result in (
        linears._apply(original, None, layer, inputs),
        linears._lm_head(original, None, inputs, layer),
    ):
        torch.testing.assert_close(result, functional.linear(inputs, layer.weight))
    assert seen == [16, 16]
    elsewhere = SimpleNamespace(is_cpu=False)
    assert linears._apply(lambda *given: given, 1, layer, elsewhere) == (1, layer, elsewhere, None)
    assert linears._lm_head(lambda *given: given, 1, elsewhere, layer) == (1, elsewhere, layer, None)


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_environment_switches_it_on(
    value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(linears.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(linears.VARIABLE, value)
    assert linears.enabled() is expected
