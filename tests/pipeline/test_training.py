"""Listeners: they learn their own mix, the biLM learns only if it is told to."""

import numpy as np
import pytest

from spacy_elmo.errors import ElmoError

from .conftest import LISTENER, TAGGER, examples, mixes, train


@pytest.mark.parametrize("name", ["tagger", "ner"])
def test_listener_learns_its_mix_and_the_task(make_nlp, name):
    nlp = make_nlp(name)
    before = {k: t.clone() for k, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    history = train(nlp, 40)
    (mix,) = mixes(nlp, name)
    # L + 2 numbers learn: a weight for each layer, and gamma.
    assert mix.get_param("w").shape == (3,) and mix.get_param("gamma").shape == (1,)
    assert (mix.get_param("w") != 0).all() and mix.get_param("gamma")[0] != 1
    assert history[-1][name] < 0.5 * history[0][name]
    after = nlp.get_pipe("elmo").bilm.state_dict()
    assert all((after[k] == before[k]).all() for k in before)


def test_frozen_encoder_runs_once_a_sentence(make_nlp, monkeypatch):
    nlp = make_nlp("tagger")
    encoder = nlp.get_pipe("elmo").bilm
    seen = []
    monkeypatch.setattr(
        encoder, "embed", lambda s, **kw: seen.extend(s) or type(encoder).embed(encoder, s, **kw)
    )
    train(nlp, 5)
    assert len(seen) == 3
    assert nlp.get_pipe("elmo").cache.hits == 12


def test_cache_file_is_shared_between_runs(make_nlp, tmp_path):
    path = str(tmp_path / "cache.sqlite")
    first, second = (make_nlp(cache_path=path) for _ in range(2))
    expected = first("She saw Paris .")._.elmo_layers
    found = second("She saw Paris .")._.elmo_layers
    np.testing.assert_array_equal(found, expected)
    assert second.get_pipe("elmo").cache.file_hits == 1
    assert second.get_pipe("elmo").cache.misses == 0


def test_cache_is_bounded(make_nlp):
    nlp = make_nlp(cache_mb=0.002)
    for i in range(50):
        nlp(f"sentence number {i}")
    assert 0 < nlp.get_pipe("elmo").cache.n_bytes <= 0.002 * 2**20


def test_same_seed_same_result(make_nlp):
    results = []
    for _ in range(2):
        nlp = make_nlp("tagger", "ner")
        train(nlp, 6, drop=0.2)
        results.append([mixes(nlp, name)[0].get_param("w") for name in ("tagger", "ner")])
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("excluded", [[], ["ner"], ["tagger"]])
def test_trainable_encoder_learns_from_every_listener(make_nlp, excluded):
    nlp = make_nlp("tagger", "ner", trainable=True)
    bilm = nlp.get_pipe("elmo").bilm
    before = {k: t.clone() for k, t in bilm.state_dict().items()}
    train(nlp, 6, exclude=excluded)
    after = bilm.state_dict()
    moved = [k for k in before if not (after[k] == before[k]).all()]
    assert set(moved) == set(before)


def test_learn_rate_factor_zero_keeps_the_encoder(make_nlp):
    nlp = make_nlp("tagger", trainable=True, learn_rate_factor=0.0)
    bilm = nlp.get_pipe("elmo").bilm
    before = bilm.token_encoder.char_embedding.detach().clone()
    train(nlp, 4)
    np.testing.assert_array_equal(bilm.token_encoder.char_embedding.detach(), before)


def test_missing_upstream_raises_and_never_gives_zeros(make_nlp):
    nlp = make_nlp("tagger")
    train(nlp, 2)
    with nlp.select_pipes(disable=["elmo"]), pytest.raises(ElmoError, match="ELMO-E108"):
        nlp("She saw Paris .")
    with pytest.raises(ElmoError, match="ELMO-E107"):
        nlp.update(examples(nlp), exclude=["elmo"], sgd=nlp.create_optimizer())


def test_frozen_and_annotating_feeds_listeners_from_the_docs(make_nlp):
    nlp = make_nlp("tagger")
    optimizer = nlp.initialize(lambda: examples(nlp))
    losses = {}
    for _ in range(2):
        nlp.update(
            examples(nlp), exclude=["elmo"], annotates=["elmo"], sgd=optimizer, losses=losses
        )
    assert losses["tagger"] > 0
    assert (mixes(nlp, "tagger")[0].get_param("w") != 0).all()


def test_wrong_width_is_found_when_linked(make_nlp):
    nlp = make_nlp()
    listener = {**LISTENER, "width": 99}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": listener}})
    with pytest.raises(ElmoError, match="ELMO-E109"):
        nlp.initialize(lambda: examples(nlp))
