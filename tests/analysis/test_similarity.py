"""Pooled vectors and their cosines against plain arithmetic."""

from typing import Any

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc

import spacy_elmo
from spacy_elmo.analysis.similarity import pooled
from spacy_elmo.errors import ElmoError

from ..pipeline.conftest import make_nlp, weights  # noqa: F401  (fixtures)


@pytest.fixture
def docs(make_nlp: Any) -> Any:  # noqa: F811
    nlp = make_nlp()
    words = (["the", "red", " ", "cat"], ["a", "dog", "barks"], ["it", "rains"])
    return list(nlp.pipe([Doc(nlp.vocab, words=w) for w in words]))


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("layer", [0, 1, 2, -1, "mix"])
def test_similarity_is_the_cosine_of_means(docs: Any, layer: Any) -> None:
    def mean(doc: Any) -> Any:
        array = doc._.elmo if layer == "mix" else doc._.elmo_layers[layer]
        return array[[not t.is_space for t in doc]].mean(axis=0)

    assert np.allclose(pooled(docs[0], layer), mean(docs[0]), atol=1e-6)
    expected = cosine(mean(docs[0]), mean(docs[1]))
    assert spacy_elmo.similarity(docs[0], docs[1], layer) == pytest.approx(expected, abs=1e-6)
    assert spacy_elmo.similarity(docs[0], docs[0], layer) == pytest.approx(1.0)
    common = np.mean([mean(doc) for doc in docs], axis=0)
    assert np.allclose(spacy_elmo.common_mean(docs, layer), common, atol=1e-6)
    expected = cosine(mean(docs[0]) - common, mean(docs[1]) - common)
    got = spacy_elmo.similarity(docs[0], docs[1], layer, mean=common)
    assert got == pytest.approx(expected, abs=1e-5)


def test_matrix_agrees_with_pairs(docs: Any) -> None:
    matrix = spacy_elmo.similarity_matrix(docs)
    pairs = [[spacy_elmo.similarity(a, b) for b in docs] for a in docs]
    assert matrix.shape == (3, 3) and np.allclose(matrix, pairs, atol=1e-6)
    assert np.allclose(spacy_elmo.similarity_matrix(docs[:1], docs[1:]), matrix[:1, 1:], atol=1e-6)


def test_spans_tokens_and_texts_without_words(docs: Any) -> None:
    doc = docs[0]
    assert np.array_equal(pooled(doc[1:2]), doc[1]._.elmo)
    assert np.array_equal(pooled(doc[3], 2), doc._.elmo_layers[2, 3])
    assert not pooled(doc[2:3]).any()
    assert spacy_elmo.similarity(doc[2:3], doc) == 0.0
    # A text without words has no direction, also when the mean is taken off.
    assert spacy_elmo.similarity(doc[2:3], doc, mean=np.ones(16, np.float32)) == 0.0


def test_mistakes_are_coded(docs: Any, make_nlp: Any) -> None:  # noqa: F811
    plain, vectors = spacy.blank("en")("a cat"), make_nlp(store="vectors")("a cat")
    spacy_elmo.similarity(vectors, vectors)
    for call, code in (
        (lambda: pooled(plain), "ELMO-E103"),
        (lambda: pooled(plain, 1), "ELMO-E103"),
        (lambda: pooled(vectors, 1), "ELMO-E152"),
        (lambda: pooled(docs[0], 3), "ELMO-E144"),
        (lambda: pooled(docs[0], "top"), "ELMO-E144"),
        (lambda: spacy_elmo.similarity_matrix([]), "ELMO-E144"),
    ):
        with pytest.raises(ElmoError) as caught:
            call()
        assert caught.value.code == code
