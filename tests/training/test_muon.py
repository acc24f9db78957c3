"""Muon against singular values in float64, and its place in the optimiser."""

from dataclasses import replace
from typing import Iterator, List, Tuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spacy_elmo.training.muon import Muon, orthogonalised
from spacy_elmo.training.optimizer import Optimizer
from spacy_elmo.training.step import Workers

from . import tiny
from .test_optimizer import RATE, WORDS, apply, random_gradients
from .test_optimizer import settings as optimizer_settings


def by_singular_values(matrix: Tensor) -> Tensor:
    """The polynomial applied to each singular value, as its definition says."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm().clamp_min(1e-30)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ v


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_singular_values_go_through_the_polynomial(b: int, m: int, n: int, seed: int) -> None:
    matrices = torch.randn(b, m, n, generator=torch.Generator().manual_seed(seed))
    for got, matrix in zip(orthogonalised(matrices), matrices):
        assert torch.allclose(got.double(), by_singular_values(matrix), atol=2e-4)


@pytest.mark.parametrize("shape", [(16, 80), (80, 16), (32, 32)])
def test_all_that_matters_of_a_matrix_becomes_nearly_orthogonal(shape: Tuple[int, int]) -> None:
    torch.manual_seed(0)
    short = min(shape)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    # A condition of a hundred, as gradients have it, and any size.
    matrix = u @ torch.diag(torch.logspace(0, -2, short)) @ v
    for size in (1e-12, 1.0, 1e12):
        values = torch.linalg.svdvals(orthogonalised(size * matrix[None])[0])
        assert 0.6 < values.min() and values.max() < 1.25


def test_a_gradient_of_zeros_moves_nothing() -> None:
    assert not orthogonalised(torch.zeros(2, 3, 5)).any()
    p = torch.nn.Parameter(torch.ones(4, 3))
    p.grad = torch.zeros(4, 3)
    Muon([(p, 2)], lr=1.0).step()
    assert torch.equal(p, torch.ones(4, 3))


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    pool = Workers(request.param)
    yield pool
    pool.close()


def test_steps_equal_their_definition(workers: Workers) -> None:
    # Nesterov momentum, each gate a matrix of its own, the root mean square of Adam.
    ours, reference = tiny.model(WORDS), tiny.model(WORDS)
    config = optimizer_settings("muon")
    optimizer = Optimizer(ours, config, workers)
    matrices = {
        name: (p, 4 if "input" in name or "recurrent" in name else 1)
        for name, p in reference.named_parameters()
        if p.ndim == 2 and ("lstm" in name or name == "token_encoder.projection.weight")
    }
    assert len(matrices) == 2 * 2 * 3 + 1
    others = {n: p for n, p in reference.named_parameters() if n not in matrices}
    adam = torch.optim.Adam(others.values(), RATE, (config.beta1, config.beta2), config.eps)
    momentum = {name: torch.zeros_like(p) for name, (p, _) in matrices.items()}
    for step in range(4):
        grads = random_gradients(ours, step)
        apply(optimizer, ours, grads, torch.arange(len(WORDS)))
        for name, p in others.items():
            p.grad = grads[name]
        adam.step()
        for name, (p, n) in matrices.items():
            momentum[name] = 0.95 * momentum[name] + 0.05 * grads[name]
            update = 0.05 * grads[name] + 0.95 * momentum[name]
            blocks: List[Tensor] = [by_singular_values(block) for block in update.chunk(n)]
            scale = 0.2 * max(blocks[0].shape) ** 0.5
            p.data -= RATE * scale * torch.cat(blocks).float()
    for name, p in ours.named_parameters():
        expected = reference.get_parameter(name)
        assert torch.allclose(p, expected, rtol=1e-3, atol=1e-3 * RATE), name


def test_a_model_without_projections_is_updated_in_every_part(workers: Workers) -> None:
    shape = replace(tiny.SHAPE, lstm=replace(tiny.SHAPE.lstm, cell_dim=8, projection_dim=8))
    assert not shape.lstm.has_projection
    model = tiny.model(WORDS, shape=shape)
    optimizer = Optimizer(model, optimizer_settings("muon"), workers)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    apply(optimizer, model, random_gradients(model, 0), torch.arange(len(WORDS)))
    for name, p in model.named_parameters():
        assert not torch.equal(p, before[name]), name
