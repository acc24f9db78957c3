"""`ConcatEmbed.v1`: ELMo beside a task's own embedding, and again at the output of its encoder."""

import numpy as np
import pytest
import spacy
from spacy.training import Example

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import ElmoError
from spacy_elmo.layers.tok2vec import build_concat_embed_v1, build_elmo_tok2vec_v1

from .conftest import LISTENER, examples, mixes, train

EMBED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 8,
    "attrs": ["NORM", "SHAPE"],
    "rows": [50, 50],
    "include_static_vectors": False,
}
ENCODE = {
    "@architectures": "spacy.MaxoutWindowEncoder.v2",
    "width": 12,
    "depth": 1,
    "window_size": 1,
    "maxout_pieces": 2,
}
CONCAT = {
    "@architectures": "spacy-elmo.ConcatEmbed.v1",
    "width": 12,
    "elmo": {**LISTENER, "init_weights": [0.1, 0.2, 0.3], "dropout": 0.1},
    "embed": EMBED,
    "encode": ENCODE,
    "output_mix": True,
}
INNER = {**CONCAT, "encode": None, "output_mix": False}
ARCHITECTURES = {
    "output": (CONCAT, 12 + 16),
    "input": ({**CONCAT, "output_mix": False}, 12),
    "in Tok2Vec.v2": (
        {"@architectures": "spacy.Tok2Vec.v2", "embed": INNER, "encode": ENCODE},
        12,
    ),
}


def make(make_nlp, tok2vec, **settings):
    nlp = make_nlp(**settings)
    model = {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}
    nlp.add_pipe("tagger", config={"model": model})
    return nlp


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_widths_and_mixes_learn(make_nlp, name, tmp_path):
    config, width = ARCHITECTURES[name]
    nlp = make(make_nlp, config)
    train(nlp, 4)
    found = mixes(nlp, "tagger")
    assert len(found) == (2 if name == "output" else 1)
    start = np.array([0.1, 0.2, 0.3], "float32")
    for mix in found:
        assert mix.attrs["mix_dropout"] == 0.1
        assert (mix.get_param("w") != start).all() and mix.get_param("gamma")[0] != 1
    if name == "output":
        assert (found[0].get_param("w") != found[1].get_param("w")).any()
    tok2vec = nlp.get_pipe("tagger").model.get_ref("tok2vec")
    assert tok2vec.get_dim("nO") == width
    docs = [nlp("She saw Paris ."), nlp("")]
    assert [v.shape for v in tok2vec.predict(docs)] == [(4, width), (0, width)]
    # Saved and loaded: the same.
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp").get_pipe("tagger").model.get_ref("tok2vec")
    np.testing.assert_array_equal(loaded.predict(docs)[0], tok2vec.predict(docs)[0])


def test_output_holds_the_second_mix(make_nlp):
    """The last columns are a mix of the layers, by the second mix's own numbers."""
    nlp = make(make_nlp, CONCAT)
    train(nlp, 4)
    doc = nlp("She saw Paris .")
    vectors = nlp.get_pipe("tagger").model.get_ref("tok2vec").predict([doc])[0]
    mix = mixes(nlp, "tagger")[1]
    w = np.exp(mix.get_param("w"))
    expected = mix.get_param("gamma")[0] * np.tensordot(w / w.sum(), doc._.elmo_layers, axes=1)
    np.testing.assert_allclose(vectors[:, 12:], expected, atol=1e-5)


def test_gradients_agree_with_finite_differences(weights):
    """Of both mixes, of the layer behind the join, and of the encoder, which both mixes reach."""
    nlp = spacy.blank("en")
    docs = [nlp.make_doc("She saw Paris"), nlp.make_doc(""), nlp.make_doc("Go !")]
    elmo = build_elmo_tok2vec_v1(weights, init_weights=[0.3, -0.2, 0.5])
    resolve = spacy.registry.resolve
    built = resolve({"embed": EMBED, "encode": ENCODE})
    model = build_concat_embed_v1(12, elmo, **built, output_mix=True)
    model.initialize(X=docs)
    encoder = elmo.layers[0]
    encoder.attrs["trainable"] = True
    directions = [
        np.random.default_rng(1).normal(size=(len(d), 28)).astype("float32") for d in docs
    ]

    def loss():
        outputs, _ = model(docs, is_train=True)
        return sum(float((y.astype("float64") * d).sum()) for y, d in zip(outputs, directions))

    _, backprop = model.begin_update(docs)
    backprop([d.copy() for d in directions])
    first, second = (n for n in model.walk() if n.name == "elmo_scalar_mix")
    maxout = next(n for n in model.walk() if n.name == "maxout")
    bilm = encoder.shims[0].bilm
    projection = bilm.token_encoder.projection.weight
    checked = [(m.get_param(k), m.get_grad(k)) for m in (first, second) for k in ("w", "gamma")]
    checked.append((maxout.get_param("W"), maxout.get_grad("W")))
    checked.append((projection.detach().numpy(), projection.grad.numpy().copy()))
    for values, gradient in checked:
        indices = list(np.ndindex(values.shape))
        for index in indices[:: max(1, len(indices) // 6)]:
            kept, step = float(values[index]), 3e-3
            values[index] = kept + step
            above = loss()
            values[index] = kept - step
            below = loss()
            values[index] = kept
            slope = (above - below) / (2 * step)
            assert gradient[index] == pytest.approx(slope, rel=3e-2, abs=3e-2)


def test_trainable_encoder_learns_through_both_mixes(make_nlp):
    nlp = make(make_nlp, CONCAT, trainable=True)
    before = {k: t.clone() for k, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    train(nlp, 4)
    after = nlp.get_pipe("elmo").bilm.state_dict()
    assert all((after[k] != before[k]).any() for k in before)


def test_encoder_runs_once_for_both_mixes(make_nlp, monkeypatch):
    nlp = make(make_nlp, CONCAT, cache_mb=0)
    train(nlp, 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec.elmo"])
    nlp.remove_pipe("elmo")
    assert len(mixes(nlp, "tagger")) == 2
    seen, embed = [], BiLM.embed
    monkeypatch.setattr(BiLM, "embed", lambda self, s, **kw: seen.extend(s) or embed(self, s, **kw))
    nlp("She saw Paris .")
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (CONCAT, "model.tok2vec.elmo"),
        (ARCHITECTURES["in Tok2Vec.v2"][0], "model.tok2vec.embed.elmo"),
    ],
)
def test_replaced_listeners_are_saved_and_loaded(make_nlp, tmp_path, weights, config, path):
    nlp = make(make_nlp, config)
    train(nlp, 4)
    doc = nlp("She saw Paris .")
    expected = nlp.get_pipe("tagger").model.predict([doc])[0]
    nlp.replace_listeners("elmo", "tagger", [path])
    again = nlp.get_pipe("tagger").model.predict([doc])[0]
    np.testing.assert_allclose(again, expected, atol=1e-5)
    nlp.remove_pipe("elmo")
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    again = loaded.get_pipe("tagger").model.predict([doc])[0]
    np.testing.assert_allclose(again, expected, atol=1e-5)
    # The config says where the weights came from, for a training from scratch.
    section = loaded.config["components"]["tagger"]
    for part in path.split("."):
        section = section[part]
    assert section["weights"] == weights and section["dropout"] == 0.1


def test_static_vectors(make_nlp):
    nlp = make(make_nlp, {**CONCAT, "include_static_vectors": True})
    with pytest.raises(ElmoError, match="ELMO-E115"):
        nlp.initialize(lambda: examples(nlp))
    nlp = make(make_nlp, {**CONCAT, "include_static_vectors": True})
    rng = np.random.default_rng(0)
    for word in ("She", "Paul", "Paris", "saw"):
        nlp.vocab.set_vector(word, rng.normal(size=6).astype("float32"))
    optimizer = nlp.initialize(lambda: examples(nlp))
    static = next(n for n in nlp.get_pipe("tagger").model.walk() if n.name == "static_vectors")
    before = static.get_param("W").copy()
    for _ in range(2):
        nlp.update(examples(nlp), sgd=optimizer)
    assert static.get_dim("nM") == 6 and (static.get_param("W") != before).any()


def test_static_vectors_of_empty_docs(make_nlp):
    nlp = make(make_nlp, {**CONCAT, "include_static_vectors": True})
    nlp.vocab.set_vector("She", np.ones(6, "float32"))
    optimizer = nlp.initialize(lambda: examples(nlp))
    assert [len(doc) for doc in nlp.pipe(["", "", "She saw"])] == [0, 0, 2]
    assert [len(doc) for doc in nlp.pipe(["", ""])] == [0, 0]
    tok2vec = nlp.get_pipe("tagger").model.get_ref("tok2vec")
    empty = [nlp.get_pipe("elmo")(nlp.make_doc("")) for _ in range(2)]
    assert [y.shape for y in tok2vec.predict(empty)] == [(0, tok2vec.get_dim("nO"))] * 2
    for batch in (empty, [*empty, nlp.make_doc("She saw")]):
        nlp.update([Example(doc, doc.copy()) for doc in batch], sgd=optimizer)


def test_settings_that_do_not_go_together_are_refused(make_nlp):
    with pytest.raises(ElmoError, match="ELMO-E113"):
        make(make_nlp, {**CONCAT, "encode": None})
    hash_embed = {**EMBED, "width": 12}
    with pytest.raises(ElmoError, match="ELMO-E114"):
        make(make_nlp, {**CONCAT, "elmo": hash_embed})
