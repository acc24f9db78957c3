"""The softmax: sampled for training, full for scoring."""

import itertools
import math
from typing import List, Tuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from spacy_elmo.bilm import lm
from spacy_elmo.bilm.lm import NegativeSampler, Softmax, full_log_probabilities, sampled_loss

COUNTS = torch.tensor([900, 400, 90, 60, 30, 11, 5, 1])


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def against(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ids: List[int], log_q: Tensor
) -> Tensor:
    """Sampled loss of a softmax against the words `ids`."""
    columns = torch.full((len(weight),), -1)
    columns[ids] = torch.arange(len(ids))
    return sampled_loss(
        hidden, weight[ids], bias[ids] - log_q, weight[targets], bias[targets], columns[targets]
    )


def problem(n: int = 6, n_words: int = 8) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    targets = torch.tensor([0, 3, 3, 7, 1, 5])[:n]
    return normal(0, n, 3), normal(1, n_words, 3), normal(2, n_words), targets


@pytest.mark.parametrize("limit", [lm.LOGITS_BYTES, 100])
def test_against_all_words_it_is_cross_entropy(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Loss and all gradients, in one slice of rows and in several."""
    monkeypatch.setattr(lm, "LOGITS_BYTES", limit)
    hidden, weight, bias, targets = problem()
    leaves = [t.requires_grad_() for t in (hidden, weight, bias)]
    expected = functional.cross_entropy(hidden @ weight.t() + bias, targets, reduction="sum")
    found = against(hidden, weight, bias, targets, list(range(8)), torch.zeros(8))
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(3 * found, leaves), torch.autograd.grad(3 * expected, leaves)
    ):
        torch.testing.assert_close(ours, theirs)


def test_gradients_of_a_sample_with_hits() -> None:
    """Words 0, 3 and 5 are in the sample and are targets as well."""
    hidden, weight, bias, targets = problem()
    log_q = torch.tensor([0.0, -0.5, -1.0, -2.0], dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (hidden, weight, bias)]

    def run(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return against(hidden, weight, bias, targets, [0, 3, 4, 5], log_q)

    assert torch.autograd.gradcheck(run, leaves)


def test_a_target_in_the_sample_counts_once() -> None:
    hidden, weight, bias, targets = problem(n=1)
    target = int(targets[0])
    log_q = torch.tensor([-0.7, -0.2], dtype=torch.float64)
    logits = (hidden @ weight.t() + bias)[0]
    found = against(hidden, weight, bias, targets, [target, 4], log_q)
    expected = torch.logsumexp(torch.stack([logits[target], logits[4] + 0.2]), 0) - logits[target]
    torch.testing.assert_close(found, expected)


def test_the_normaliser_is_unbiased() -> None:
    """Over all possible samples, each with its probability, its mean is the full one."""
    hidden, weight, bias, targets = problem(n=1)
    sampler = NegativeSampler(COUNTS, 4)
    logits = (hidden @ weight.t() + bias)[0]
    mean = total = 0.0
    for drawn in itertools.product([False, True], repeat=len(COUNTS)):
        chosen = torch.tensor(drawn)
        p = sampler.probabilities
        probability = float(torch.where(chosen, p, 1 - p).prod())
        ids = chosen.nonzero()[:, 0].tolist()
        if probability == 0.0:
            continue
        loss = against(hidden, weight, bias, targets, ids, p[ids].log())
        mean += probability * math.exp(float(loss + logits[targets[0]]))
        total += probability
    assert total == pytest.approx(1.0, abs=1e-12)
    assert mean == pytest.approx(float(logits.exp().sum()), rel=1e-9)


# -- the sampler -----------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("n_samples", [1, 3, 7])
def test_probabilities_are_proportional_up_to_one(n_samples: int, power: float) -> None:
    p = NegativeSampler(COUNTS, n_samples, power).probabilities
    assert float(p.sum()) == pytest.approx(n_samples, abs=1e-9)
    assert (p > 0).all() and (p <= 1).all()
    ratio = p / COUNTS.double() ** power
    below = p < 1
    torch.testing.assert_close(ratio[below], ratio[below][:1].expand(int(below.sum())))
    assert (ratio[~below] <= ratio[below].max() * (1 + 1e-9)).all()
    if n_samples == 7 and power == 1.0:
        assert (~below).sum() > 1


def test_probabilities_of_a_large_vocabulary_sum_to_the_size() -> None:
    """A frequency distribution like that of text, most frequent words drawn surely."""
    counts = (1e9 / torch.arange(1, 200_001, dtype=torch.float64)).long()
    p = NegativeSampler(counts, 8192).probabilities
    assert float(p.sum()) == pytest.approx(8192, rel=1e-9)
    assert p[0] == 1 and p[-1] < 0.05


@pytest.mark.parametrize("n_samples", [8, 100])
def test_a_sample_as_large_as_the_vocabulary_is_the_vocabulary(n_samples: int) -> None:
    sample = NegativeSampler(COUNTS, n_samples).sample(torch.Generator())
    assert sample.ids.tolist() == sample.columns.tolist() == list(range(8))
    assert (sample.log_q == 0).all()


def test_samples_follow_the_probabilities() -> None:
    sampler = NegativeSampler(COUNTS, 4)
    generator = torch.Generator().manual_seed(0)
    n, hits = 3000, torch.zeros(8)
    for _ in range(n):
        sample = sampler.sample(generator)
        hits[sample.ids] += 1
        assert sample.columns[sample.ids].tolist() == list(range(len(sample.ids)))
        assert int((sample.columns >= 0).sum()) == len(sample.ids)
        torch.testing.assert_close(
            sample.log_q.double().exp(), sampler.probabilities[sample.ids], rtol=1e-6, atol=0
        )
    p = sampler.probabilities
    deviation = (p * (1 - p) / n).sqrt()
    assert ((hits / n - p).abs() <= 4 * deviation + 1e-12).all()


def test_the_same_seed_gives_the_same_sample() -> None:
    sampler = NegativeSampler(COUNTS, 4)
    samples = [sampler.sample(torch.Generator().manual_seed(3)).ids.tolist() for _ in range(2)]
    assert samples[0] == samples[1]


# -- the full softmax ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 4 * 50 * 3, lm.LOGITS_BYTES])
def test_full_log_probabilities_whatever_the_memory(limit: int) -> None:
    """One row at a time, three at a time, all at once."""
    softmax = Softmax(50, 6)
    with torch.no_grad():
        softmax.weight.copy_(normal(0, 50, 6))
        softmax.bias.copy_(normal(1, 50))
    hidden, targets = normal(2, 10, 6).float(), torch.arange(10) * 5
    logits = hidden @ softmax.weight.t() + softmax.bias
    expected = logits.log_softmax(1)[torch.arange(10), targets].detach()
    found = full_log_probabilities(hidden, softmax, targets, limit)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
