"""Where weights come from, and where they go."""

import json
import shutil

import numpy as np
import pytest
import spacy
from typer.testing import CliRunner

from spacy_elmo.bilm import BiLM
from spacy_elmo.cli import elmo_cli
from spacy_elmo.errors import ElmoError

from ..bilm.writers import write_many_langs_folder
from .conftest import TAGGER, examples, train

WORDS = ["She", "saw", "Paris"]


def vectors(nlp):
    return nlp(" ".join(WORDS))._.elmo_layers


@pytest.fixture
def pair(weights, tmp_path):
    """The tiny model as options.json and hdf5."""
    BiLM.load(weights).save(tmp_path / "pair", format="bilm")
    (hdf5,) = (tmp_path / "pair").glob("*.hdf5")
    return str(tmp_path / "pair" / "options.json"), str(hdf5)


def test_a_bilm_pair(make_nlp, weights, pair, tmp_path):
    expected = BiLM.load(*pair).embed([WORDS])[0]
    for given in (list(pair), str(tmp_path / "pair"), pair[0], pair[1]):
        nlp = make_nlp(weights=given)
        np.testing.assert_allclose(vectors(nlp), expected, atol=1e-5)
    # Through a config's text, and without the originals.
    nlp = make_nlp(weights=list(pair))
    config = spacy.util.load_config_from_str(nlp.config.to_str())
    again = spacy.util.load_model_from_config(config)
    np.testing.assert_allclose(vectors(again), expected, atol=1e-5)
    nlp.to_disk(tmp_path / "nlp")
    shutil.rmtree(tmp_path / "pair")
    np.testing.assert_allclose(vectors(spacy.load(tmp_path / "nlp")), expected, atol=1e-5)


@pytest.mark.parametrize("given", [[], ["one"], ["a", "b", "c"]])
def test_lists_that_are_no_pair_are_refused(make_nlp, given):
    with pytest.raises(ElmoError, match="ELMO-E117"):
        make_nlp(weights=given)


def test_missing_weights_are_named(make_nlp):
    nlp = make_nlp(weights="/nowhere/at all")
    with pytest.raises(ElmoError, match="ELMO-E020"):
        nlp("a dog")


def test_elmo_for_many_langs(make_nlp, tmp_path):
    folder = write_many_langs_folder(tmp_path / "model")
    nlp = make_nlp(weights=str(folder))
    expected = BiLM.load(folder).embed([WORDS])[0]
    np.testing.assert_allclose(vectors(nlp), expected, atol=1e-5)
    nlp.to_disk(tmp_path / "nlp")
    shutil.rmtree(folder)
    np.testing.assert_allclose(vectors(spacy.load(tmp_path / "nlp")), expected, atol=1e-5)


def test_initialize_block(weights, pair):
    """`[initialize.components.elmo]` wins over what the component was told."""
    config = """
    [nlp]
    lang = "en"
    pipeline = ["elmo", "tagger"]
    [components]
    [components.elmo]
    factory = "elmo"
    weights = "/nowhere"
    [components.tagger]
    factory = "tagger"
    [components.tagger.model]
    @architectures = "spacy.Tagger.v2"
    [components.tagger.model.tok2vec]
    @architectures = "spacy-elmo.ElmoListener.v1"
    [initialize]
    [initialize.components]
    [initialize.components.elmo]
    """
    for given in ([weights], pair):
        value = json.dumps(weights if len(given) == 1 else pair)
        text = config + f"weights = {value}\n"
        nlp = spacy.util.load_model_from_config(
            spacy.util.load_config_from_str(text), auto_fill=True
        )
        nlp.initialize(lambda nlp=nlp: examples(nlp))
        assert nlp.get_pipe("tagger").model.get_ref("tok2vec").get_dim("nO") == 16
        expected = BiLM.load(*given).embed([WORDS])[0]
        np.testing.assert_allclose(vectors(nlp), expected, atol=1e-5)


def test_settings_can_be_changed_when_loading(make_nlp, tmp_path):
    make_nlp(store="layers", mix="mean").to_disk(tmp_path / "nlp")
    changed = {"components": {"elmo": {"store": "vectors", "mix": "top", "hooks": True}}}
    doc = spacy.load(tmp_path / "nlp", config=changed)("a dog")
    layers = spacy.load(tmp_path / "nlp")("a dog")._.elmo_layers
    assert doc._.elmo_layers is None and doc.user_hooks
    np.testing.assert_allclose(doc._.elmo, layers[-1], atol=1e-6)


def test_loading_reads_no_weights_twice(make_nlp, tmp_path, monkeypatch):
    """Nor makes random ones first."""
    nlp = make_nlp("tagger")
    nlp.initialize(lambda: examples(nlp))
    nlp.to_disk(tmp_path / "nlp")
    calls = []
    load, read = BiLM.load, BiLM.from_files
    monkeypatch.setattr(BiLM, "load", lambda *a, **k: calls.append("load") or load(*a, **k))
    monkeypatch.setattr(BiLM, "from_files", lambda *a, **k: calls.append("read") or read(*a, **k))
    spacy.load(tmp_path / "nlp")("a dog")
    assert calls.count("read") == 1


def test_fine_tuned_weights_are_exported(make_nlp, tmp_path):
    nlp = make_nlp("tagger", trainable=True)
    before = nlp.get_pipe("elmo").bilm.embed([WORDS])[0]
    train(nlp, 4)
    after = vectors(nlp)
    assert np.abs(after - before).max() > 1e-3
    nlp.to_disk(tmp_path / "nlp")
    for number, source in enumerate(("nlp", "nlp/elmo", "nlp/elmo/weights")):
        target = tmp_path / f"out{number}"
        command = ["convert", str(tmp_path / source), str(target), "--to", "bilm"]
        result = CliRunner().invoke(elmo_cli, command)
        assert result.exit_code == 0, result.output
        # These files do not say which state sentences begin with.
        exported = BiLM.load(target, initial_state="zero")
        np.testing.assert_allclose(exported.embed([WORDS])[0], after, atol=1e-5)


def test_pipeline_with_two_models_is_not_guessed_at(make_nlp, weights, tmp_path):
    nlp = make_nlp()
    nlp.add_pipe("elmo", name="second", config={"weights": weights})
    nlp.to_disk(tmp_path / "nlp")
    with pytest.raises(ElmoError, match="ELMO-E119.*second"):
        BiLM.load(tmp_path / "nlp")
    assert BiLM.load(tmp_path / "nlp" / "second").width == 16


def test_wrong_sizes_are_found_when_linked(make_nlp, tmp_path):
    """A trained task beside another biLM: found when loading, not in the first batch."""
    nlp = make_nlp("tagger")
    train(nlp, 2)
    nlp.to_disk(tmp_path / "nlp")
    other = write_many_langs_folder(tmp_path / "other")
    BiLM.load(other).save(tmp_path / "native")
    shutil.rmtree(tmp_path / "nlp" / "elmo" / "weights")
    shutil.copytree(tmp_path / "native", tmp_path / "nlp" / "elmo" / "weights")
    with pytest.raises(ElmoError, match="ELMO-E109"):
        spacy.load(tmp_path / "nlp")
    # Too few start weights for the layers there are.
    nlp = make_nlp()
    listener = {**TAGGER["model"]["tok2vec"], "init_weights": [0.0, 1.0]}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": listener}})
    with pytest.raises(ElmoError, match="ELMO-E109.*number of layers"):
        nlp.initialize(lambda: examples(nlp))


def test_a_sourced_task_does_not_take_other_sizes(make_nlp, tmp_path):
    """Found when it is added, though the weights were not needed before."""
    trained = make_nlp("tagger")
    train(trained, 2)
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(write_many_langs_folder(tmp_path / "other"))})
    with pytest.raises(ElmoError, match="ELMO-E109.*width"):
        nlp.add_pipe("tagger", source=trained)
    # The same weights fit; what is blank waits for them without reading anything.
    nlp = make_nlp()
    nlp.add_pipe("tagger", source=trained)
    assert nlp("Paul saw Mary .")[0].tag_ == trained("Paul saw Mary .")[0].tag_
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(tmp_path / "nowhere")})
    nlp.add_pipe("tagger", config=TAGGER)
