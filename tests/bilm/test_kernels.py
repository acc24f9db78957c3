"""Linear maps laid out for inference, with and without PyTorch's kernels."""

from typing import Any

import pytest
import torch

from spacy_elmo.bilm import kernels
from spacy_elmo.bilm.kernels import PRECISIONS, pack_linear


@pytest.fixture()
def map_and_input() -> Any:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(96, 80, generator=generator)
    weight[3] = 0.0
    x = torch.randn(9, 80, generator=generator)
    x[2] = 0.0
    x[4] *= 1e4
    return weight, torch.randn(96, generator=generator), x


TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "int8": 3e-2}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("plain", [False, True])
def test_maps_are_what_their_weights_say(precision: str, plain: bool, map_and_input: Any) -> None:
    weight, bias, x = map_and_input
    linear = pack_linear(weight, bias, precision, plain=plain)
    exact = x.double() @ weight.double().t()
    # Errors are relative to the size of each row's input.
    size = x.double().norm(dim=1, keepdim=True).clamp_min(1.0) * weight.double().norm(dim=1).max()
    bare = pack_linear(weight, None, precision, plain=plain)
    total = torch.ones(9, 96)
    bare.add_to(total, x)
    negative = torch.empty(9, 96)
    bare.negative_into(negative, x)
    for found in (linear(x) - bias, bare(x), total - 1.0, -negative):
        error = ((found.double() - exact).abs() / size).max()
        assert error < TOLERANCE[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_depends_on_itself_alone(precision: str, map_and_input: Any) -> None:
    # A row ten thousand times larger than the others would swallow them under one scale.
    weight, bias, x = map_and_input
    linear = pack_linear(weight, bias, precision)
    together = linear(x)
    for i in range(len(x)):
        size = float(together[i].abs().max())
        torch.testing.assert_close(linear(x[i : i + 1])[0], together[i], rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_missing_and_wrong_kernels_are_found_out(
    precision: str, map_and_input: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = {
        "float32": kernels.PackedFloat32,
        "float16": kernels.PackedFloat16,
        "int8": kernels.PackedInt8,
    }[precision]
    plain = {"float32": kernels.Linear, "float16": kernels.PlainFloat16, "int8": kernels.PlainInt8}
    weight, bias, x = map_and_input
    expected = pack_linear(weight, bias, precision, plain=True)(x)
    monkeypatch.setattr(kernels, "_PACK_FROM", 0)

    def missing(*_: Any) -> None:
        raise RuntimeError("no such operator")

    def wrong(self: Any, *_: Any) -> torch.Tensor:
        return torch.zeros(5, 64)

    for change in ({"__init__": missing}, {"__call__": wrong}):
        for name, function in change.items():
            with monkeypatch.context() as patch:
                patch.setattr(packed, name, function)
                kernels.has_kernel.cache_clear()
                assert not kernels.has_kernel(precision)
                linear = pack_linear(weight, bias, precision)
        assert type(linear) is plain[precision]
        kernels.has_kernel.cache_clear()
        torch.testing.assert_close(linear(x), expected)


def test_the_installed_torch_has_the_kernels() -> None:
    # Not needed, but the measured speeds depend on it.
    assert [kernels.has_kernel(p) for p in PRECISIONS] == [True, True, True]
