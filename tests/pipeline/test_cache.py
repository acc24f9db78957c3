"""The cache of a frozen encoder's outputs, as the component uses it."""

import logging
import threading

import numpy as np
import pytest
import spacy

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import ElmoError

from .conftest import examples, train

TEXT = "She saw Paris ."


@pytest.fixture
def encoded(monkeypatch):
    """Sentences that any biLM was asked to encode."""
    seen, embed = [], BiLM.embed

    def spy(self, sentences, **kwargs):
        sentences = list(sentences)
        seen.extend(sentences)
        return embed(self, sentences, **kwargs)

    monkeypatch.setattr(BiLM, "embed", spy)
    return seen


def test_second_run_never_runs_the_encoder(make_nlp, tmp_path, encoded):
    path = str(tmp_path / "cache.sqlite")
    first = make_nlp("tagger", cache_path=path)
    history = train(first, 3)
    assert len(encoded) == 3
    encoded.clear()
    second = make_nlp("tagger", cache_path=path)
    assert train(second, 3) == history
    assert encoded == []
    statistics = second.get_pipe("elmo").cache
    assert (statistics.misses, statistics.file_hits, statistics.hits) == (0, 3, 6)
    assert statistics.n_bytes > 0 and statistics.entries == 3


def test_file_alone_without_memory(make_nlp, tmp_path, encoded):
    path = str(tmp_path / "cache.sqlite")
    nlp = make_nlp(cache_path=path, cache_mb=0)
    np.testing.assert_array_equal(nlp(TEXT)._.elmo_layers, nlp(TEXT)._.elmo_layers)
    statistics = nlp.get_pipe("elmo").cache
    assert len(encoded) == 1 and (statistics.file_hits, statistics.n_bytes) == (1, 0)


def test_file_is_not_mistaken_for_other_weights(make_nlp, tmp_path):
    path = str(tmp_path / "cache.sqlite")
    make_nlp(cache_path=path)(TEXT)
    nlp = make_nlp(cache_path=path, weights="en_mini")
    assert nlp(TEXT)._.elmo.shape == (4, 256)
    assert nlp.get_pipe("elmo").cache.misses == 1


def test_file_that_is_none(make_nlp, tmp_path):
    (tmp_path / "text").write_text("no database, but a text of some length\n" * 40)
    for path in (tmp_path / "text", tmp_path / "no folder" / "cache"):
        with pytest.raises(ElmoError, match="ELMO-E118"):
            make_nlp(cache_path=str(path))(TEXT)


def test_damaged_rows_are_made_again(make_nlp, tmp_path):
    import sqlite3

    path = str(tmp_path / "cache.sqlite")
    expected = make_nlp(cache_path=path)(TEXT)._.elmo_layers
    for damage in (b"", b"x" * 30, np.array([5, 4, -8], "int64").tobytes() + b"0" * 640, "text"):
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE sentences SET layers = ?", (damage,))
        connection.close()
        nlp = make_nlp(cache_path=path)
        np.testing.assert_allclose(nlp(TEXT)._.elmo_layers, expected, atol=1e-6)
        assert nlp.get_pipe("elmo").cache.misses == 1


def test_bounded(make_nlp):
    nlp = make_nlp(cache_mb=0.002)
    for i in range(50):
        nlp(f"sentence number {i}")
    assert 0 < nlp.get_pipe("elmo").cache.n_bytes <= 0.002 * 2**20


def test_off_for_a_learning_encoder(make_nlp, tmp_path):
    nlp = make_nlp("tagger", trainable=True, cache_path=str(tmp_path / "cache.sqlite"))
    train(nlp, 2)
    assert not (tmp_path / "cache.sqlite").exists()
    assert nlp.get_pipe("elmo").cache == (0, 0, 0, 0, 0)


def test_statistics_are_logged_when_the_pipeline_is_saved(make_nlp, tmp_path, caplog):
    """At each evaluation and at the end of `spacy train`, shown by its --verbose."""
    nlp = make_nlp("tagger")
    nlp.to_disk(tmp_path / "blank", exclude=["tagger"])
    with caplog.at_level(logging.INFO, logger="spacy"):
        spacy.util.logger.propagate = True
        train(nlp, 3)
        nlp.to_disk(tmp_path / "nlp")
    (line,) = [r.getMessage() for r in caplog.records if "Cache of 'elmo'" in r.getMessage()]
    assert "6 hits, 0 of them in the file, 3 misses" in line and "MiB" in line


def test_not_part_of_the_saved_pipeline(make_nlp):
    nlp = make_nlp()
    size = len(nlp.to_bytes())
    for eg in examples(nlp):
        nlp(eg.predicted)
    assert abs(len(nlp.to_bytes()) - size) < 200


def test_several_threads(make_nlp, tmp_path):
    """A service calls one pipeline from several threads, with memory too small for all."""
    nlp = make_nlp(cache_mb=0.001, cache_path=str(tmp_path / "cache.sqlite"))
    texts = [f"sentence number {i}" for i in range(8)]
    expected = {text: nlp(text)._.elmo for text in texts}
    problems = []

    def work(offset):
        try:
            for i in range(40):
                text = texts[(i * offset) % 8]
                np.testing.assert_allclose(nlp(text)._.elmo, expected[text], atol=1e-5)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
