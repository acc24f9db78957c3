"""The thinc scalar mix: its values, and its gradients against finite differences."""

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import ScalarMix
from spacy_elmo.layers.encoder import build_elmo_encoder_v1
from spacy_elmo.layers.scalar_mix import build_scalar_mix_v1


def _docs(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(3, n, 6)).astype("float32") for n in (4, 0, 2)]


def test_equals_the_torch_mix():
    weights = [0.3, -0.2, 0.7]
    model = build_scalar_mix_v1(init_weights=weights)
    docs = _docs()
    expected = ScalarMix(3, init_weights=weights)(torch.from_numpy(np.concatenate(docs, axis=1)))
    found = np.concatenate(model.predict(docs))
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_gradients_agree_with_finite_differences(layer_norm, l2):
    model = build_scalar_mix_v1(init_weights=[0.3, -0.2, 0.7], layer_norm=layer_norm, l2=l2)
    docs = _docs(1)
    model.initialize(X=docs)
    directions = [np.random.default_rng(2).normal(size=d.shape[1:]).astype("float32") for d in docs]

    def loss():
        outputs = model.predict(docs)
        value = sum(float((y.astype("float64") * d).sum()) for y, d in zip(outputs, directions))
        return value + l2 * float((model.get_param("w").astype("float64") ** 2).sum())

    _, backprop = model.begin_update(docs)
    d_docs = backprop(directions)
    arrays = [(model.get_param(name), model.get_grad(name)) for name in model.param_names]
    arrays += list(zip(docs, d_docs))
    for values, gradient in arrays:
        for index in list(np.ndindex(values.shape))[:12]:
            kept, step = float(values[index]), 1e-2
            values[index] = kept + step
            above = loss()
            values[index] = kept - step
            below = loss()
            values[index] = kept
            slope = (above - below) / (2 * step)
            assert gradient[index] == pytest.approx(slope, rel=2e-2, abs=2e-2)


def test_untrainable_mix_has_no_gradients():
    model = build_scalar_mix_v1(init_weights=[1.0, 0.0, 0.0], trainable=False)
    docs = _docs()
    outputs, backprop = model.begin_update(docs)
    backprop(outputs)
    assert not model.has_grad("w") and not model.has_grad("gamma")


def test_precisions_that_cannot_be_computed_are_refused():
    from spacy_elmo.errors import ElmoError

    with pytest.raises(ElmoError, match="ELMO-E104"):
        build_elmo_encoder_v1(precision="int3")
