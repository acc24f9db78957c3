"""ELMo among other components: other encoders, frozen, excluded, disabled and sourced ones."""

import copy
import gc
import pickle

import numpy as np
import pytest
import spacy
from spacy.language import DEFAULT_CONFIG, Language
from spacy.tokens import Doc
from spacy.training.initialize import init_nlp
from spacy.ty import ListenedToComponent
from thinc.api import Config, Model

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import ElmoError

from .conftest import LISTENER, NER, TAGGER, examples, mixes, train

WORDS = ["She", "saw", "Paris", "."]
TOK2VEC_LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96}


def tagger(listener):
    return {"model": {**TAGGER["model"], "tok2vec": listener}}


def doc_of(nlp):
    return Doc(nlp.vocab, words=WORDS)


@pytest.fixture
def other_weights(tmp_path):
    """A second biLM of the same shape."""
    model = BiLM.load("en_mini")
    model.save(tmp_path / "other")
    return str(tmp_path / "other")


@pytest.fixture
def two(make_nlp, other_weights):
    """Two encoders of different width, each with its listener."""
    nlp = make_nlp()
    nlp.add_pipe("elmo", name="big", config={"weights": other_weights})
    nlp.add_pipe("tagger", config=tagger({**LISTENER, "upstream": "elmo"}))
    nlp.add_pipe(
        "ner", config={"model": {**NER["model"], "tok2vec": {**LISTENER, "upstream": "big"}}}
    )
    return nlp


def test_two_encoders_in_one_pipeline(two, tmp_path):
    train(two, 6)
    assert list(two.get_pipe("elmo").listener_map) == ["tagger"]
    assert list(two.get_pipe("big").listener_map) == ["ner"]
    for name, width in (("tagger", 16), ("ner", 256)):
        assert mixes(two, name)[0].get_dim("nO") == width
        assert (mixes(two, name)[0].get_param("w") != 0).all()
    # What users see is the last one's, listeners read their own, in any order of calls.
    doc = two(doc_of(two))
    assert doc._.elmo.shape == (4, 256)
    expected = BiLM.load("en_mini").embed([WORDS])[0]
    np.testing.assert_allclose(doc._.elmo_layers, expected, atol=1e-5)
    tags = [t.tag_ for t in doc]
    assert [t.tag_ for t in two(doc)] == tags
    two.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    again = loaded(doc_of(loaded))
    assert [t.tag_ for t in again] == tags and [str(e) for e in again.ents] == [
        str(e) for e in doc.ents
    ]
    assert len(again.to_bytes()) > again._.elmo_layers.nbytes


def test_a_listener_that_could_hear_two_has_to_choose(make_nlp, weights):
    nlp = make_nlp()
    nlp.add_pipe("elmo", name="second", config={"weights": weights})
    nlp.add_pipe("tagger", config=TAGGER)
    with pytest.raises(ElmoError, match="ELMO-E112.*elmo, second"):
        nlp.initialize(lambda: examples(nlp))


def test_missing_named_upstream_raises(make_nlp):
    nlp = make_nlp()
    nlp.add_pipe("tagger", config=tagger({**LISTENER, "upstream": "other"}))
    with pytest.raises(ElmoError, match="ELMO-E108.*'other'"):
        nlp.initialize(lambda: examples(nlp))


def test_listener_before_its_encoder_raises(make_nlp):
    nlp = make_nlp()
    nlp.add_pipe("tagger", config=TAGGER, before="elmo")
    with pytest.raises(ElmoError, match="ELMO-E108"):
        nlp.initialize(lambda: examples(nlp))


def test_excluded_and_disabled_encoder_raises_when_loaded(make_nlp, tmp_path):
    nlp = make_nlp("tagger")
    train(nlp, 2)
    nlp.to_disk(tmp_path / "nlp")
    for how in ({"exclude": ["elmo"]}, {"disable": ["elmo"]}):
        loaded = spacy.load(tmp_path / "nlp", **how)
        with pytest.raises(ElmoError, match="ELMO-E108"):
            loaded("She saw Paris .")
    # Without the task the encoder works alone, and the other way round after enabling it.
    assert spacy.load(tmp_path / "nlp", exclude=["tagger"])("a")._.elmo.shape == (1, 16)
    loaded = spacy.load(tmp_path / "nlp", disable=["elmo"])
    loaded.enable_pipe("elmo")
    assert loaded(doc_of(loaded))[0].tag_ == nlp(doc_of(nlp))[0].tag_


def test_beside_tok2vec(make_nlp):
    """spaCy's own encoder and listeners go on as they do without ELMo."""
    nlp = make_nlp("ner")
    nlp.add_pipe("tok2vec", first=True)
    nlp.add_pipe("tagger", config=tagger(TOK2VEC_LISTENER))
    history = train(nlp, 10)
    assert nlp.get_pipe("elmo").listening_components == ["ner"]
    assert nlp.get_pipe("tok2vec").listening_components == ["tagger"]
    assert history[-1]["tagger"] < history[0]["tagger"]
    assert history[-1]["ner"] < history[0]["ner"]
    assert nlp(doc_of(nlp))._.elmo.shape == (4, 16)


class OtherEncoder:
    """An encoder of another plugin, by the protocol of spaCy's listeners as transformers have it.

    What it gives for a token is the width of its text, and whether it begins in upper case.
    """

    def __init__(self, name):
        self.name, self.model, self.listener_map = name, None, {}

    listeners = property(lambda self: sum(self.listener_map.values(), []))
    listening_components = property(lambda self: list(self.listener_map))

    def add_listener(self, listener, name):
        self.listener_map.setdefault(name, []).append(listener)

    def remove_listener(self, listener, name):
        self.listener_map[name].remove(listener)

    def find_listeners(self, component):
        for node in getattr(getattr(component, "model", None), "walk", list)():
            if node.name == "other_listener":
                self.add_listener(node, component.name)

    def update(self, examples, **_):
        for eg in examples:
            self(eg.predicted)

    def __call__(self, doc):
        features = [[len(t), t.is_title] for t in doc]
        doc.user_data["other"] = np.array(features, "float32").reshape(-1, 2)
        return doc


@Language.factory("other_encoder")
def make_other_encoder(nlp, name):
    return OtherEncoder(name)


@spacy.registry.architectures("tests.OtherListener.v1")
def build_other_listener():
    def forward(model, docs, is_train):
        nothing = np.zeros((0, 2), "float32")
        return [doc.user_data.get("other", nothing) for doc in docs], lambda gradients: []

    return Model("other_listener", forward, dims={"nO": 2})


def test_beside_listeners_of_other_plugins(make_nlp, tmp_path):
    nlp = make_nlp("tagger")
    nlp.add_pipe("other_encoder", first=True)
    other = tagger({"@architectures": "tests.OtherListener.v1"})
    nlp.add_pipe("tagger", name="other_tagger", config=other)
    assert isinstance(nlp.get_pipe("other_encoder"), ListenedToComponent)
    history = train(nlp, 20)
    assert history[-1]["tagger"] < history[0]["tagger"]
    assert history[-1]["other_tagger"] < history[0]["other_tagger"]
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    for pipeline in (nlp, loaded):
        for encoder, name, node in (
            ("elmo", "tagger", "elmo_listener"),
            ("other_encoder", "other_tagger", "other_listener"),
        ):
            walked = list(pipeline.get_pipe(name).model.walk())
            found = pipeline.get_pipe(encoder).listener_map
            assert list(found) == [name]
            assert [id(n) for n in found[name]] == [id(n) for n in walked if n.name == node]
            assert len(found[name]) == 1
    # Each has an influence of its own: without one of the taggers the other goes on as before.
    for rest in ("tagger", "other_tagger"):
        with nlp.select_pipes(disable=[rest]):
            expected = [t.tag_ for t in nlp(doc_of(nlp))]
        with loaded.select_pipes(disable=[rest]):
            assert [t.tag_ for t in loaded(doc_of(loaded))] == expected


CONFIG = """
[nlp]
lang = "en"
pipeline = ["elmo", "tagger", "ner"]

[components]

[components.elmo]
{elmo}

[components.tagger]
source = "{path}/first"
{replace}

[components.ner]
factory = "ner"

[components.ner.model]
@architectures = "spacy.TransitionBasedParser.v2"
state_type = "ner"
extra_state_tokens = false
hidden_width = 16
maxout_pieces = 2
use_upper = false

[components.ner.model.tok2vec]
@architectures = "spacy-elmo.ElmoListener.v1"

[corpora]

[corpora.train]
@readers = "spacy.Corpus.v1"
path = "{path}/train.spacy"

[corpora.dev]
@readers = "spacy.Corpus.v1"
path = "{path}/train.spacy"

[training]
max_steps = 4
eval_frequency = 2
{training}
"""


@pytest.mark.parametrize("elmo", ["source", "factory"])
@pytest.mark.parametrize(
    ("replace", "training"),
    [
        ("", ""),
        ("", 'frozen_components = ["tagger"]'),
        ("", 'frozen_components = ["elmo", "tagger"]\nannotating_components = ["elmo"]'),
        ("", 'frozen_components = ["elmo", "tagger"]'),
        ('replace_listeners = ["model.tok2vec"]', 'frozen_components = ["tagger"]'),
    ],
)
def test_training_loop_with_sourced_and_frozen_components(
    make_nlp, weights, tmp_path, elmo, replace, training
):
    from spacy.tokens import DocBin
    from spacy.training.loop import train as train_loop

    first = make_nlp("tagger")
    train(first, 15)
    first.to_disk(tmp_path / "first")
    DocBin(docs=[eg.reference for eg in examples(first)]).to_disk(tmp_path / "train.spacy")
    how = f'source = "{tmp_path}/first"'
    if elmo == "factory":
        how = f'factory = "elmo"\nweights = "{weights}"'
    text = CONFIG.format(path=tmp_path, elmo=how, replace=replace, training=training)
    nlp = init_nlp(DEFAULT_CONFIG.merge(Config().from_str(text)))
    (tmp_path / "out").mkdir()
    if '"elmo", "tagger"' in training and "annotating" not in training:
        with pytest.raises(ElmoError, match="ELMO-E107.*frozen_components.*annotating_components"):
            train_loop(nlp, tmp_path / "out")
        return
    train_loop(nlp, tmp_path / "out")
    trained = spacy.load(tmp_path / "out" / "model-last")
    assert (mixes(trained, "ner")[0].get_param("w") != 0).all()
    expected = [t.tag_ for t in first(doc_of(first))]
    if training:
        assert [t.tag_ for t in trained(doc_of(trained))] == expected
    own = [n for n in trained.get_pipe("tagger").model.walk() if n.name == "elmo_encoder"]
    assert len(own) == bool(replace)


def test_frozen_encoder_that_does_not_annotate_is_explained(make_nlp):
    nlp = make_nlp("tagger")
    optimizer = nlp.initialize(lambda: examples(nlp))
    with pytest.raises(ElmoError, match="ELMO-E107.*annotating_components"):
        nlp.update(examples(nlp), exclude=["elmo"], sgd=optimizer)


def test_not_excluded_and_annotating(make_nlp):
    """Named as annotating without need: works, and the cache spares the second run."""
    nlp = make_nlp("tagger")
    optimizer = nlp.initialize(lambda: examples(nlp))
    for _ in range(2):
        nlp.update(examples(nlp), annotates=["elmo"], sgd=optimizer)
    assert nlp.get_pipe("elmo").cache.misses == 3
    assert (mixes(nlp, "tagger")[0].get_param("w") != 0).all()


@pytest.mark.parametrize("store", ["vectors", "none"])
def test_layers_stay_for_listeners_that_are_disabled_when_loaded(make_nlp, tmp_path, store):
    nlp = make_nlp("tagger", store=store)
    train(nlp, 5)
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp", disable=["tagger"])
    assert loaded.get_pipe("elmo").listener_map == {}
    loaded.enable_pipe("tagger")
    assert [t.tag_ for t in loaded(doc_of(loaded))] == [t.tag_ for t in nlp(doc_of(nlp))]
    # It can be trained, too.
    (mix,) = mixes(loaded, "tagger")
    before = mix.get_param("w").copy()
    optimizer = loaded.resume_training()
    for _ in range(2):
        loaded.update(examples(loaded), sgd=optimizer)
    assert (mix.get_param("w") != before).any()
    # Where there is no listener, docs stay small.
    alone = spacy.load(tmp_path / "nlp", exclude=["tagger"])
    assert alone(doc_of(alone))._.elmo_layers is None


@pytest.mark.parametrize("store", ["vectors", "none"])
def test_layers_stay_for_listeners_of_a_pipeline_that_was_sourced_from(make_nlp, store):
    nlp = make_nlp("tagger", store=store)
    train(nlp, 5)
    expected = [t.tag_ for t in nlp(doc_of(nlp))]
    other = spacy.blank("en")
    other.add_pipe("elmo", source=nlp)
    assert nlp.get_pipe("elmo").listener_map == {}
    assert [t.tag_ for t in nlp(doc_of(nlp))] == expected
    nlp.update(examples(nlp), sgd=nlp.resume_training())
    copies = pickle.loads(pickle.dumps(nlp)), copy.deepcopy(nlp)
    for again in copies:
        assert again(doc_of(again))[0].tag_


def test_docs_are_small_again_without_the_last_listener(make_nlp):
    nlp = make_nlp("tagger", "ner", store="vectors")
    train(nlp, 2)
    nlp.replace_listeners("elmo", "ner", ["model.tok2vec"])
    assert nlp(doc_of(nlp))._.elmo_layers is not None
    nlp.remove_pipe("tagger")
    gc.collect()
    assert nlp(doc_of(nlp))._.elmo_layers is None
