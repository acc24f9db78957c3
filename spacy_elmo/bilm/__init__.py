"""The bidirectional language model, usable by itself: PyTorch and numpy, without spaCy.

>>> from spacy_elmo.bilm import BiLM
>>> BiLM.load("en_mini").embed([["The", "bank", "of", "the", "river"]])
"""

from ..errors import ElmoError
from .config import PRESETS, BiLMConfig, CharCNNConfig, LSTMConfig
from .encoder import BiLM
from .scalar_mix import ScalarMix

__all__ = [
    "PRESETS",
    "BiLM",
    "BiLMConfig",
    "CharCNNConfig",
    "ElmoError",
    "LSTMConfig",
    "ScalarMix",
]
