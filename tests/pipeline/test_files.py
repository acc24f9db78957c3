"""Saved, copied, pickled, sourced: a pipeline keeps its weights, its mixes and its listeners."""

import pickle
import shutil

import numpy as np
import pytest
import spacy

from .conftest import copy_tree, mixes, train

TEXTS = ["Paul saw Paris .", "", "We met Mary again ."]


def outputs(nlp):
    return [([t.tag_ for t in doc], [str(e) for e in doc.ents]) for doc in nlp.pipe(TEXTS)]


@pytest.fixture
def trained(make_nlp):
    nlp = make_nlp("tagger", "ner")
    train(nlp, 15)
    return nlp


def test_blank_pipeline_is_self_contained(weights, tmp_path):
    source = copy_tree(weights, tmp_path / "source")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": source})
    nlp.to_disk(tmp_path / "nlp")
    expected = nlp("a dog")._.elmo
    as_bytes = nlp.to_bytes()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(nlp))("a dog")._.elmo, expected)
    shutil.rmtree(source)
    empty = spacy.util.load_model_from_config(nlp.config).from_bytes(as_bytes)
    np.testing.assert_array_equal(empty("a dog")._.elmo, expected)
    np.testing.assert_array_equal(spacy.load(tmp_path / "nlp")("a dog")._.elmo, expected)


def test_trained_pipeline_from_disk_bytes_and_pickle(trained, tmp_path):
    expected = outputs(trained)
    assert any(tags for tags, _ in expected)
    trained.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    assert outputs(loaded) == expected
    assert set(loaded.get_pipe("elmo").listener_map) == {"tagger", "ner"}
    again = spacy.util.load_model_from_config(trained.config).from_bytes(trained.to_bytes())
    assert outputs(again) == expected
    assert outputs(pickle.loads(pickle.dumps(trained))) == expected
    for name in ("tagger", "ner"):
        for key in ("w", "gamma"):
            np.testing.assert_array_equal(
                mixes(loaded, name)[0].get_param(key), mixes(trained, name)[0].get_param(key)
            )


def test_replace_listeners_then_save_and_load(trained, tmp_path):
    expected = outputs(trained)
    trained.replace_listeners("elmo", "ner", ["model.tok2vec"])
    assert outputs(trained) == expected
    assert list(trained.get_pipe("elmo").listener_map) == ["tagger"]
    trained.to_disk(tmp_path / "nlp")
    assert outputs(spacy.load(tmp_path / "nlp")) == expected


def test_sourced_components(trained):
    nlp = spacy.blank("en")
    for name in ("elmo", "tagger", "ner"):
        nlp.add_pipe(name, source=trained)
    assert outputs(nlp) == outputs(trained)


def test_renamed_component(make_nlp, tmp_path):
    nlp = make_nlp("tagger")
    nlp.rename_pipe("elmo", "encoder")
    train(nlp, 3)
    assert nlp.get_pipe("encoder").listener_map
    assert all(tags for (tags, _), text in zip(outputs(nlp), TEXTS) if text)
    # Once more, after the training, and into files.
    expected = outputs(nlp)
    nlp.rename_pipe("encoder", "again")
    assert outputs(nlp) == expected
    nlp.to_disk(tmp_path / "nlp")
    assert outputs(spacy.load(tmp_path / "nlp")) == expected


def test_training_goes_on_after_loading(trained, tmp_path):
    trained.to_disk(tmp_path / "nlp")
    nlp = spacy.load(tmp_path / "nlp")
    before = mixes(nlp, "ner")[0].get_param("w").copy()
    optimizer = nlp.resume_training()
    from .conftest import examples

    for _ in range(2):
        nlp.update(examples(nlp), sgd=optimizer)
    assert (mixes(nlp, "ner")[0].get_param("w") != before).any()
