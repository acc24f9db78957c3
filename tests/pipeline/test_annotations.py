"""What the component puts on docs, on the public path."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_elmo.bilm import BiLM, engine
from spacy_elmo.errors import ElmoError
from spacy_elmo.pipeline import Elmo

TEXT = "She sat by the bank of the river. He robbed a bank!\n\n Fine"


def test_works_at_once_without_initialize(make_nlp, weights):
    doc = make_nlp()(TEXT)
    width = 16
    assert doc._.elmo_layers.shape == (3, len(doc), width)
    assert doc._.elmo.shape == (len(doc), width)
    assert doc[2:5]._.elmo.shape == (3, width)
    assert doc[4]._.elmo.shape == (width,)
    np.testing.assert_allclose(doc._.elmo, doc._.elmo_layers.mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(doc[2:5]._.elmo[1], doc[3]._.elmo)
    # The same as the encoder by itself, sentence by sentence, whitespace left out.
    sentences = [
        [t.text for t in doc[a:b] if not t.is_space] for a, b in ((0, 9), (9, 15), (15, len(doc)))
    ]
    expected = np.concatenate(BiLM.load(weights).embed(sentences), axis=1)
    words = [t.i for t in doc if not t.is_space]
    np.testing.assert_allclose(doc._.elmo_layers[:, words], expected, atol=1e-5)
    spaces = [t.i for t in doc if t.is_space]
    assert spaces and not doc._.elmo_layers[:, spaces].any()


def test_built_in_weights_are_the_default():
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    doc = nlp("the bank of the river")
    np.testing.assert_allclose(
        doc._.elmo_layers, BiLM.load("en_mini").embed([[t.text for t in doc]])[0], atol=1e-5
    )


@pytest.mark.parametrize(("text", "n"), [("", 0), ("   ", 1), ("a", 1), ("\n\n", 1)])
def test_empty_and_whitespace_docs(make_nlp, text, n):
    doc = make_nlp()(text)
    assert doc._.elmo_layers.shape == (3, n, 16)
    assert doc._.elmo.shape == (n, 16)


def test_same_vectors_alone_in_pipe_and_again(make_nlp):
    nlp = make_nlp(cache_mb=0)
    texts = [TEXT, "", "A dog.", "The very long road goes on and on and never ends.", "A dog."]
    alone = [nlp(text)._.elmo_layers for text in texts]
    for size in (1, 2, 5):
        for doc, expected in zip(nlp.pipe(texts, batch_size=size), alone):
            np.testing.assert_allclose(doc._.elmo_layers, expected, atol=1e-5)
    np.testing.assert_array_equal(nlp(TEXT)._.elmo_layers, alone[0])


@pytest.mark.parametrize("store", ["layers", "vectors"])
def test_annotations_survive_bytes_and_docbin(make_nlp, store):
    nlp = make_nlp(store=store)
    doc = nlp(TEXT)
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    np.testing.assert_array_equal(again._.elmo, doc._.elmo)
    data = DocBin(docs=[doc], store_user_data=True).to_bytes()
    (loaded,) = DocBin().from_bytes(data).get_docs(nlp.vocab)
    np.testing.assert_array_equal(loaded[4]._.elmo, doc[4]._.elmo)
    assert (doc._.elmo_layers is None) == (store == "vectors")


def test_store_none_keeps_nothing_and_says_so(make_nlp):
    doc = make_nlp(store="none")(TEXT)
    with pytest.raises(ElmoError, match="ELMO-E103"):
        doc._.elmo  # noqa: B018


def test_own_mix(make_nlp):
    layers = make_nlp()(TEXT)._.elmo_layers
    np.testing.assert_allclose(make_nlp(mix="top")(TEXT)._.elmo, layers[-1], atol=1e-6)
    mixed = make_nlp(mix=[0.5, 0.0, 2.0])(TEXT)._.elmo
    np.testing.assert_allclose(mixed, 0.5 * layers[0] + 2 * layers[2], atol=1e-5)
    with pytest.raises(ElmoError, match="ELMO-E004"):
        make_nlp(mix=[1.0])(TEXT)


def test_retokenised_docs_raise(make_nlp):
    nlp = make_nlp()
    doc = nlp(TEXT)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    for read in (lambda: doc._.elmo, lambda: doc._.elmo_layers, lambda: doc[1]._.elmo):
        with pytest.raises(ElmoError, match="ELMO-E102"):
            read()
    assert nlp.get_pipe("elmo")(doc)._.elmo.shape == (len(doc), 16)


def test_split_tokens_raise(make_nlp):
    doc = make_nlp()("LosAngeles is big")
    with doc.retokenize() as retokenizer:
        retokenizer.split(doc[0], ["Los", "Angeles"], heads=[(doc[0], 1), doc[1]])
    with pytest.raises(ElmoError, match="ELMO-E102"):
        doc[0:2]._.elmo  # noqa: B018


def test_long_doc(make_nlp):
    """50,000 tokens; the rows are those of the sentences alone."""
    nlp = make_nlp(cache_mb=0)
    words = [f"word{i % 50}" if i % 25 else "." for i in range(1, 50_001)]
    doc = nlp(Doc(nlp.vocab, words=words))
    assert doc._.elmo_layers.shape == (3, 50_000, 16) and np.isfinite(doc._.elmo).all()
    alone = nlp(Doc(nlp.vocab, words=words[40_000:40_025]))
    np.testing.assert_allclose(doc[40_000:40_025]._.elmo, alone._.elmo, atol=1e-5)


def test_doc_cleaner_frees_the_memory(make_nlp):
    nlp = make_nlp()
    nlp.add_pipe("doc_cleaner", config={"attrs": {"_.elmo_layers": None}})
    doc = nlp(TEXT)
    assert doc._.elmo_layers is None and not doc.user_data
    with pytest.raises(ElmoError, match="ELMO-E116"):
        doc._.elmo_layers = np.zeros((3, len(doc), 16))


def test_copies_have_vectors_of_their_own(make_nlp):
    doc = make_nlp()(TEXT)
    copy = doc.copy()
    copy._.elmo_layers[:] = 0
    assert doc._.elmo.any() and not copy._.elmo.any()


def test_arrays_belong_to_the_doc(make_nlp):
    """What a user writes into them reaches neither the cache nor other docs."""
    nlp = make_nlp()
    first, expected = nlp(TEXT), nlp(TEXT)._.elmo_layers.copy()
    assert first._.elmo_layers.flags.c_contiguous and first._.elmo.flags.c_contiguous
    first._.elmo_layers[:] = 0
    np.testing.assert_array_equal(nlp(TEXT)._.elmo_layers, expected)


def test_hooks(make_nlp):
    nlp = make_nlp(hooks=True)
    doc, other = nlp("the cat sat\n"), nlp("dogs run")
    words = doc._.elmo[:3]
    np.testing.assert_allclose(doc.vector, words.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(doc[1:3].vector, words[1:].mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(doc[1].vector, words[1])
    assert doc.has_vector and doc[1].has_vector and not doc[3].has_vector
    cosine = doc.vector @ other.vector
    cosine /= np.linalg.norm(doc.vector) * np.linalg.norm(other.vector)
    assert doc.similarity(other) == pytest.approx(cosine, abs=1e-5)
    assert not make_nlp()("the cat").user_hooks


def test_memory_zone(make_nlp):
    nlp = make_nlp()
    expected = nlp("Zyxo went away .")._.elmo
    with nlp.memory_zone():
        np.testing.assert_array_equal(nlp("Zyxo went away .")._.elmo, expected)
    np.testing.assert_array_equal(nlp("Zyxo went away .")._.elmo, expected)


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("E104", {"store": "all"}),
        ("E104", {"mix": "bottom"}),
        ("E180", {"max_batch_tokens": 0}),
        ("E180", {"max_batch_tokens": -5}),
        ("E180", {"cache_mb": -1.0}),
        ("E180", {"cache_file_mb": -0.5}),
        ("E180", {"learn_rate_factor": -1.0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(make_nlp, code, settings):
    (name,) = settings
    with pytest.raises(ElmoError, match=f"ELMO-{code}.*{name}"):
        make_nlp(**settings)


@pytest.mark.parametrize(
    "architecture",
    [
        {
            "@architectures": "spacy.HashEmbedCNN.v2",
            "width": 8,
            "depth": 1,
            "embed_size": 10,
            "window_size": 1,
            "maxout_pieces": 2,
            "subword_features": False,
            "pretrained_vectors": None,
        },
        {"@architectures": "spacy-elmo.ElmoListener.v1"},
        {"@architectures": "spacy-elmo.ElmoTok2Vec.v1"},
    ],
    ids=lambda a: a["@architectures"],
)
def test_another_architecture_is_refused(make_nlp, architecture):
    with pytest.raises(ElmoError, match="ELMO-E181.*ElmoEncoder.v1"):
        make_nlp(model=architecture)


@pytest.mark.parametrize(("limit", "n_batches"), [(1, 6), (14, 4), (4096, 1)])
def test_tokens_of_a_batch_are_bounded(make_nlp, monkeypatch, limit, n_batches):
    """By what the biLM is asked for, and what it makes of that; vectors are the same."""
    texts = [TEXT, "A dog .", "", "He went to the bank and back .", "Yes ."]
    expected = [doc._.elmo_layers for doc in make_nlp(cache_mb=0).pipe(texts)]
    asked, batches, embed, pack = [], [], BiLM.embed, engine.pack

    def spy(self, sentences, **kwargs):
        asked.append(kwargs["batch_tokens"])
        return embed(self, sentences, **kwargs)

    monkeypatch.setattr(BiLM, "embed", spy)
    monkeypatch.setattr(engine, "pack", lambda sizes: batches.append(sizes) or pack(sizes))
    docs = list(make_nlp(cache_mb=0, max_batch_tokens=limit).pipe(texts))
    for doc, layers in zip(docs, expected):
        np.testing.assert_allclose(doc._.elmo_layers, layers, atol=1e-5)
    assert set(asked) == {limit} and len(batches) == n_batches
    assert all(len(sizes) == 1 or sum(sizes) <= limit for sizes in batches)


def test_layers_in_memory_are_bounded_by_tokens_not_by_docs(make_nlp, monkeypatch):
    """spaCy hands on a thousand docs at a time, however long they are."""
    encoded, predict = [], Elmo.predict

    def spy(self, docs):
        encoded.append([len(doc) for doc in docs])
        return predict(self, docs)

    texts = ["a dog ran . " * 5] * 12 + ["a dog ran . " * 50] + ["Yes ."] * 3
    expected = [doc._.elmo for doc in make_nlp().pipe(texts)]
    monkeypatch.setattr(Elmo, "predict", spy)
    docs = list(make_nlp(max_batch_tokens=16, store="vectors").pipe(texts))
    assert [doc.text for doc in docs] == texts
    for doc, vectors in zip(docs, expected):
        np.testing.assert_allclose(doc._.elmo, vectors, atol=1e-5)
    # Three of twenty tokens; the long one alone; what follows together.
    assert encoded == [[20] * 3] * 4 + [[200], [2] * 3]


def test_weights_that_carry_states_start_from_a_fixed_one(make_nlp, weights, tmp_path):
    """The published programs' way is not to be had in a pipeline: same text, same vectors."""
    BiLM.load(weights, initial_state="carry").save(tmp_path / "carry")
    nlp = make_nlp(weights=str(tmp_path / "carry"), cache_mb=0)
    first, between, again = nlp(TEXT), nlp("A dog ."), nlp(TEXT)
    assert len(between)
    np.testing.assert_array_equal(again._.elmo_layers, first._.elmo_layers)
    primed = BiLM.load(weights, initial_state="primed")
    sentence = [t.text for t in between]
    np.testing.assert_allclose(between._.elmo_layers, primed.embed([sentence])[0], atol=1e-5)
    # Saved, it stays that way, and the user's own model is as it was.
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    assert loaded.get_pipe("elmo").bilm.config.initial_state == "primed"
    assert BiLM.load(tmp_path / "carry").config.initial_state == "carry"
