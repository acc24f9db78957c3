"""Expected words and substitutes, against scores of whole sentences and plain arithmetic."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.predict import LanguageModel
from spacy_elmo.errors import ElmoError

from ..training import tiny

TEXT = tiny.sentences(60, seed=2)
SENTENCE = ["the", "old", "cat", "sees", "a", "dog", "."]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel(tiny.model(tiny.vocabulary(TEXT, 60)))


def log_prob(lm: LanguageModel, position: int, word: str) -> Any:
    """What scoring a whole sentence says of a word at a place, in both directions."""
    tokens = list(SENTENCE)
    tokens[position] = word
    score = lm.score([tokens])[0]
    return float(score.forward[position]), float(score.backward[position + 1])


@pytest.mark.parametrize("position", [0, 3, 6])
def test_top_k_is_what_scoring_every_word_gives(lm: LanguageModel, position: int) -> None:
    words = [w for w, _ in lm.bilm.vocabulary or () if w not in ("<S>", "</S>", "<UNK>")]
    all_scores = {word: log_prob(lm, position, word) for word in words}
    found = lm.top_k(SENTENCE, position, 5)
    for direction, candidates in enumerate(found):
        best = sorted(words, key=lambda w: -all_scores[w][direction])[:5]
        assert [c.word for c in candidates] == best
        assert [c.log_prob for c in candidates] == pytest.approx(
            [all_scores[w][direction] for w in best], abs=1e-4
        )
    # The word at the place itself is not seen.
    other = [*SENTENCE[:position], "zebra", *SENTENCE[position + 1 :]]
    assert [c.word for c in lm.top_k(other, position, 5).forward] == [c.word for c in found.forward]


def test_words_before_and_behind_a_text(lm: LanguageModel) -> None:
    behind = {c.word: c.log_prob for c in lm.next_words(SENTENCE[:3], 1000)}
    before = {c.word: c.log_prob for c in lm.previous_words(SENTENCE[3:], 1000)}
    score = lm.score([SENTENCE])[0]
    assert behind["sees"] == pytest.approx(float(score.forward[3]), abs=1e-4)
    assert before["cat"] == pytest.approx(float(score.backward[3]), abs=1e-4)
    # A sentence may end or begin there, and no word stands in for those unknown.
    assert "</S>" in behind and "<S>" in before
    assert not {"<S>", "<UNK>"} & set(behind) and not {"</S>", "<UNK>"} & set(before)
    ends = dict(lm.next_words(SENTENCE, 1000))["</S>"]
    assert ends == pytest.approx(float(score.forward[-1]), abs=1e-4)
    begins = dict(lm.previous_words(SENTENCE, 1000))["<S>"]
    assert begins == pytest.approx(float(score.backward[0]), abs=1e-4)
    assert len(lm.next_words([], 4)) == len(lm.previous_words([], 4)) == 4


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_substitutes_are_the_normalised_product(lm: LanguageModel, power: float) -> None:
    vocabulary = lm.bilm.vocabulary or []
    counts = np.array([count + 1.0 for _, count in vocabulary])
    prior = np.log(counts / counts.sum())
    # The special entries and <UNK> take their part of the whole, but are no substitutes.
    forward, backward = (t.double().numpy() for t in lm._distributions(SENTENCE, 2))
    assert np.exp(forward).sum() == pytest.approx(1.0, abs=1e-5)
    total = forward + backward - power * prior
    total -= np.log(np.exp(total).sum())
    expected = {w: total[k] for k, (w, _) in enumerate(vocabulary)}
    found = lm.substitutes(SENTENCE, 2, 1000, prior_power=power)
    assert len(found) == len(vocabulary) - 4
    assert not {"cat", "<S>", "</S>", "<UNK>"} & {s.word for s in found}
    for s in found:
        assert s.log_prob == pytest.approx(expected[s.word], abs=1e-4)
        assert (s.forward, s.backward) == pytest.approx(log_prob(lm, 2, s.word), abs=1e-4)
    assert [s.log_prob for s in found] == sorted((s.log_prob for s in found), reverse=True)
    kept = lm.substitutes(SENTENCE, 2, 1000, prior_power=power, keep_original=True)
    assert {s.word for s in kept} - {s.word for s in found} == {"cat"}


def test_scores_do_not_depend_on_the_batch(lm: LanguageModel) -> None:
    scores = lm.score(TEXT, batch_tokens=40)
    for tokens, score in zip(TEXT, scores):
        alone = lm.score([tokens])[0]
        assert np.allclose(score.forward, alone.forward, atol=1e-5)
        assert np.allclose(score.backward, alone.backward, atol=1e-5)
    assert lm.score([]) == []


def test_unknown_words_are_flagged(lm: LanguageModel) -> None:
    assert lm.is_unknown(["cat", "zebra", "<S>", "the"]).tolist() == [False, True, True, False]
    a, b = (lm.score([["the", word, "."]])[0].forward[1] for word in ("zebra", "quux"))
    assert math.isclose(a, b)


def test_mistakes_are_coded(lm: LanguageModel) -> None:
    for call, code in (
        (lambda: lm.top_k(SENTENCE, 7), "ELMO-E140"),
        (lambda: lm.substitutes(SENTENCE, -1), "ELMO-E140"),
        (lambda: lm.next_words(SENTENCE, 0), "ELMO-E144"),
        (lambda: lm.substitutes(SENTENCE, 0, prior_power=1.5), "ELMO-E144"),
        (lambda: lm.score("the cat"), "ELMO-E001"),
    ):
        with pytest.raises(ElmoError) as caught:
            call()
        assert caught.value.code == code


def test_a_model_without_softmax(tmp_path: Any, lm: LanguageModel) -> None:
    lm.bilm.save(tmp_path / "model")
    with pytest.raises(ElmoError) as caught:
        LanguageModel(BiLM.load(tmp_path / "model"))
    assert caught.value.code == "ELMO-E050"
    again = LanguageModel.load(tmp_path / "model")
    expected = lm.next_words(SENTENCE[:2], 3)
    assert [c.word for c in again.next_words(SENTENCE[:2], 3)] == [c.word for c in expected]


def test_no_graph_is_built(lm: LanguageModel) -> None:
    with torch.enable_grad():
        forward, backward = lm._distributions(SENTENCE, 1)
    assert not forward.requires_grad and not backward.requires_grad
