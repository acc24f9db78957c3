"""Updates of the encoder and of single rows of the softmax against torch's dense optimisers."""

from typing import Any, Dict, Iterator, List

import pytest
import torch
from torch import Tensor

from spacy_elmo.bilm import BiLM
from spacy_elmo.training.config import TrainingConfig
from spacy_elmo.training.optimizer import Optimizer
from spacy_elmo.training.step import RowGradient, Workers

from . import tiny

WORDS = tiny.vocabulary(tiny.sentences(200), 40)
RATE = 0.05


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    pool = Workers(request.param)
    yield pool
    pool.close()


def settings(optimizer: str, **changes: Any) -> TrainingConfig:
    # Adam's epsilon is added after the correction of the second moment in one of the two forms;
    # a tiny one makes them agree.
    options: Dict[str, Any] = {"clip_norm": 0.0, "eps": 1e-12, "beta2": 0.95, **changes}
    return TrainingConfig(optimizer=optimizer, **options)


def random_gradients(bilm: BiLM, step: int, size: float = 1.0) -> Dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        name: size * torch.randn(p.shape, generator=generator)
        for name, p in bilm.named_parameters()
    }


def apply(
    optimizer: Optimizer, bilm: BiLM, grads: Dict[str, Tensor], rows: Tensor, **options: Any
) -> float:
    """One update of the optimiser under test, with the softmax's gradient in these rows."""
    for name, p in bilm.named_parameters():
        if not name.startswith("softmax."):
            assert p.grad is not None
            p.grad.copy_(grads[name])
    sparse = RowGradient(
        rows, grads["softmax.weight"][rows].clone(), grads["softmax.bias"][rows].clone()
    )
    norm = optimizer.norm(sparse, options.get("with_encoder", True))
    optimizer.step(sparse, norm, RATE, **options)
    return norm


def dense(grads: Dict[str, Tensor], rows: Tensor) -> Dict[str, Tensor]:
    """The same gradient with zeros in the rows that were not touched."""
    result = dict(grads)
    for name in ("softmax.weight", "softmax.bias"):
        result[name] = torch.zeros_like(grads[name])
        result[name][rows] = grads[name][rows]
    return result


def torch_optimizer(config: TrainingConfig, parameters: List[Tensor]) -> torch.optim.Optimizer:
    if config.optimizer == "adagrad":
        start = config.initial_accumulator
        return torch.optim.Adagrad(parameters, lr=RATE, initial_accumulator_value=start)
    return torch.optim.Adam(parameters, RATE, (config.beta1, config.beta2), config.eps)


def compare(config: TrainingConfig, workers: Workers, subset: bool, size: float = 1.0) -> None:
    ours, reference = tiny.model(WORDS), tiny.model(WORDS)
    optimizer = Optimizer(ours, config, workers)
    parameters = dict(reference.named_parameters())
    expected = torch_optimizer(config, list(parameters.values()))
    for step in range(5):
        rows = torch.randperm(len(WORDS), generator=torch.Generator().manual_seed(step))
        if subset:
            rows = rows[:15]
        grads = random_gradients(ours, step, size)
        norm = apply(optimizer, ours, grads, rows)
        for name, grad in dense(grads, rows).items():
            parameters[name].grad = grad
        clip = config.clip_norm or float("inf")
        total = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        assert norm == pytest.approx(total.item(), rel=1e-5)
        expected.step()
    for name, p in ours.named_parameters():
        assert torch.allclose(p, parameters[name], rtol=1e-4, atol=1e-6), name


def test_adagrad_equals_a_dense_one(workers: Workers) -> None:
    compare(settings("adagrad"), workers, subset=True)


def test_adam_equals_a_dense_one_where_all_rows_are_touched(workers: Workers) -> None:
    compare(settings("adam"), workers, subset=False)


@pytest.mark.parametrize("size", [0.001, 10.0], ids=["below", "above"])
def test_the_norm_of_everything_is_clipped(size: float, workers: Workers) -> None:
    # Adagrad sees the size of gradients; Adam would hide it.
    compare(settings("adagrad", clip_norm=1.0), workers, subset=True, size=size)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_adagrads_accumulator_starts_where_asked(start: float, workers: Workers) -> None:
    config = settings("adagrad", initial_accumulator=start)
    assert TrainingConfig().initial_accumulator == 1.0
    compare(config, workers, subset=True, size=0.1)


def test_rows_that_were_not_touched_rest_and_keep_their_moments(workers: Workers) -> None:
    ours = tiny.model(WORDS)
    assert ours.softmax is not None
    optimizer = Optimizer(ours, settings("adam"), workers)
    everything, some = torch.arange(len(WORDS)), torch.tensor([3, 0, 17])
    apply(optimizer, ours, random_gradients(ours, 0), everything)
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    moments = {name: t.clone() for name, t in optimizer.state_tensors().items()}
    apply(optimizer, ours, random_gradients(ours, 1), some)
    rest = [k for k in range(len(WORDS)) if k not in (0, 3, 17)]
    for name in ("weight", "bias"):
        old, new = before[f"softmax.{name}"], ours.softmax.get_parameter(name)
        assert torch.equal(new[rest], old[rest])
        assert (new[some] != old[some]).all()
    for name, old in moments.items():
        if name.startswith("rows."):
            assert torch.equal(optimizer.state_tensors()[name][rest], old[rest])


def test_the_softmax_may_have_a_rate_of_its_own(workers: Workers) -> None:
    changes = []
    for factor in (1.0, 3.0):
        ours = tiny.model(WORDS)
        before = {name: p.detach().clone() for name, p in ours.named_parameters()}
        config = settings("adagrad", softmax_learn_rate_factor=factor)
        optimizer = Optimizer(ours, config, workers)
        apply(optimizer, ours, random_gradients(ours, 0), torch.arange(len(WORDS)))
        changes.append({name: p - before[name] for name, p in ours.named_parameters()})
    for name, change in changes[0].items():
        factor = 3.0 if name.startswith("softmax.") else 1.0
        assert torch.allclose(changes[1][name], factor * change, rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("name", ["adam", "adagrad", "muon"])
def test_a_resting_encoder_stays_to_the_bit(name: str, workers: Workers) -> None:
    ours = tiny.model(WORDS)
    optimizer = Optimizer(ours, settings(name, clip_norm=1.0), workers)
    before = {key: p.detach().clone() for key, p in ours.named_parameters()}
    grads = random_gradients(ours, 0)
    rows = torch.arange(10)
    norm = apply(optimizer, ours, grads, rows, with_encoder=False)
    parts = torch.cat([grads["softmax.weight"][rows].flatten(), grads["softmax.bias"][rows]])
    assert norm == pytest.approx(float(parts.norm()), rel=1e-5)
    for key, p in ours.named_parameters():
        assert torch.equal(p, before[key]) != key.startswith("softmax."), key


@pytest.mark.parametrize("name", ["adam", "adagrad", "muon"])
def test_a_restored_state_goes_on_with_the_same_bits(name: str, workers: Workers) -> None:
    ours = tiny.model(WORDS)
    config = settings(name, clip_norm=1.0)
    optimizer = Optimizer(ours, config, workers)
    rows = [torch.arange(k, k + 20) for k in range(6)]
    for step in range(3):
        apply(optimizer, ours, random_gradients(ours, step), rows[step])
    weights = {key: p.detach().clone() for key, p in ours.named_parameters()}
    state = {key: t.clone() for key, t in optimizer.state_tensors().items()}
    other = tiny.model(WORDS, seed=9)
    restored = Optimizer(other, config, workers)
    with torch.no_grad():
        for key, p in other.named_parameters():
            p.copy_(weights[key])
    restored.load_state_tensors(state)
    for step in range(3, 6):
        for o, m in ((optimizer, ours), (restored, other)):
            apply(o, m, random_gradients(ours, step), rows[step])
    tiny.assert_equal(dict(other.named_parameters()), dict(ours.named_parameters()))
    tiny.assert_equal(restored.state_tensors(), optimizer.state_tensors())
