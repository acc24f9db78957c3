"""The linear probe against an exact condition, and its evaluation on texts made for it."""

import math
from typing import Any, List

import numpy as np
import pytest

from spacy_elmo.analysis.encoders import Encoder
from spacy_elmo.analysis.probe import LinearProbe, evaluate_probe, take_tokens
from spacy_elmo.analysis.tagged_text import TaggedSentence
from spacy_elmo.errors import ElmoError

from ..training import tiny


def test_the_fit_is_the_minimum() -> None:
    """The gradient of the stated loss vanishes there (the problem is convex)."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(300, 5)) * (1, 3, 0.1, 10, 1) + 5).astype(np.float32)
    y = (x[:, 0] * 2 + rng.normal(size=300) > 10).astype(np.int64) + (x[:, 3] > 12)
    probe = LinearProbe(0.01, max_steps=500).fit(x, y, 3)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    weight = probe.weight.detach().double().numpy()
    logits = standard @ weight.T + probe.bias.detach().double().numpy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    error = (p - np.eye(3)[y]) / len(y)
    assert np.abs(error.T @ standard + 0.01 * weight).max() < 2e-4
    assert np.abs(error.sum(axis=0)).max() < 2e-4
    assert (probe.predict(x) == logits.argmax(axis=1)).all()


def test_labels_that_are_linear_are_found_and_others_are_not() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 6)).astype(np.float32)
    linear, crossed = (x[:, 0] > 0).astype(np.int64), (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    for y, low, high in ((linear, 0.98, 1.0), (crossed, 0.4, 0.6)):
        probe = LinearProbe(1e-4).fit(x[:1000], y[:1000], 2)
        assert low <= float((probe.predict(x[1000:]) == y[1000:]).mean()) <= high


def test_a_constant_column_does_no_harm() -> None:
    x = np.ones((40, 2), np.float32)
    x[:20, 0] = 0.0
    y = np.repeat([0, 1], 20)
    assert (LinearProbe(1e-4).fit(x, y, 2).predict(x) == y).all()


def tagged(n: int, seed: int) -> List[TaggedSentence]:
    """All words have one label, but "the" another one where it begins the sentence."""
    out = []
    for tokens in tiny.sentences(n, seed):
        labels: List[Any] = []
        for i, token in enumerate(tokens):
            if token == "the":
                labels.append("first" if i == 0 else "later")
            else:
                labels.append(None if token == "." else "word")
        out.append(TaggedSentence(list(tokens), labels))
    return out


def test_context_is_what_upper_layers_add() -> None:
    train, held, test = tagged(200, 1), tagged(60, 2), tagged(150, 3)
    train[0].tokens[0], test[0].tokens[0] = "only-here", "only-there"
    encoder = Encoder(tiny.model(tiny.vocabulary(tiny.sentences(100))))
    result = evaluate_probe(encoder, train, held, test, views=["0", "1"])
    labelled = [(w, t) for s in test for w, t in zip(s.tokens, s.labels) if t is not None]
    assert result.n_test == len(labelled) and result.n_labels == 3
    assert result.n_seen_ambiguous == sum(w == "the" for w, _ in labelled) > 100
    known = {w for s in train for w in s.tokens}
    assert result.n_unseen == sum(w not in known for w, _ in labelled) > 0
    baseline, layer_0, layer_1 = result.results
    common = (
        "first"
        if sum(t == "first" for s in train for t in s.labels)
        > sum(t == "later" for s in train for t in s.labels)
        else "later"
    )
    rest = sum(t == common for _, t in labelled) / result.n_seen_ambiguous
    assert baseline.seen_ambiguous == pytest.approx(rest)
    assert layer_0.seen_ambiguous == pytest.approx(rest) and rest < 0.7
    assert layer_1.seen_ambiguous > 0.8
    assert layer_1.accuracy > layer_0.accuracy > 0.7 and layer_1.l2 in (1e-4, 1e-3, 1e-2)


def test_a_random_part_of_the_text() -> None:
    text = tagged(200, 5)
    part = take_tokens(text, 300, seed=1)
    assert 300 <= sum(len(s.tokens) for s in part) < 330
    assert part == take_tokens(text, 300, seed=1) != take_tokens(text, 300, seed=2)
    assert take_tokens(text, 0) == text
    places = [text.index(s) for s in part]
    assert max(places) > 150


def test_mistakes_are_coded() -> None:
    encoder = Encoder(tiny.model(tiny.vocabulary(tiny.sentences(20))))
    one = [TaggedSentence(["a", "b"], ["X", "X"])]
    with pytest.raises(ElmoError) as caught:
        evaluate_probe(encoder, one, one, one, views=["0"])
    assert caught.value.code == "ELMO-E144"
    text = tagged(20, 1)
    unknown = [TaggedSentence(["a"], ["never seen"])]
    result = evaluate_probe(encoder, text, unknown, text, views=["0"], l2=(1e-3,))
    assert result.results[1].accuracy > 0.5 and not math.isnan(result.results[0].accuracy)
    with pytest.raises(ElmoError) as caught:
        evaluate_probe(encoder, text, text, text, views=["0"], l2=())
    assert caught.value.code == "ELMO-E144"
