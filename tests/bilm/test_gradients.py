"""Gradients of the training path against finite differences in float64."""

from typing import Callable, Dict, List, Optional, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spacy_elmo.bilm import BiLM, BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.characters import DictionaryCharacters
from spacy_elmo.bilm.lstm import LSTMState, LSTMWeights, run_layer

#: Sentences that are running at each step: lengths 4, 4, 3, 1.
BATCH_SIZES = [4, 3, 3, 2]


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def lstm_weights(c: int, p: int, projection: bool) -> LSTMWeights:
    return LSTMWeights(
        normal(1, 4 * c, p),
        normal(2, 4 * c, p),
        normal(3, 4 * c),
        normal(4, p, c) if projection else None,
    )


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize(
    "cell_clip, proj_clip", [(None, None), (0.4, None), (None, 0.15), (0.4, 0.15)]
)
def test_lstm_layer(
    cell_clip: Optional[float], proj_clip: Optional[float], with_state: bool, projection: bool
) -> None:
    p = 2
    c = 3 if projection else 2
    config = LSTMConfig(c, p, cell_clip=cell_clip, proj_clip=proj_clip)
    x = normal(0, sum(BATCH_SIZES), p)
    weights = lstm_weights(c, p, projection)
    state = None
    if with_state:
        state = LSTMState(normal(5, 4, p).clamp(-0.15, 0.15), normal(6, 4, c).clamp(-0.4, 0.4))
    output, final = run_layer(x, weights, BATCH_SIZES, config, state)
    for values, clip in ((output, proj_clip), (final.cell, cell_clip)):
        if clip is not None:
            clipped = values.abs() == clip
            assert clipped.any() and not clipped.all()

    def run(x: Tensor, *values: Tensor) -> Tensor:
        given = LSTMWeights(values[0], values[1], values[2], values[3] if projection else None)
        return run_layer(x, given, BATCH_SIZES, config, state)[0]

    leaves = [t.requires_grad_() for t in (x, *weights) if t is not None]
    assert torch.autograd.gradcheck(run, leaves)


def test_lstm_layer_gives_each_sentence_its_own_final_state() -> None:
    config = LSTMConfig(3, 2, cell_clip=0.4, proj_clip=0.3)
    weights = lstm_weights(3, 2, True)
    x = normal(0, sum(BATCH_SIZES), 2)
    output, final = run_layer(x, weights, BATCH_SIZES, config)
    starts = np.cumsum([0, *BATCH_SIZES[:-1]])
    for k, length in enumerate((4, 4, 3, 1)):
        rows = [int(starts[t]) + k for t in range(length)]
        alone, end = run_layer(x[rows], weights, [1] * length, config)
        torch.testing.assert_close(output[rows], alone)
        torch.testing.assert_close(final.hidden[k], end.hidden[0])
        torch.testing.assert_close(final.cell[k], end.cell[0])
        torch.testing.assert_close(final.hidden[k], output[rows[-1]])
    assert not final.hidden.requires_grad and not final.cell.requires_grad


CONFIGS: Dict[str, BiLMConfig] = {
    "projections": BiLMConfig(
        CharCNNConfig(((1, 2), (3, 3), (2, 1)), embedding_dim=2, max_characters=8, n_highway=2),
        LSTMConfig(4, 3, n_layers=3, cell_clip=0.5, proj_clip=0.4),
    ),
    "no projections, no highway, no residual": BiLMConfig(
        CharCNNConfig(((2, 2), (5, 2)), 2, 6, n_highway=0, activation="tanh"),
        LSTMConfig(4, 4, skip_connections=False, cell_clip=0.6, proj_clip=None),
    ),
    "word vectors": BiLMConfig(
        CharCNNConfig(((1, 2), (2, 2)), 2, 7, unit="codepoint", n_words=5, word_dim=2),
        LSTMConfig(3, 2, n_layers=1, cell_clip=None, proj_clip=0.3, forget_bias=0.0),
    ),
}
SENTENCES = [["the", "cat", "the"], [], ["中文", "words over the limit", "", "aaaa"], ["cat"]]


def make(name: str) -> BiLM:
    config = CONFIGS[name].validate()
    characters: Optional[DictionaryCharacters] = None
    if config.char_cnn.unit == "codepoint":
        marks = ["<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>", *"thecaw"]
        table = {symbol: i for i, symbol in enumerate(marks)}
        words = {word: i for i, word in enumerate(["<oov>", "<bos>", "<eos>", "the", "cat"])}
        characters = DictionaryCharacters(table, words, config.char_cnn.max_characters)
    model = BiLM(config, characters=characters, pad=1 if characters else 260).double()
    for seed, parameter in enumerate(model.parameters()):
        with torch.no_grad():
            parameter.copy_(normal(seed, *parameter.shape) * 0.8)
    return model


def assert_gradients(module: nn.Module, loss: Callable[[], Tensor]) -> None:
    """Compare the derivative of each parameter in random directions, every entry involved."""
    module.zero_grad()
    loss().backward()
    step = 1e-6
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        for seed in range(3):
            direction = normal(100 + seed, *parameter.shape)
            values = []
            with torch.no_grad():
                before = parameter.clone()
                for sign in (1, -1):
                    parameter.copy_(before + sign * step * direction)
                    values.append(float(loss()))
                parameter.copy_(before)
            expected = (values[0] - values[1]) / (2 * step)
            found = float((parameter.grad * direction).sum())
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("name", CONFIGS)
def test_the_whole_model(name: str) -> None:
    """A loss that reaches into all layers, positions and both directions."""
    model = make(name)
    shape = model(SENTENCES).shape
    weight = normal(7, *shape)
    layers = model(SENTENCES).detach()
    clip = model.config.lstm.proj_clip
    if clip is not None:
        assert (layers[1].abs() == clip).any()
    assert_gradients(model, lambda: (model(SENTENCES) * weight).sum())


@pytest.mark.parametrize("name", CONFIGS)
def test_the_token_encoder(name: str) -> None:
    model = make(name)
    words = ["the", "cat", "", "a", "words over the limit", "aaaa", "中文"]
    weight = normal(8, len(words) + 2, model.config.lstm.projection_dim)
    encoded = model.characters.encode(words)
    assert_gradients(model.token_encoder, lambda: (model.encode_words(encoded) * weight).sum())


def test_words_of_hundreds_of_characters() -> None:
    """Positions of maxima behind the 256th are as good as others."""
    config = BiLMConfig(
        CharCNNConfig(((2, 3),), embedding_dim=2, max_characters=400), LSTMConfig(2, 2, n_layers=1)
    )
    model = BiLM(config).double()
    for seed, parameter in enumerate(model.parameters()):
        with torch.no_grad():
            parameter.copy_(normal(seed, *parameter.shape))
    word = "a" * 300 + "bcdefgh"
    assert not torch.equal(model([[word]])[0, 1], model([["a" * 300]])[0, 1])
    assert_gradients(model, lambda: model([[word]]).square().sum())


def test_repeated_words_add_their_gradients() -> None:
    model = make("projections")
    weight = normal(9, 4, 5, 6)

    def gradient(sentences: Sequence[List[str]]) -> List[Tensor]:
        model.zero_grad()
        for sentence in sentences:
            (model([sentence]) * weight[:, : len(sentence) + 2]).sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    separate = gradient([["a", "b", "a"], ["a"]])
    model.zero_grad()
    flat = torch.cat([weight[:, :5], weight[:, :3]], dim=1)
    (model([["a", "b", "a"], ["a"]]) * flat).sum().backward()
    for p, expected in zip(model.parameters(), separate, strict=True):
        torch.testing.assert_close(p.grad, expected)


def test_second_derivatives_are_refused() -> None:
    """The own backward passes have none; wrong ones would go unnoticed."""
    model = make("projections")
    loss = model(SENTENCES).square().sum()
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradients[0].square().sum().backward()


def test_products_in_bfloat16_agree_loosely() -> None:
    config = BiLMConfig(
        CharCNNConfig(((1, 8), (2, 16), (3, 16)), embedding_dim=8), LSTMConfig(48, 16)
    )
    model = BiLM(config)
    for seed, parameter in enumerate(model.parameters()):
        with torch.no_grad():
            scale = 0.5 / max(1, parameter[0].numel()) ** 0.5
            parameter.copy_(normal(seed, *parameter.shape) * scale)
    results = []
    for dtype in (None, torch.bfloat16):
        model.zero_grad()
        layers = model(SENTENCES, dtype)
        assert layers.dtype == torch.float32
        (layers * normal(0, *layers.shape).float()).sum().backward()
        results.append((layers.detach(), [p.grad for p in model.parameters()]))
    (exact, exact_gradients), (rough, rough_gradients) = results
    assert 0 < (rough - exact).abs().max() < 0.03 * exact.abs().max()
    for a, b in zip(exact_gradients, rough_gradients, strict=True):
        assert a is not None and b is not None and b.dtype == torch.float32
        assert float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)) > 0.999
