"""Vectors of many texts as one array with a mask."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc

import spacy_elmo
from spacy_elmo.errors import ElmoError

WORDS = [["It", "rains"], ["the", "red", " ", "cat"], [], ["\n"]]


@pytest.fixture
def docs(make_nlp):
    nlp = make_nlp()
    return list(nlp.pipe(Doc(nlp.vocab, words=words) for words in WORDS))


@pytest.mark.parametrize("layer", ["mix", 0, 2, -1])
def test_rows_and_mask(docs, layer):
    vectors, mask = spacy_elmo.to_padded(docs, layer)
    assert vectors.shape == (4, 4, 16) and vectors.dtype == np.float32
    expected = [doc._.elmo if layer == "mix" else doc._.elmo_layers[layer] for doc in docs]
    for row, doc, array in zip(vectors, docs, expected):
        np.testing.assert_array_equal(row[: len(doc)], array)
    # Nothing stands where the mask is false: padding, and tokens of whitespace.
    assert mask.tolist() == [
        [True, True, False, False],
        [True, True, False, True],
        [False] * 4,
        [False] * 4,
    ]
    assert not vectors[~mask].any() and vectors[mask].any(axis=1).all()


def test_padding_changes_no_vector(docs, make_nlp):
    """Unlike tokens that a user puts behind a text, which are words to the biLM."""
    nlp = make_nlp()
    padded = nlp(Doc(nlp.vocab, words=[*WORDS[0], "<pad>", "<pad>"]))
    vectors, _ = spacy_elmo.to_padded(docs)
    np.testing.assert_allclose(vectors[0, :2], docs[0]._.elmo, atol=1e-6)
    assert np.abs(vectors[0, :2] - padded._.elmo[:2]).max() > 1e-3


def test_spans_and_tokens(docs):
    doc = docs[1]
    vectors, mask = spacy_elmo.to_padded([doc[1:4], doc[0], doc[2]])
    assert vectors.shape == (3, 3, 16)
    np.testing.assert_array_equal(vectors[0], doc._.elmo[1:4])
    np.testing.assert_array_equal(vectors[1, 0], doc._.elmo[0])
    assert mask.tolist() == [[True, False, True], [True, False, False], [False] * 3]


def test_what_cannot_be_padded(docs):
    for texts, code in (([], "E144"), ([spacy.blank("en")("a")], "E103")):
        with pytest.raises(ElmoError, match=f"ELMO-{code}"):
            spacy_elmo.to_padded(texts)
    with pytest.raises(ElmoError, match="ELMO-E144"):
        spacy_elmo.to_padded(docs, 7)
    wide = spacy.blank("en")
    wide.add_pipe("elmo")
    with pytest.raises(ElmoError, match="ELMO-E188.*16, 256"):
        spacy_elmo.to_padded([docs[0], wide("a")])
