"""Scores on docs: extensions, units, whitespace, bytes, and which model is asked."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc

import spacy_elmo
from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.predict import LanguageModel
from spacy_elmo.bilm.scoring import perplexity
from spacy_elmo.errors import ElmoError, ElmoWarning

from ..training import tiny


@pytest.fixture(scope="module")
def bilm() -> BiLM:
    return tiny.model(tiny.vocabulary(tiny.sentences(60), 60))


@pytest.fixture(scope="module")
def folder(bilm: BiLM, tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("lm") / "model"
    bilm.save(path)
    return path


def make_doc() -> Doc:
    """Two sentences, whitespace, and a word that the vocabulary lacks."""
    words = ["the", "cat", "sees", "a", "zebra", ".", "\n\n", "a", "dog", "!"]
    return Doc(spacy.blank("en").vocab, words=words)


SENTENCES = [["the", "cat", "sees", "a", "zebra", "."], ["a", "dog", "!"]]


def test_extensions_hold_the_scores_in_their_units(bilm: BiLM) -> None:
    doc = make_doc()
    assert spacy_elmo.score(doc, bilm) is doc
    first, second = LanguageModel(bilm).score(SENTENCES)
    forward = [*first.forward[:-1], None, *second.forward[:-1]]
    backward = [*first.backward[1:], None, *second.backward[1:]]
    for token, f, b in zip(doc, forward, backward):
        if f is None:
            assert token._.elmo_log_prob_forward is token._.elmo_log_prob_backward is None
            assert token._.elmo_surprisal is token._.elmo_is_unknown is None
            continue
        assert token._.elmo_log_prob_forward == pytest.approx(float(f), abs=1e-5)
        assert token._.elmo_log_prob_backward == pytest.approx(float(b), abs=1e-5)
        # Bits: a probability of 2^-s.
        assert 2.0**-token._.elmo_surprisal == pytest.approx(math.exp(float(f)), rel=1e-4)
        assert token._.elmo_is_unknown is (token.text == "zebra")
    assert doc._.elmo_perplexity == pytest.approx(perplexity(bilm, SENTENCES).average, rel=1e-5)


def test_scores_survive_bytes(bilm: BiLM) -> None:
    doc = spacy_elmo.score(make_doc(), bilm)
    again = Doc(doc.vocab).from_bytes(doc.to_bytes())
    assert [t._.elmo_surprisal for t in again] == [t._.elmo_surprisal for t in doc]
    assert again._.elmo_perplexity == doc._.elmo_perplexity


def test_streams_and_empty_docs(bilm: BiLM, folder: Path) -> None:
    nlp = spacy.blank("en")
    docs = [make_doc(), nlp(""), nlp(" "), make_doc()]
    scored = list(spacy_elmo.score_docs(docs, folder, batch_size=3))
    assert scored == docs
    assert docs[1]._.elmo_perplexity is docs[2]._.elmo_perplexity is None
    alone = spacy_elmo.score(make_doc(), bilm)
    assert np.allclose(
        [t._.elmo_surprisal for t in docs[3] if not t.is_space],
        [t._.elmo_surprisal for t in alone if not t.is_space],
        atol=1e-4,
    )


def test_expected_words_and_substitutes_of_tokens(bilm: BiLM) -> None:
    lm, doc = LanguageModel(bilm), make_doc()
    assert spacy_elmo.top_k(doc[8], 3, bilm) == lm.top_k(SENTENCES[1], 1, 3)
    found = spacy_elmo.substitutes(doc[2], 4, lm, prior_power=1.0)
    assert found == lm.substitutes(SENTENCES[0], 2, 4, prior_power=1.0)
    assert spacy_elmo.next_words(doc[:2], 3, lm) == lm.next_words(["the", "cat"], 3)
    assert spacy_elmo.previous_words(doc[8:], 3, lm) == lm.previous_words(["dog", "!"], 3)
    with pytest.raises(ElmoError) as caught:
        spacy_elmo.top_k(doc[6], 3, lm)
    assert caught.value.code == "ELMO-E151"


def test_the_built_in_model_is_the_default() -> None:
    doc = spacy_elmo.score(spacy.blank("en")("He went to the store."))
    expected = BiLM.load("en_mini", softmax=True)
    score = LanguageModel(expected).score([[t.text for t in doc]])[0]
    got = [t._.elmo_log_prob_forward for t in doc]
    assert np.allclose(got, score.forward[:-1], atol=1e-4)
    assert doc[3]._.elmo_surprisal < doc[1]._.elmo_surprisal


def test_a_component_finds_its_softmax(folder: Path, bilm: BiLM) -> None:
    nlp = spacy.blank("en")
    elmo: Any = nlp.add_pipe("elmo", config={"weights": str(folder)})
    doc, expected = elmo.score_doc(make_doc()), spacy_elmo.score(make_doc(), folder)
    assert doc[1]._.elmo_surprisal == expected[1]._.elmo_surprisal
    # Weights that were trained on do not belong to that softmax any more.
    elmo.bilm.forward_lstm[0].bias.data += 0.1
    with pytest.raises(ElmoError) as caught:
        elmo.score_doc(make_doc())
    assert caught.value.code == "ELMO-E142"


def test_a_saved_pipeline_finds_the_softmax_where_its_weights_came_from(
    folder: Path, tmp_path: Path, bilm: BiLM
) -> None:
    import shutil

    source = shutil.copytree(folder, tmp_path / "source")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(source)})
    nlp("the cat")
    nlp.to_disk(tmp_path / "nlp")
    assert not list((tmp_path / "nlp").rglob("vocabulary.txt")), "the softmax was stored"
    elmo: Any = spacy.load(tmp_path / "nlp").get_pipe("elmo")
    expected = spacy_elmo.score(make_doc(), bilm)
    got = elmo.score_doc(make_doc())
    assert got[2]._.elmo_surprisal == pytest.approx(expected[2]._.elmo_surprisal, abs=1e-4)
    shutil.rmtree(source)
    with pytest.raises(ElmoError) as caught:
        elmo.score_doc(make_doc())
    assert caught.value.code == "ELMO-E141" and str(source) in str(caught.value)


def test_mistakes_are_coded(weights: str, bilm: BiLM) -> None:
    nlp = spacy.blank("en")
    with pytest.raises(ElmoError) as caught:
        nlp("the cat")[0]._.elmo_surprisal  # noqa: B018
    assert caught.value.code == "ELMO-E143"
    with pytest.raises(ElmoError) as caught:
        spacy_elmo.score(nlp("the cat"), weights)
    assert caught.value.code == "ELMO-E050"
    doc = spacy_elmo.score(make_doc(), bilm)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    with pytest.raises(ElmoError) as caught:
        doc[0]._.elmo_surprisal  # noqa: B018
    assert caught.value.code == "ELMO-E102"


def test_another_language_is_warned_about() -> None:
    with pytest.warns(ElmoWarning, match="W140.*'de'.*'en'"):
        spacy_elmo.score(spacy.blank("de")("Das ist ein Haus."))
