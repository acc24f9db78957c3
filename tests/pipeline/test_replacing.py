"""`nlp.replace_listeners`: a task with an encoder of its own, which is the component's in all."""

import copy
import gc

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp
from spacy.util import fix_random_seed, load_config
from thinc.api import concatenate

from spacy_elmo.bilm import BiLM
from spacy_elmo.cli.init_config import make_config
from spacy_elmo.errors import ElmoError
from spacy_elmo.layers.encoder import shim_of
from spacy_elmo.layers.tok2vec import build_elmo_tok2vec_v1

from ..util import ROOT
from .conftest import LISTENER, TAGGER, examples, train

#: Of the listener in the configs of this package.
PATH = "model.tok2vec.embed.elmo"
TEXT = "She saw Paris . We met in London again ."


@spacy.registry.misc("tests.pieces_segmenter.v1")
def build_pieces_segmenter(length):
    return Pieces(length)


class Pieces:
    """A segmenter of a user's own: pieces of a length."""

    def __init__(self, length):
        self.length = length

    def __call__(self, docs):
        n = self.length
        return [[(i, min(i + n, len(doc))) for i in range(0, len(doc), n)] for doc in docs]


@spacy.registry.architectures("tests.Two.v1")
def build_two(first, second):
    return concatenate(first, second)


def section_at(nlp, name, path):
    section = nlp.config["components"][name]
    for part in path.split("."):
        section = section[part]
    return section


def encoder_of(nlp, name):
    return next(n for n in nlp.get_pipe(name).model.walk() if n.name == "elmo_encoder")


def hidden(nlp, name="tagger"):
    """What the component's tok2vec gives for a text."""
    doc = nlp.make_doc(TEXT)
    if "elmo" in nlp.pipe_names:
        nlp.get_pipe("elmo")(doc)
    return nlp.get_pipe(name).model.get_ref("tok2vec").predict([doc])[0]


def saved(nlp, path):
    nlp.to_disk(path)
    return spacy.load(path)


# -- the path ----------------------------------------------------------------------------


def test_configs_have_their_listeners_where_the_documents_say():
    configs = [load_config(path) for path in sorted((ROOT / "configs").glob("*.cfg"))]
    configs.append(make_config("en", ["tagger", "parser", "ner", "textcat", "spancat"]))
    n_found = 0
    for config in configs:
        for component in config.get("components", {}).values():
            model = component.get("model", {})
            if "ElmoListener" in str(model):
                embed = model["tok2vec"]["embed"]
                assert embed["elmo"]["@architectures"] == "spacy-elmo.ElmoListener.v1"
                n_found += 1
    assert n_found > 8
    text = (ROOT / "docs" / "architectures.md").read_text("utf-8")
    assert f'nlp.replace_listeners("elmo", "ner", ["{PATH}"])' in text


@pytest.fixture(scope="module")
def ner(tmp_path_factory, weights):
    """Folder of a pipeline of configs/ner.cfg after a few steps, with a tiny biLM."""
    path = tmp_path_factory.mktemp("ner")
    docs = [eg.reference for eg in examples(spacy.blank("en"))]
    DocBin(docs=docs).to_disk(path / "train.spacy")
    overrides = {f"paths.{name}": str(path / "train.spacy") for name in ("train", "dev")}
    overrides["components.elmo.weights"] = weights
    fix_random_seed(0)
    nlp = init_nlp(load_config(ROOT / "configs" / "ner.cfg", overrides=overrides))
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01
    for _ in range(15):
        nlp.update(examples(nlp), sgd=optimizer)
    nlp.to_disk(path / "nlp")
    return path / "nlp"


def found_by(nlp):
    scores = nlp.evaluate(examples(nlp))
    return {k: v for k, v in scores.items() if k != "speed"}, [str(e) for e in nlp(TEXT).ents]


def test_shipped_config_with_its_path(ner, tmp_path):
    nlp = spacy.load(ner)
    expected, vectors = found_by(nlp), hidden(nlp, "ner")
    assert expected[0]["ents_f"] > 0 and expected[1]
    nlp.replace_listeners("elmo", "ner", [PATH])
    nlp.remove_pipe("elmo")
    assert found_by(nlp) == expected
    np.testing.assert_allclose(hidden(nlp, "ner"), vectors, atol=1e-5)
    loaded = saved(nlp, tmp_path / "nlp")
    assert found_by(loaded) == expected
    np.testing.assert_allclose(hidden(loaded, "ner"), vectors, atol=1e-5)


@pytest.mark.parametrize(
    "path", ["model.tok2vec", "model.tok2vec.embed", "model.tok2vec.embed.elmo.init_weights"]
)
def test_wrong_path_is_refused_before_anything_is_lost(ner, tmp_path, path):
    nlp = spacy.load(ner)
    expected, before = found_by(nlp), copy.deepcopy(nlp.config)
    with pytest.raises(ElmoError, match="ELMO-E185") as caught:
        nlp.replace_listeners("elmo", "ner", [path])
    assert path in str(caught.value) and str(caught.value).count(PATH) >= 1
    assert nlp.config == before
    assert found_by(nlp) == expected
    assert found_by(saved(nlp, tmp_path / "nlp")) == expected
    # And nothing stands in the way of the right one.
    nlp.replace_listeners("elmo", "ner", [PATH])
    assert found_by(saved(nlp, tmp_path / "again")) == expected


def test_wrong_path_in_a_config_that_sources_the_component(ner):
    config = {
        "nlp": {"lang": "en", "pipeline": ["ner"]},
        "components": {"ner": {"source": str(ner), "replace_listeners": ["model.tok2vec"]}},
    }
    with pytest.raises(ElmoError, match="ELMO-E185"):
        spacy.util.load_model_from_config(config, auto_fill=True)
    config["components"]["ner"]["replace_listeners"] = [PATH]
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    assert section_at(nlp, "ner", PATH)["@architectures"] == "spacy-elmo.ElmoTok2Vec.v1"
    assert found_by(nlp) == found_by(spacy.load(ner))


TWO = {
    "@architectures": "tests.Two.v1",
    "first": {**LISTENER, "dropout": 0.25},
    "second": {**LISTENER, "layer_norm": True, "init_weights": [1.0, 0.0, 2.0]},
}


@pytest.fixture
def two(make_nlp):
    """A tagger that listens twice, by mixes of different settings."""
    nlp = make_nlp()
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": TWO}})
    train(nlp, 3)
    return nlp


@pytest.mark.parametrize("names", [["first", "second"], ["second", "first"]])
def test_several_listeners_keep_their_own_settings(two, tmp_path, names):
    expected = hidden(two)
    two.replace_listeners("elmo", "tagger", [f"model.tok2vec.{name}" for name in names])
    keys = ("dropout", "layer_norm", "init_weights")
    sections = [section_at(two, "tagger", f"model.tok2vec.{name}") for name in ("first", "second")]
    assert [section[key] for section in sections for key in keys] == [
        *(0.25, False, None),
        *(0.0, True, [1.0, 0.0, 2.0]),
    ]
    np.testing.assert_allclose(hidden(saved(two, tmp_path / "nlp")), expected, atol=1e-5)


@pytest.mark.parametrize(
    "paths",
    [
        ["first", "first"],
        ["first", "second.dropout"],
        ["", "first"],
        ["", "second"],
        ["second.dropout", "second"],
    ],
)
def test_wrong_paths_among_several(two, tmp_path, paths):
    expected, before = hidden(two), copy.deepcopy(two.config)
    with pytest.raises(ElmoError, match="ELMO-E185.*tok2vec.first, model.tok2vec.second"):
        two.replace_listeners("elmo", "tagger", [f"model.tok2vec.{p}".strip(".") for p in paths])
    assert two.config == before
    np.testing.assert_allclose(hidden(saved(two, tmp_path / "nlp")), expected, atol=1e-5)


def test_path_of_a_listener_to_another_component(make_nlp, weights):
    nlp = make_nlp()
    nlp.add_pipe("elmo", name="other", config={"weights": weights})
    both = {**TWO, "first": {**LISTENER, "upstream": "other"}}
    both["second"] = {**TWO["second"], "upstream": "elmo"}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": both}})
    train(nlp, 2)
    with pytest.raises(ElmoError, match="ELMO-E185.*stand at: model.tok2vec.second"):
        nlp.replace_listeners("elmo", "tagger", ["model.tok2vec.first"])
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec.second"])
    assert nlp.get_pipe("other").listening_components == ["tagger"]


@pytest.mark.parametrize("tok2vec", ["${components.second.model.tok2vec}", "function"])
def test_listeners_that_the_config_does_not_show_are_refused(make_nlp, tok2vec):
    @spacy.registry.architectures("tests.Hidden.v1")
    def build_hidden():
        return spacy.registry.architectures.get(LISTENER["@architectures"])()

    nlp = make_nlp("tagger")
    nlp.add_pipe("tagger", name="second", config=TAGGER)
    if tok2vec == "function":
        tok2vec = {"@architectures": "tests.Hidden.v1"}
        nlp.remove_pipe("second")
        nlp.add_pipe(
            "tagger", name="second", config={"model": {**TAGGER["model"], "tok2vec": tok2vec}}
        )
    else:
        nlp._pipe_configs["second"]["model"]["tok2vec"] = "${components.tagger.model.tok2vec}"
    train(nlp, 1)
    before = copy.deepcopy(nlp.config)
    with pytest.raises(ElmoError, match="ELMO-E186"):
        nlp.replace_listeners("elmo", "second", ["model.tok2vec"])
    assert nlp.config == before and "second" in nlp.get_pipe("elmo").listening_components


# -- the settings ------------------------------------------------------------------------

OWN = {"@misc": "tests.pieces_segmenter.v1", "length": 2}


@pytest.mark.parametrize(
    "segmenter",
    [
        OWN,
        {"@misc": "spacy-elmo.whole_doc_segmenter.v1"},
        {"@misc": "spacy-elmo.punct_segmenter.v1"},
    ],
)
def test_segmenter_stays(make_nlp, tmp_path, segmenter):
    nlp = make_nlp("tagger", segmenter=segmenter)
    train(nlp, 3)
    expected = hidden(nlp)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    np.testing.assert_array_equal(hidden(nlp), expected)
    assert section_at(nlp, "tagger", "model.tok2vec")["segmenter"] == segmenter
    nlp.remove_pipe("elmo")
    loaded = saved(nlp, tmp_path / "nlp")
    np.testing.assert_array_equal(hidden(loaded), expected)
    again = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(hidden(again), expected)


def test_segmenter_in_the_config_decides(make_nlp, tmp_path):
    """Whoever loads a pipeline may give other settings, as with the component."""
    nlp = make_nlp("tagger", segmenter={"@misc": "spacy-elmo.whole_doc_segmenter.v1"})
    train(nlp, 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    nlp.to_disk(tmp_path / "nlp")
    config = {"components.tagger.model.tok2vec.segmenter": OWN}
    loaded = spacy.load(tmp_path / "nlp", config=config)
    assert np.abs(hidden(loaded) - hidden(nlp)).max() > 1e-3


def test_segmenter_of_a_component_whose_source_is_gone(make_nlp, tmp_path):
    source = make_nlp("tagger", segmenter=OWN)
    train(source, 2)
    expected = hidden(source)
    nlp = spacy.blank("en")
    for name in ("elmo", "tagger"):
        nlp.add_pipe(name, source=source)
    nlp.rename_pipe("tagger", "tags")
    del source
    gc.collect()
    nlp.replace_listeners("elmo", "tags", ["model.tok2vec"])
    np.testing.assert_array_equal(hidden(saved(nlp, tmp_path / "nlp"), "tags"), expected)


def test_segmenter_of_an_unknown_block_is_refused(make_nlp):
    source = make_nlp(segmenter=OWN)
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", source=source)
    del source
    gc.collect()
    nlp.add_pipe("tagger", config=TAGGER)
    train(nlp, 2)
    expected, before = hidden(nlp), copy.deepcopy(nlp.config)
    with pytest.raises(ElmoError, match="ELMO-E187.*Pieces"):
        nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    assert nlp.config == before
    np.testing.assert_array_equal(hidden(nlp), expected)


def test_settings_of_the_encoder_stay(make_nlp, tmp_path):
    given = {
        "cache_mb": 3.0,
        "cache_path": str(tmp_path / "cache.sqlite"),
        "cache_file_mb": 5.0,
        "max_batch_tokens": 77,
        "learn_rate_factor": 0.25,
        "model": {"precision": "float16"},
    }
    nlp = make_nlp("tagger", **given)
    train(nlp, 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    loaded = saved(nlp, tmp_path / "nlp")
    section = section_at(loaded, "tagger", "model.tok2vec")
    assert {k: section[k] for k in given if k != "model"} == {
        k: v for k, v in given.items() if k != "model"
    }
    shims = [shim_of(encoder_of(n, "tagger")) for n in (nlp, loaded)]
    for name in ("max_batch_tokens", "learn_rate_factor", "cfg"):
        assert getattr(shims[0], name) == getattr(shims[1], name)
    assert shims[1].max_batch_tokens == 77 and shims[1].learn_rate_factor == 0.25
    assert shims[1].cache.max_bytes == 3 * 2**20 and shims[1].cache.has_file


def test_frozen_copy_runs_once_a_sentence(make_nlp, tmp_path, monkeypatch):
    nlp = make_nlp("tagger")
    train(nlp, 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    nlp.remove_pipe("elmo")
    loaded = saved(nlp, tmp_path / "nlp")
    optimizer = loaded.resume_training()
    seen, embed = [], BiLM.embed
    monkeypatch.setattr(BiLM, "embed", lambda self, s, **kw: seen.extend(s) or embed(self, s, **kw))
    for _ in range(3):
        loaded.update(examples(loaded), sgd=optimizer)
    assert len(seen) == 3


@pytest.mark.parametrize("trainable", [False, True])
def test_copy_learns_as_the_component_did(make_nlp, tmp_path, trainable):
    nlp = make_nlp("tagger", trainable=trainable)
    train(nlp, 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    nlp.remove_pipe("elmo")
    loaded = saved(nlp, tmp_path / "nlp")
    assert section_at(loaded, "tagger", "model.tok2vec")["encoder_trainable"] is trainable
    for pipeline in (nlp, loaded):
        bilm = shim_of(encoder_of(pipeline, "tagger")).bilm
        before = {k: t.clone() for k, t in bilm.state_dict().items()}
        optimizer = pipeline.resume_training()
        for _ in range(2):
            pipeline.update(examples(pipeline), sgd=optimizer)
        after = shim_of(encoder_of(pipeline, "tagger")).bilm.state_dict()
        assert all((after[k] == before[k]).all() != trainable for k in before)


def test_copy_has_no_source_of_weights_if_the_component_has_none(make_nlp, weights, tmp_path):
    nlp = make_nlp("tagger")
    train(nlp, 2)
    nlp.to_disk(tmp_path / "nlp")
    nlp = spacy.load(tmp_path / "nlp", config={"components.elmo.weights": None})
    expected = hidden(nlp)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    assert section_at(nlp, "tagger", "model.tok2vec")["weights"] is None
    np.testing.assert_array_equal(hidden(saved(nlp, tmp_path / "again")), expected)


def test_copies_do_not_share_what_learns(make_nlp):
    nlp = make_nlp("tagger", "ner", trainable=True)
    train(nlp, 2)
    for name in ("tagger", "ner"):
        nlp.replace_listeners("elmo", name, ["model.tok2vec"])
    first, second = (shim_of(encoder_of(nlp, name)) for name in ("tagger", "ner"))
    assert first.id != second.id
    before = {k: t.clone() for k, t in second.bilm.state_dict().items()}
    optimizer = nlp.resume_training()
    for _ in range(2):
        nlp.update(examples(nlp), exclude=["elmo", "ner"], sgd=optimizer)
    assert all((second.bilm.state_dict()[k] == before[k]).all() for k in before)


def test_listeners_of_spacy_to_an_encoder_of_ours(weights, tmp_path):
    """A component `tok2vec` with ElmoTok2Vec.v1: what replaces its listeners keeps the settings."""
    own = {"@architectures": "spacy-elmo.ElmoTok2Vec.v1", "weights": weights, "layer_norm": True}
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": own})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": listener}})
    train(nlp, 3)
    expected = [t.tag_ for t in nlp(TEXT)]
    nlp.replace_listeners("tok2vec", "tagger", ["model.tok2vec"])
    section = section_at(nlp, "tagger", "model.tok2vec")
    assert section["weights"] == weights and section["layer_norm"] is True
    assert [t.tag_ for t in saved(nlp, tmp_path / "nlp")(TEXT)] == expected


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"max_batch_tokens": 0}, "E180"),
        ({"cache_mb": -1.0}, "E180"),
        ({"learn_rate_factor": float("nan")}, "E180"),
        ({"weights": ["a"]}, "E117"),
        ({"precision": "float8"}, "E104"),
    ],
)
def test_bad_settings_are_refused(setting, code):
    with pytest.raises(ElmoError, match=f"ELMO-{code}"):
        build_elmo_tok2vec_v1(**setting)
