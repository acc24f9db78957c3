"""The torch scalar mix."""

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import ElmoError, ScalarMix


def layers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_it_starts_as_the_mean() -> None:
    x = layers(3, 5, 4)
    torch.testing.assert_close(ScalarMix(3).double()(x), x.mean(0))
    torch.testing.assert_close(ScalarMix(3).proportions.detach(), torch.full((3,), 1 / 3))


def test_the_sum_has_softmax_weights_times_gamma() -> None:
    x = layers(2, 3, 6, 4)
    mix = ScalarMix(2, init_weights=[0.0, np.log(3.0)]).double()
    with torch.no_grad():
        mix.gamma.fill_(2.0)
    torch.testing.assert_close(mix(x), 2.0 * (0.25 * x[0] + 0.75 * x[1]))


def test_gradients_are_those_of_finite_differences() -> None:
    x = layers(3, 2, 4).requires_grad_()
    mix = ScalarMix(3, layer_norm=True, width=4, init_weights=[0.1, -0.5, 1.0]).double()
    parameters = tuple(mix.parameters())
    assert len(parameters) == 4

    def run(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        names = [name for name, _ in mix.named_parameters()]
        return torch.func.functional_call(mix, dict(zip(names, values)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))


@pytest.mark.parametrize("init_weights", [None, [1.0, 2.0]])
@pytest.mark.parametrize("trainable", [True, False])
def test_start_and_trainability_are_independent(
    init_weights: "list[float] | None", trainable: bool
) -> None:
    mix = ScalarMix(2, init_weights=init_weights, trainable=trainable, layer_norm=True, width=3)
    assert all(p.requires_grad is trainable for p in mix.parameters())
    assert mix.weights.tolist() == (init_weights or [0.0, 0.0])
    assert mix.gamma.tolist() == [1.0]


def test_layer_norm_is_per_token() -> None:
    """Each vector has mean b and deviation g, whatever the other tokens are."""
    x = layers(1, 7, 50) * 10 + 3
    mix = ScalarMix(1, layer_norm=True, width=50).double()
    assert mix.norm_gain is not None and mix.norm_bias is not None
    with torch.no_grad():
        mix.norm_gain.fill_(2.0)
        mix.norm_bias.fill_(0.5)
    found = mix(x)
    torch.testing.assert_close(found.mean(1), torch.full((7,), 0.5, dtype=torch.float64))
    deviation = found.std(1, correction=0)
    torch.testing.assert_close(deviation, torch.full((7,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(mix(x[:, 2:3])[0], found[2])
    # Layers are normalised before the sum: their scale does not matter.
    two = ScalarMix(2, layer_norm=True, width=50).double()
    torch.testing.assert_close(two(torch.cat([x, 100 * x])), two(torch.cat([x, x])))


def test_shapes() -> None:
    mix = ScalarMix(3)
    assert mix(torch.ones(3, 0, 4)).shape == (0, 4)
    assert mix(torch.ones(3, 4)).shape == (4,)
    assert set(mix.state_dict()) == {"weights", "gamma"}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ElmoError, match="3 layers.*2 values") as caught:
        ScalarMix(3, init_weights=[1.0, 2.0])
    assert caught.value.code == "ELMO-E004"
    with pytest.raises(ElmoError, match="width=bilm.width") as caught:
        ScalarMix(3, layer_norm=True)
    assert caught.value.code == "ELMO-E005"
    for mix, shape in ((ScalarMix(3), (2, 5, 4)), (ScalarMix(3, layer_norm=True, width=8), (3, 4))):
        with pytest.raises(ElmoError) as caught:
            mix(torch.ones(*shape))
        assert caught.value.code == "ELMO-E006"
        assert str(shape) in str(caught.value)
