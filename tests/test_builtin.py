"""The models that ship with the package."""

import math

import numpy as np
import pytest

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.io import builtin_models
from spacy_elmo.bilm.scoring import perplexity, score_sentences, softmax_words

from .util import ROOT, shared

MODELS = ROOT / "spacy_elmo" / "models"


@pytest.fixture(scope="module")
def en_mini() -> BiLM:
    return BiLM.load("en_mini", softmax=True)


def test_built_in_models_are_listed_and_small():
    assert "en_mini" in builtin_models()
    for name in builtin_models():
        files = [p for p in (MODELS / name).iterdir() if p.is_file()]
        assert sum(p.stat().st_size for p in files) <= 16 * 2**20
        assert {"model.safetensors", "config.json", "README.md"} <= {p.name for p in files}


def test_vectors_depend_on_the_sentence(en_mini):
    river, money = en_mini.embed(["the bank of the river".split(), "the bank lends money".split()])
    assert river.shape == (3, 5, en_mini.width)
    np.testing.assert_array_equal(river[0, 1], money[0, 1])
    for layer in (1, 2):
        cosine = river[layer, 1] @ money[layer, 1]
        cosine /= np.linalg.norm(river[layer, 1]) * np.linalg.norm(money[layer, 1])
        assert cosine < 0.98


def test_model_knows_the_order_of_words(en_mini):
    words = softmax_words(en_mini)
    sentence = "He went to the hospital because he was very ill .".split()
    shuffled = [sentence[i] for i in (3, 8, 1, 10, 5, 0, 7, 4, 2, 9, 6)]
    good, bad = score_sentences(en_mini, words, [sentence, shuffled])
    assert good.forward.sum() > bad.forward.sum() + 10
    assert good.backward.sum() > bad.backward.sum() + 10


def test_names_and_typos_get_vectors_near_the_word(en_mini):
    vectors = en_mini.embed([["important", "importnat", "banana"]])[0][0]
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_card_states_the_facts_of_the_training(en_mini):
    card = (MODELS / "en_mini" / "README.md").read_text(encoding="utf-8")
    training = en_mini.config.meta["training"]
    assert f"{training['steps']:,}" in card
    assert f"{training['tokens']:,}" in card
    assert f"{training['heldout']['average']:.1f}" in card


def test_perplexity_that_is_stated_meets_the_bound(en_mini):
    heldout = en_mini.config.meta["training"]["heldout"]
    assert heldout["average"] < 100
    # Over a small vocabulary it would be easy.
    assert heldout["n_words"] == len(en_mini.vocabulary) >= 50_000
    assert heldout["n_tokens"] > 100_000
    # The mean over the predictions of both directions, which are equally many.
    logs = [math.log(heldout[name]) for name in ("forward", "backward")]
    assert math.log(heldout["average"]) == pytest.approx(sum(logs) / 2, abs=1e-4)


def test_perplexity_on_held_out_text(en_mini):
    import lzma

    path = shared("corpora", "pretrain", "heldout.txt.xz")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        sentences = [line.split() for line in file if line.strip()]
    sample = sentences[:: len(sentences) // 150]
    result = perplexity(en_mini, sample)
    assert result.n_words >= 50_000
    stated = en_mini.config.meta["training"]["heldout"]["average"]
    # A sample of 150 sentences lies near the figure for the whole text.
    assert math.log(result.average) == pytest.approx(math.log(stated), abs=0.2)
