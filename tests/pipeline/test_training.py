"""Listeners: they learn their own mix, the biLM learns only if it is told to."""

import copy
import pickle

import numpy as np
import pytest
from spacy.training import Example
from thinc.api import Adam

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


@pytest.mark.parametrize("trainable", [False, True])
def test_same_seed_same_result_bit_for_bit(make_nlp, trainable):
    results = []
    for _ in range(2):
        nlp = make_nlp("tagger", "ner", trainable=trainable)
        history = train(nlp, 4, drop=0.2)
        bilm = nlp.get_pipe("elmo").bilm
        weights = b"".join(t.numpy().tobytes() for t in bilm.state_dict().values())
        models = [nlp.get_pipe(name).model.to_bytes() for name in ("tagger", "ner")]
        results.append((history, weights, models, nlp("She saw Paris .")._.elmo.tobytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("excluded", [[], ["ner"], ["tagger"]])
def test_trainable_encoder_learns_from_every_listener(make_nlp, excluded):
    nlp = make_nlp("tagger", "ner", trainable=True)
    before = {k: t.clone() for k, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    train(nlp, 6, exclude=excluded)
    after = nlp.get_pipe("elmo").bilm.state_dict()
    moved = [k for k in before if not (after[k] == before[k]).all()]
    assert set(moved) == set(before)


@pytest.mark.parametrize("stage", ["blank", "trained"])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda nlp: pickle.loads(pickle.dumps(nlp))], ids=["copy", "pickle"]
)
def test_trainable_encoder_goes_on_learning_in_a_copy(make_nlp, copied, stage):
    nlp = make_nlp("tagger", "ner", trainable=True)
    if stage == "trained":
        train(nlp, 3)
    kept = {k: t.clone() for k, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    new = copied(nlp)
    optimizer = new.resume_training()
    if stage == "blank":
        optimizer = new.initialize(lambda: examples(new))
    before = {k: t.clone() for k, t in new.get_pipe("elmo").bilm.state_dict().items()}
    for _ in range(4):
        new.update(examples(new), sgd=optimizer)
    after = new.get_pipe("elmo").bilm.state_dict()
    assert [k for k in before if (after[k] == before[k]).all()] == []
    # The original is another one.
    now = nlp.get_pipe("elmo").bilm.state_dict()
    assert all((now[k] == kept[k]).all() for k in kept)


def test_gradients_are_accumulated(make_nlp):
    """Two halves of a batch before one step of the optimiser, as one batch: the same gradients."""
    gradients = []
    for parts in (1, 2):
        nlp = make_nlp("tagger", "ner", trainable=True)
        train(nlp, 3)
        bilm, batch = nlp.get_pipe("elmo").bilm, examples(nlp)[:2]
        size = len(batch) // parts
        for i in range(parts):
            nlp.update(batch[i * size : (i + 1) * size], sgd=False)
        nlp.get_pipe("elmo")._pending.flush()
        gradients.append({k: p.grad.clone() for k, p in bilm.named_parameters()})
        assert all(p.grad is not None for p in bilm.parameters())
        for name in ("elmo", "tagger", "ner"):
            nlp.get_pipe(name).finish_update(nlp.create_optimizer())
        assert all(p.grad is None for p in bilm.parameters())
    # The tagger's loss is a sum over tokens, the parser's states depend on the batch: so alike in
    # direction and size, not equal.
    for name, first in gradients[0].items():
        second = gradients[1][name]
        cosine = (first * second).sum() / (first.norm() * second.norm())
        assert cosine > 0.99, name


@pytest.mark.parametrize("n_listeners", [1, 3])
def test_encoder_learns_in_the_step_of_its_listeners(make_nlp, n_listeners):
    """As `spacy train` updates: gradients of a batch, then all components finish, elmo first."""
    nlp = make_nlp(trainable=True)
    names = [f"tagger{i}" for i in range(n_listeners)]
    for name in names:
        nlp.add_pipe("tagger", name=name, config=TAGGER)
    train(nlp, 2)
    elmo = nlp.get_pipe("elmo")
    weight = elmo.bilm.token_encoder.char_embedding

    def gradient(*listening):
        elmo._pending.flush()
        weight.grad = None
        nlp.update(examples(nlp), exclude=[n for n in names if n not in listening], sgd=False)
        elmo._pending.flush()
        return weight.grad.clone()

    each = [gradient(name) for name in names]
    assert all(g.norm() > 0 for g in each)
    np.testing.assert_allclose(gradient(*names), sum(each), rtol=1e-3, atol=1e-6)

    before = weight.detach().clone()
    optimizer = nlp.create_optimizer()
    nlp.update(examples(nlp), sgd=False)
    assert (weight.detach() == before).all()
    for _, component in nlp.pipeline:
        component.finish_update(optimizer)
    assert (elmo.bilm.token_encoder.char_embedding.detach() != before).any()
    assert weight.grad is None


def test_averages_reach_encoder_and_mix(make_nlp):
    nlp = make_nlp("tagger", trainable=True)
    optimizer = Adam(0.01, use_averages=True)
    nlp.initialize(lambda: examples(nlp), sgd=optimizer)
    for _ in range(4):
        nlp.update(examples(nlp), sgd=optimizer)
    nlp.get_pipe("elmo").finish_update(optimizer)
    bilm, (mix,) = nlp.get_pipe("elmo").bilm, mixes(nlp, "tagger")
    now = bilm.token_encoder.char_embedding.detach().clone(), mix.get_param("w").copy()
    with nlp.use_params(optimizer.averages):
        assert (bilm.token_encoder.char_embedding.detach() != now[0]).any()
        assert (mix.get_param("w") != now[1]).any()
    assert (bilm.token_encoder.char_embedding.detach() == now[0]).all()
    np.testing.assert_array_equal(mix.get_param("w"), now[1])


def test_listener_settings_are_independent(make_nlp):
    nlp = make_nlp()
    listener = {**LISTENER, "init_weights": [1.0, 2.0, 3.0], "trainable": False}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": listener}})
    train(nlp, 3)
    (mix,) = mixes(nlp, "tagger")
    np.testing.assert_array_equal(mix.get_param("w"), np.array([1, 2, 3], "float32"))
    assert mix.get_param("gamma")[0] == 1


def test_frozen_listener_trains_a_number_per_layer_and_gamma(make_nlp):
    """Counted on what the optimiser has seen: all else belongs to the task."""
    nlp = make_nlp("tagger")
    optimizer = nlp.initialize(lambda: examples(nlp))
    for _ in range(2):
        nlp.update(examples(nlp), sgd=optimizer)
    output = nlp.get_pipe("tagger").model.get_ref("softmax")
    task = sum(output.get_param(name).size for name in output.param_names)
    seen = sum(moment.size for moment in optimizer.mom1.values())
    assert seen - task == nlp.get_pipe("elmo").bilm.n_layers + 1


@pytest.mark.parametrize("factor", [0.0, 0.1, 1.0])
def test_learn_rate_factor(make_nlp, factor):
    """Adam's first step is the learn rate long, whatever the gradient: so is the encoder's."""
    nlp = make_nlp("tagger", trainable=True, learn_rate_factor=factor)
    optimizer = Adam(0.01, L2=0.0, grad_clip=0.0)
    nlp.initialize(lambda: examples(nlp), sgd=optimizer)
    before = nlp.get_pipe("elmo").bilm.token_encoder.projection.weight.detach().clone()
    # The gradients of the second update arrive when the encoder is finished the next time.
    for _ in range(2):
        nlp.update(examples(nlp), sgd=optimizer)
    (mix,) = mixes(nlp, "tagger")
    nlp.get_pipe("elmo").finish_update(optimizer)
    after = nlp.get_pipe("elmo").bilm.token_encoder.projection.weight.detach()
    step = float((after - before).abs().max())
    assert step == pytest.approx(0.01 * factor, rel=0.6)
    assert mix.get_param("gamma")[0] != 1


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


@pytest.mark.parametrize("text", ["", "\n"])
@pytest.mark.parametrize("trainable", [False, True])
def test_batches_without_any_word(make_nlp, trainable, text):
    nlp = make_nlp("tagger", "ner", trainable=trainable)
    optimizer = nlp.initialize(lambda: examples(nlp))
    nlp.update(examples(nlp), sgd=optimizer)
    before = {k: t.clone() for k, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    empty = [Example(nlp.make_doc(text), nlp.make_doc(text)) for _ in range(3)]
    nlp.update(empty[:1], sgd=optimizer)
    nlp.update(empty, sgd=optimizer)
    if not trainable:
        after = nlp.get_pipe("elmo").bilm.state_dict()
        assert all((after[k] == before[k]).all() for k in before)
    # And the next batch is a batch as ever.
    losses = {}
    nlp.update([*empty, *examples(nlp)], sgd=optimizer, losses=losses)
    nlp.get_pipe("elmo").finish_update(optimizer)
    after = nlp.get_pipe("elmo").bilm.state_dict()
    moved = {k for k in before if (after[k] != before[k]).any()}
    assert moved == (set(before) if trainable else set())
    assert losses["tagger"] > 0 and np.isfinite(list(losses.values())).all()


def test_rehearsal_reads_layers_from_the_docs(make_nlp):
    """`nlp.rehearse` asks tasks alone, in any order, so none can be fed."""
    nlp = make_nlp("tagger")
    train(nlp, 5)
    nlp.resume_training()
    batch = examples(nlp)
    with pytest.raises(ElmoError, match=r"ELMO-E107.*nlp\.rehearse.*get_pipe\('elmo'\)"):
        nlp.rehearse(batch)
    for eg in batch:
        nlp.get_pipe("elmo")(eg.predicted)
    losses = {}
    nlp.rehearse(batch, losses=losses)
    assert "tagger" in losses


def test_a_batch_left_over_is_no_hindrance(make_nlp):
    """Excluded from one update, and fed from the docs in the next."""
    nlp = make_nlp("tagger", "ner")
    optimizer = nlp.initialize(lambda: examples(nlp))
    nlp.update(examples(nlp)[:1], exclude=["tagger"], sgd=optimizer)
    losses = {}
    nlp.update(
        examples(nlp)[1:], exclude=["elmo"], annotates=["elmo"], sgd=optimizer, losses=losses
    )
    assert losses["tagger"] > 0
    nlp.update(examples(nlp)[:1], exclude=["tagger"], sgd=optimizer)
    with pytest.raises(ElmoError, match="ELMO-E106"):
        nlp.update(examples(nlp)[1:], exclude=["elmo"], sgd=optimizer)


def test_wrong_width_is_found_when_linked(make_nlp):
    nlp = make_nlp()
    listener = {**LISTENER, "width": 99}
    nlp.add_pipe("tagger", config={"model": {**TAGGER["model"], "tok2vec": listener}})
    with pytest.raises(ElmoError, match="ELMO-E109"):
        nlp.initialize(lambda: examples(nlp))
