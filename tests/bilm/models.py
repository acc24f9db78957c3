"""Small random models of our own for the tests of file formats."""

import torch

from spacy_elmo.bilm.config import BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.io import ModelFiles, expected_shapes

from .writers import CHARACTERS, WORDS

SMALL = BiLMConfig(
    CharCNNConfig(((1, 3), (2, 4)), embedding_dim=3, max_characters=9), LSTMConfig(6, 4)
)
VOCABULARY = [("<S>", 10), ("<UNK>", 3), ("été", 3), ("a\\tb\\", 2), ("\u2028", 1), ("\ud83d", 1)]


def make(config: BiLMConfig = SMALL, softmax: bool = False, seed: int = 0) -> ModelFiles:
    generator = torch.Generator().manual_seed(seed)
    shapes = dict(expected_shapes(config))
    if softmax:
        n, p = len(VOCABULARY), config.lstm.projection_dim
        shapes.update({"softmax.weight": (n, p), "softmax.bias": (n,)})
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    codepoint = config.char_cnn.unit == "codepoint"
    return ModelFiles(
        config,
        tensors,
        vocabulary=list(VOCABULARY) if softmax else None,
        characters={c: i for i, c in enumerate(CHARACTERS)} if codepoint else None,
        words={w: i for i, w in enumerate(WORDS)} if config.char_cnn.word_dim else None,
    )
