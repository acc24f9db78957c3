"""The cache of a frozen encoder's outputs, as the component uses it."""

import logging
import shutil
import sqlite3
import threading
import warnings
from contextlib import closing

import numpy as np
import pytest
import spacy

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import ElmoError, ElmoWarning

from .conftest import examples, train

TEXT = "She saw Paris ."


def fill(nlp, *texts):
    """Put texts into the cache as a training does."""
    return nlp.get_pipe("elmo").fill_cache(nlp.make_doc(text) for text in texts or (TEXT,))


def rows(path):
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT count(*) FROM sentences").fetchone()[0]


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
    fill(nlp)
    expected = make_nlp()(TEXT)._.elmo_layers
    encoded.clear()
    np.testing.assert_array_equal(nlp(TEXT)._.elmo_layers, expected)
    statistics = nlp.get_pipe("elmo").cache
    assert encoded == [] and (statistics.file_hits, statistics.n_bytes) == (1, 0)


def test_file_is_not_mistaken_for_other_weights(make_nlp, tmp_path):
    path = str(tmp_path / "cache.sqlite")
    fill(make_nlp(cache_path=path))
    nlp = make_nlp(cache_path=path, weights="en_mini")
    assert nlp(TEXT)._.elmo.shape == (4, 256)
    assert nlp.get_pipe("elmo").cache.misses == 1


@pytest.mark.parametrize("name", ["text", "no folder/cache", "folder", "empty", "other"])
def test_file_that_is_none(make_nlp, tmp_path, name):
    """An error where it is to be written; in prediction it is done without."""
    (tmp_path / "text").write_text("no database, but a text of some length\n" * 40)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    with closing(sqlite3.connect(tmp_path / "other")) as file:
        file.execute("CREATE TABLE sentences (text)")
    path = tmp_path / name
    expected = make_nlp()(TEXT)._.elmo_layers
    nlp = make_nlp("tagger", cache_path=str(path), cache_mb=0)
    elmo = nlp.get_pipe("elmo")
    with pytest.warns(ElmoWarning, match="ELMO-W180") as caught:
        for _ in range(3):
            np.testing.assert_array_equal(elmo(nlp.make_doc(TEXT))._.elmo_layers, expected)
    assert len(caught) == 1
    assert not (tmp_path / "no folder").exists()
    if name == "empty":
        # That becomes one.
        train(nlp, 1)
        assert rows(path) == 3
    else:
        with pytest.raises(ElmoError, match="ELMO-E118"):
            train(nlp, 1)


def test_trained_pipeline_needs_no_file(make_nlp, tmp_path):
    """What was trained with a cache's file runs where that file never was."""
    nlp = make_nlp("tagger", cache_path=str(tmp_path / "cache" / "file.sqlite"))
    (tmp_path / "cache").mkdir()
    train(nlp, 3)
    nlp.to_disk(tmp_path / "nlp")
    expected = [t.tag_ for t in nlp(TEXT)]
    shutil.rmtree(tmp_path / "cache")
    loaded = spacy.load(tmp_path / "nlp")
    with pytest.warns(ElmoWarning, match="ELMO-W180") as caught:
        for text in (TEXT, "Another text ."):
            doc = loaded(text)
    assert len(caught) == 1 and len(doc._.elmo) == 3
    assert [t.tag_ for t in loaded(TEXT)] == expected
    assert not (tmp_path / "cache").exists()


def test_prediction_reads_the_file_and_never_writes_it(make_nlp, tmp_path, encoded):
    path = tmp_path / "cache.sqlite"
    nlp = make_nlp("tagger", cache_path=str(path))
    train(nlp, 2)
    nlp.to_disk(tmp_path / "nlp")
    assert rows(path) == 3
    encoded.clear()
    loaded = spacy.load(tmp_path / "nlp")
    texts = [" ".join(t.text for t in eg.predicted) for eg in examples(loaded)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loaded.pipe([*texts, "A text of a user ."]))
    assert encoded == [("A", "text", "of", "a", "user", ".")]
    assert loaded.get_pipe("elmo").cache.file_hits == 3
    assert rows(path) == 3
    # And when it is trained on, it is a training again.
    optimizer = loaded.resume_training()
    loaded.update(examples(loaded), sgd=optimizer)
    loaded("A text of the development set .")
    assert rows(path) == 4


def test_filled_before_the_trainings(make_nlp, tmp_path, encoded):
    path = tmp_path / "cache.sqlite"
    nlp = make_nlp("tagger", cache_path=str(path), cache_mb=0)
    texts = [" ".join(t.text for t in eg.predicted) for eg in examples(nlp)]
    statistics = fill(nlp, *texts, *texts[:1])
    assert (statistics.misses, rows(path)) == (4, 3)
    # With that it is over.
    nlp.get_pipe("elmo")(nlp.make_doc("Something else ."))
    assert rows(path) == 3
    encoded.clear()
    for _ in range(2):
        train(make_nlp("tagger", cache_path=str(path)), 2)
    assert encoded == []
    for settings in ({"cache_mb": 0}, {"trainable": True, "cache_path": str(path)}):
        with pytest.raises(ElmoError, match="ELMO-E183"):
            fill(make_nlp(**settings))


def test_frozen_and_annotating_is_a_training(make_nlp, tmp_path, encoded):
    """As with `frozen_components` and `annotating_components`: the component is not updated."""
    path = tmp_path / "cache.sqlite"
    for n_encoded in (3, 0):
        nlp = make_nlp("tagger", cache_path=str(path))
        encoded.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", ElmoWarning)
            with nlp.select_pipes(disable=["elmo"]):
                optimizer = nlp.initialize(lambda nlp=nlp: examples(nlp))
            for _ in range(2):
                nlp.update(examples(nlp), exclude=["elmo"], annotates=["elmo"], sgd=optimizer)
        assert len(encoded) == n_encoded and rows(path) == 3


def test_file_keeps_to_its_limit(make_nlp, tmp_path, encoded):
    path = tmp_path / "cache.sqlite"
    texts = [f"This is sentence number {i} ." for i in range(60)]
    limit = 0.04
    with pytest.warns(ElmoWarning, match="ELMO-W181.*0.04 MiB") as caught:
        nlp = make_nlp(cache_path=str(path), cache_file_mb=limit)
        for text in texts:
            fill(nlp, text)
            assert path.stat().st_size <= limit * 2**20
    kept = rows(path)
    assert 5 < kept < 50
    # Once for each time that it is filled.
    assert len(caught) == 60 - kept
    # What it holds is used, also by one that may write no more.
    encoded.clear()
    with pytest.warns(ElmoWarning, match="ELMO-W181") as caught:
        statistics = fill(make_nlp(cache_path=str(path), cache_file_mb=limit, cache_mb=0), *texts)
    assert statistics.file_hits == kept and len(encoded) == 60 - kept and len(caught) == 1
    assert path.stat().st_size <= limit * 2**20
    fill(make_nlp(cache_path=str(path), cache_file_mb=0), *texts)
    assert rows(path) == 60 and path.stat().st_size > limit * 2**20


def test_damaged_rows_are_made_again(make_nlp, tmp_path):
    path = str(tmp_path / "cache.sqlite")
    fill(make_nlp(cache_path=path))
    expected = make_nlp()(TEXT)._.elmo_layers
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
    fill(nlp, *texts)
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
