"""A training step against a plain implementation: per-step LSTM, conv1d, torch's autograd."""

from dataclasses import replace
from typing import Any, Dict, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import BiLMConfig
from spacy_elmo.bilm.lm import NegativeSampler
from spacy_elmo.training.batches import Batch, make_batch
from spacy_elmo.training.step import DROPOUT, NEGATIVES, StepResult, TrainingStep, Workers, seeded
from spacy_elmo.training.streams import stream_batches

from . import tiny
from .plain import plain_gradients

TEXT = tiny.sentences(12, seed=3)
WORDS = tiny.vocabulary(tiny.sentences(200), 50)
ALL = len(WORDS)
SEED = 5

CLIPPED = replace(tiny.SHAPE, lstm=replace(tiny.SHAPE.lstm, cell_clip=0.25, proj_clip=0.1))
PLAIN = replace(
    tiny.SHAPE,
    char_cnn=replace(tiny.SHAPE.char_cnn, activation="tanh", n_highway=0),
    lstm=replace(tiny.SHAPE.lstm, cell_dim=8, cell_clip=None, proj_clip=None, n_layers=3),
)
NO_SKIP = replace(
    tiny.SHAPE,
    char_cnn=replace(tiny.SHAPE.char_cnn, n_highway=2),
    lstm=replace(tiny.SHAPE.lstm, skip_connections=False, always_project=True, forget_bias=0.0),
)
SHAPES = {"usual": tiny.SHAPE, "clips": CLIPPED, "unprojected": PLAIN, "no skips": NO_SKIP}


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    # More threads would only make the plain implementation's tiny products slow.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = Workers(request.param)
    yield pool
    pool.close()
    torch.set_num_threads(before)


@pytest.fixture
def alone() -> Iterator[Workers]:
    pool = Workers(1)
    yield pool
    pool.close()


def make_step(
    bilm: BiLM, workers: Workers, n_negatives: int = ALL, dropout: float = 0.0, **options: Any
) -> TrainingStep:
    sampler = NegativeSampler(torch.from_numpy(WORDS.counts), n_negatives)
    return TrainingStep(bilm, sampler, workers, dropout=dropout, seed=SEED, **options)


def gradients(bilm: BiLM, result: StepResult) -> Dict[str, Tensor]:
    """Gradients of all parameters, those of the softmax as dense ones."""
    found = {name: p.grad.clone() for name, p in bilm.named_parameters() if p.grad is not None}
    rows = result.row_gradient
    assert rows is not None and bilm.softmax is not None
    assert len(set(rows.rows.tolist())) == len(rows.rows)
    for name, grad in (("weight", rows.weight), ("bias", rows.bias)):
        dense = torch.zeros_like(bilm.softmax.get_parameter(name))
        dense[rows.rows] = grad
        found[f"softmax.{name}"] = dense
    return found


def assert_close(found: Dict[str, Tensor], expected: Dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        error = (found[name] - grad).abs().max() / (grad.abs().max() + 1e-12)
        assert error < tolerance, f"{name}: {error:.1e}"


# -- gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_full_softmax_equals_a_plain_implementation(shape: BiLMConfig, workers: Workers) -> None:
    bilm = tiny.model(WORDS, shape).double()
    result = make_step(bilm, workers)(make_batch(TEXT, WORDS), 0)
    losses, expected = plain_gradients(bilm, WORDS, TEXT)
    assert result.losses == pytest.approx(losses, rel=1e-12)
    assert_close(gradients(bilm, result), expected, 1e-9)


def test_clips_of_the_test_do_fire() -> None:
    bilm = tiny.model(WORDS, CLIPPED)
    free = tiny.model(WORDS, tiny.SHAPE)
    with torch.no_grad():
        assert not torch.allclose(bilm(TEXT), free(TEXT), atol=1e-2)


def test_float32_equals_a_plain_implementation(workers: Workers) -> None:
    bilm = tiny.model(WORDS)
    result = make_step(bilm, workers)(make_batch(TEXT, WORDS), 0)
    losses, expected = plain_gradients(bilm, WORDS, TEXT)
    assert result.losses == pytest.approx(losses, rel=1e-5)
    assert_close(gradients(bilm, result), expected, 1e-5)


def test_sampled_softmax_corrects_and_removes_hits(workers: Workers) -> None:
    bilm = tiny.model(WORDS).double()
    step = make_step(bilm, workers, n_negatives=20)
    result = step(make_batch(TEXT, WORDS), 7)
    negatives = step.sampler.sample(seeded(SEED, 7, NEGATIVES))
    targets = {0, 1, *(i for sentence in TEXT for i in WORDS.ids(sentence).tolist())}
    sampled = set(negatives.ids.tolist())
    assert targets & sampled and targets - sampled and sampled - targets
    losses, expected = plain_gradients(bilm, WORDS, TEXT, negatives=negatives)
    assert result.losses == pytest.approx(losses, rel=1e-6)  # log q is single precision
    assert_close(gradients(bilm, result), expected, 1e-5)
    assert result.row_gradient is not None
    assert set(result.row_gradient.rows.tolist()) == targets | sampled


def test_gradients_equal_finite_differences_with_dropout_and_sample(alone: Workers) -> None:
    bilm = tiny.model(WORDS, CLIPPED).double()
    step = make_step(bilm, alone, n_negatives=20, dropout=0.3)
    batch = make_batch(TEXT, WORDS)
    found = gradients(bilm, step(batch, 2))

    def objective() -> float:
        return sum(step(batch, 2).losses) / (2 * batch.n_targets)

    generator = torch.Generator().manual_seed(0)
    size = 1e-6
    for name, parameter in bilm.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = parameter.detach()
        values += size * direction
        above = objective()
        values -= 2 * size * direction
        below = objective()
        values += size * direction
        slope = float((found[name] * direction).sum())
        assert (above - below) / (2 * size) == pytest.approx(slope, rel=1e-4, abs=1e-8), name


def test_scale_multiplies_gradients_and_not_losses(alone: Workers) -> None:
    bilm = tiny.model(WORDS).double()
    step, batch = make_step(bilm, alone), make_batch(TEXT, WORDS)
    one = step(batch, 0)
    single = gradients(bilm, one)
    twenty = step(batch, 0, scale=20.0)
    assert twenty.losses == one.losses
    scaled = {name: 20.0 * grad for name, grad in single.items()}
    assert_close(gradients(bilm, twenty), scaled, 1e-12)


def test_bfloat16_products_come_near(alone: Workers) -> None:
    bilm = tiny.model(WORDS)
    batch = make_batch(TEXT, WORDS)
    exact = make_step(bilm, alone, n_negatives=20)(batch, 0)
    expected = gradients(bilm, exact)
    rough = make_step(bilm, alone, n_negatives=20, matmul_dtype=torch.bfloat16)(batch, 0)
    assert rough.losses != exact.losses
    assert rough.losses == pytest.approx(exact.losses, rel=1e-2)
    found = gradients(bilm, rough)
    for name, grad in expected.items():
        assert found[name].dtype == torch.float32
        assert (found[name] - grad).norm() < 0.1 * grad.norm(), name


def test_a_frozen_encoder_is_left_alone(workers: Workers) -> None:
    bilm = tiny.model(WORDS).double()
    step, batch = make_step(bilm, workers, n_negatives=20, dropout=0.2), make_batch(TEXT, WORDS)
    trained = step(batch, 3)
    for parameter in bilm.parameters():
        parameter.grad = None
    frozen = step(batch, 3, train_encoder=False)
    assert all(parameter.grad is None for parameter in bilm.parameters())
    assert frozen.losses == pytest.approx(trained.losses, rel=1e-12)
    assert frozen.row_gradient is not None and trained.row_gradient is not None
    assert torch.allclose(frozen.row_gradient.weight, trained.row_gradient.weight, atol=1e-12)


# -- randomness ----------------------------------------------------------------------------


def test_the_same_step_gives_the_same_bits(workers: Workers) -> None:
    bilm = tiny.model(WORDS)
    step, batch = make_step(bilm, workers, n_negatives=20, dropout=0.5), make_batch(TEXT, WORDS)
    first = step(batch, 3)
    expected = gradients(bilm, first)
    other = step(batch, 4)
    assert other.losses != first.losses
    for _ in range(3):
        again = step(batch, 3)
        assert again.losses == first.losses
        tiny.assert_equal(gradients(bilm, again), expected)


def test_nothing_is_random_without_dropout_and_sample(alone: Workers) -> None:
    step, batch = make_step(tiny.model(WORDS), alone), make_batch(TEXT, WORDS)
    assert step(batch, 0).losses == step(batch, 9).losses


def masks(batch: Batch, n_layers: int, step: int, rate: float) -> Any:
    """Dropout factors by direction, layer and sentence, in the order of the global batch."""
    n, width = batch.n_targets, tiny.SHAPE.lstm.projection_dim
    sizes = [len(sentence) + 1 for sentence in TEXT]
    table = {}
    for k in (0, 1):
        for layer in range(n_layers + 1):
            generator = seeded(SEED, step, DROPOUT, k, layer)
            keep = torch.empty(n, width).bernoulli_(1 - rate, generator=generator)
            table[k, layer] = (keep / (1 - rate)).double().split(sizes)
    return table


@pytest.mark.parametrize("shape", [tiny.SHAPE, NO_SKIP], ids=["skips", "no skips"])
def test_dropout_is_on_every_layers_input_and_the_top_output(
    shape: BiLMConfig, alone: Workers
) -> None:
    # The plain implementation adds the dropped input in the residual, as bilm-tf does.
    bilm = tiny.model(WORDS, shape).double()
    batch = make_batch(TEXT, WORDS)
    result = make_step(bilm, alone, dropout=0.25)(batch, 6)
    table = masks(batch, shape.lstm.n_layers, 6, 0.25)
    losses, expected = plain_gradients(
        bilm, WORDS, TEXT, mask=lambda k, layer, i: table[k, layer][i]
    )
    assert result.losses == pytest.approx(losses, rel=1e-6)
    assert_close(gradients(bilm, result), expected, 1e-6)


def test_dropout_masks_have_their_rate_and_are_fresh() -> None:
    batch = make_batch(tiny.sentences(100), WORDS)
    n = batch.n_targets * 8
    seen = []
    for step in (0, 1):
        for k in (0, 1):
            for layer in range(3):
                generator = seeded(SEED, step, DROPOUT, k, layer)
                keep = torch.empty(batch.n_targets, 8).bernoulli_(0.9, generator=generator)
                assert abs(float(keep.mean()) - 0.9) < 4 * (0.9 * 0.1 / n) ** 0.5
                seen.append(keep)
    for a in range(len(seen)):
        for b in range(a):
            both = float((seen[a] * seen[b]).mean())
            assert abs(both - 0.81) < 0.03  # independent of each other


# -- several processes and streams -----------------------------------------------------------


@pytest.mark.parametrize("sentences", [TEXT, TEXT[:1]], ids=["12 sentences", "1 sentence"])
def test_shares_of_processes_add_up(sentences: Any, alone: Workers) -> None:
    bilm = tiny.model(WORDS).double()
    step = make_step(bilm, alone, n_negatives=20, dropout=0.2)
    whole = step(make_batch(sentences, WORDS), 5)
    expected = gradients(bilm, whole)
    parts, losses = [], np.zeros(2)
    for rank in (0, 1):
        # What the step before left must not be added again where the share is empty.
        part = step(make_batch(sentences, WORDS, rank, 2), 5)
        parts.append(gradients(bilm, part))
        losses += part.losses
    assert losses.tolist() == pytest.approx(whole.losses, rel=1e-12)
    assert_close({name: parts[0][name] + parts[1][name] for name in expected}, expected, 1e-9)


# -- several batches in a step ---------------------------------------------------------------


@pytest.mark.parametrize("n_negatives", [ALL, 20], ids=["full", "sampled"])
@pytest.mark.parametrize("train_encoder", [True, False], ids=["trained", "frozen"])
def test_batches_of_a_step_are_as_one(
    n_negatives: int, train_encoder: bool, workers: Workers
) -> None:
    bilm = tiny.model(WORDS).double()
    step = make_step(bilm, workers, n_negatives)
    whole_batch = make_batch(TEXT, WORDS)
    whole = step(whole_batch, 5, train_encoder=train_encoder)
    expected = gradients(bilm, whole)
    # Of unequal size, and targets that are not the same.
    parts = [make_batch(sentences, WORDS) for sentences in (TEXT[:2], TEXT[2:9], TEXT[9:])]
    # Gradients are there, of the step before or of the whole batch.
    losses, rows = np.zeros(2), None
    for number, part in enumerate(parts):
        result = step(
            part,
            5,
            scale=part.n_targets / whole_batch.n_targets,
            train_encoder=train_encoder,
            number=number,
        )
        losses += result.losses
        rows = result.row_gradient if rows is None else rows.plus(result.row_gradient)
    assert losses.tolist() == pytest.approx(whole.losses, rel=1e-12)
    assert rows is not None
    assert set(rows.rows.tolist()) == set(whole.row_gradient.rows.tolist())
    assert_close(gradients(bilm, result._replace(row_gradient=rows)), expected, 1e-9)


def test_batches_of_a_step_have_their_own_dropout(alone: Workers) -> None:
    step, batch = make_step(tiny.model(WORDS), alone, dropout=0.5), make_batch(TEXT, WORDS)
    losses = {step(batch, 2, number=number).losses for number in range(4)}
    # Nor do the directions share them: nothing is drawn twice in a step or with the next one.
    losses |= {step(batch, 3, number=number).losses for number in range(4)}
    assert len(losses) == 8 and len({loss for pair in losses for loss in pair}) == 16


def test_carried_states_join_the_pieces_of_a_stream(alone: Workers) -> None:
    bilm = tiny.model(WORDS).double()
    step = make_step(bilm, alone)

    def batches(steps: int) -> Iterator[Batch]:
        corpus = tiny.ListCorpus(tiny.sentences(100))
        options: Any = {"seed": 0, "epochs": 1, "batch_tokens": 5 * steps, "steps": steps}
        return (batch for batch, _ in stream_batches(corpus, WORDS, **options))

    long = step(next(batches(12)), 0)
    states: Any = None
    losses = np.zeros(2)
    for batch, _ in zip(batches(4), range(3)):
        result = step(batch, 0, initial=states)
        states = result.states
        losses += result.losses
    assert losses.tolist() == pytest.approx(long.losses, rel=1e-12)
    for one, other in zip(states, long.states):
        for a, b in zip(one, other):
            assert torch.allclose(a.hidden, b.hidden) and torch.allclose(a.cell, b.cell)
