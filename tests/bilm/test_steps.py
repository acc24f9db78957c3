"""The engine's steps compiled and as Python: the same bits, whatever the kernel."""

from typing import Any, List, Optional, Tuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.kernels import PRECISIONS, Linear, PackedFloat32, pack_linear
from spacy_elmo.bilm.steps import Steps, compiled

SENTENCES = [["A", "bank", "."], ["Straße", "am", "Fluss", "und", "mehr"], ["x"]]


def make(
    precision: str, plain: bool, cell: int, width: int, clips: Optional[float], seed: int
) -> Steps:
    """Random steps; without a projection where cell and width agree."""
    generator = torch.Generator().manual_seed(seed)
    recurrent = torch.randn(4 * cell, width, generator=generator)
    projection = torch.randn(width, cell, generator=generator)
    return Steps(
        pack_linear(recurrent, None, precision, plain=plain),
        None if cell == width else pack_linear(projection, None, precision, plain=plain),
        clips,
        clips,
    )


def inputs(sizes: List[int], cell: int, width: int, seed: int) -> Tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed + 1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return random(sum(sizes), 4 * cell), random(sizes[0], width), random(sizes[0], cell)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("plain", [False, True], ids=["packed", "plain"])
@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6).map(lambda x: sorted(x)[::-1]),
    shape=st.sampled_from([(8, 8), (8, 4), (4, 8)]),
    clips=st.sampled_from([None, 0.5]),
    seed=st.integers(0, 99),
)
def test_compiled_steps_give_the_same_bits(
    precision: str,
    plain: bool,
    sizes: List[int],
    shape: Tuple[int, int],
    clips: Optional[float],
    seed: int,
) -> None:
    steps = make(precision, plain, *shape, clips, seed)
    function, without_interpreter = compiled(steps)
    assert without_interpreter
    # TorchScript looks at the first runs before it settles on how to run.
    for _ in range(3):
        expected = steps(*_as_arguments(inputs(sizes, *shape, seed), sizes))
        got = function(*_as_arguments(inputs(sizes, *shape, seed), sizes))
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
        if clips is not None:
            assert got[0].abs().max() <= clips and got[2].abs().max() <= 2 * clips


def _as_arguments(tensors: Tuple[Tensor, Tensor, Tensor], sizes: List[int]) -> Tuple[Any, ...]:
    return (tensors[0], sizes, *tensors[1:])


def test_steps_are_those_of_an_lstm_with_projection() -> None:
    cell, width, sizes = 6, 4, [3, 3, 2, 1]
    steps = make("float32", True, cell, width, 0.7, 5)
    gates, h, doubled = (t.double() for t in inputs(sizes, cell, width, 5))
    recurrent, projection = (
        t.double() for t in (steps.recurrent._weight.t(), steps.projection._weight.t())
    )
    c, rows = doubled / 2, []
    for k, size in enumerate(sizes):
        h, c = h[:size], c[:size]
        i, f, o, j = (gates[sum(sizes[:k]) :][:size] + h @ recurrent.t()).split(cell, dim=1)
        c = (f.sigmoid() * c + i.sigmoid() * torch.tanh(j / 2)).clamp(-0.7, 0.7)
        h = ((o.sigmoid() * c.tanh()) @ projection.t()).clamp(-0.7, 0.7)
        rows.append(h)
    got = steps(*_as_arguments(inputs(sizes, cell, width, 5), sizes))
    assert torch.allclose(got[0].double(), torch.cat(rows), atol=1e-5)
    assert torch.allclose(got[1].double(), h, atol=1e-5)
    assert torch.allclose(got[2].double(), 2 * c, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_where_nothing_can_be_compiled_the_vectors_are_the_same(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = BiLM.load("en_mini").embed(SENTENCES, precision=precision)

    def gone(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.jit.script was removed")

    monkeypatch.setattr(torch.jit, "script", gone)
    steps = make(precision, False, 8, 4, None, 0)
    assert compiled(steps) == (steps, False)
    for got, want in zip(BiLM.load("en_mini").embed(SENTENCES, precision=precision), expected):
        assert (got == want).all()


def test_steps_of_large_weights_stay_python() -> None:
    steps = Steps(PackedFloat32(torch.randn(32, 8)), Linear(torch.randn(8, 8)), None, None)
    assert compiled(steps) == (steps, False)
