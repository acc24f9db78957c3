"""What all file formats are read into and written from, and the shapes it must have."""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from ...errors import ElmoError, Errors
from ..config import BiLMConfig

Shape = Tuple[int, ...]

SOFTMAX_WEIGHT = "softmax.weight"
SOFTMAX_BIAS = "softmax.bias"
#: Problems of one kind that a message lists before it says "and n more".
_MAX_LISTED = 12


@dataclass
class ModelFiles:
    """A model as it lies on disk, whatever the format.

    :param config:
        Shape and numerics.
    :param tensors:
        Weights under their canonical names, see :func:`expected_shapes`. LSTM gates are in the
        order input, forget, output, candidate; highway gates multiply the ReLU branch; the bias
        of the forget gate is stored without ``config.lstm.forget_bias``. May have
        ``softmax.weight`` and ``softmax.bias``.
    :param vocabulary:
        Words of the softmax with their counts (0 where unknown), in the order of its rows.
    :param characters:
        Character dictionary of a "codepoint" model.
    :param words:
        Word dictionary of a model with word vectors.
    :param extra_files:
        Dictionary files as they were found, by name, so that they are written back unchanged.
    :param format:
        Format that it was read from: "native", "bilm" or "many-langs".
    """

    config: BiLMConfig
    tensors: Dict[str, Tensor]
    vocabulary: Optional[List[Tuple[str, int]]] = None
    characters: Optional[Dict[str, int]] = None
    words: Optional[Dict[str, int]] = None
    extra_files: Dict[str, bytes] = field(default_factory=dict)
    format: str = "native"

    @property
    def has_softmax(self) -> bool:
        """Whether the softmax of the language model was read."""
        return SOFTMAX_WEIGHT in self.tensors


def expected_shapes(config: BiLMConfig) -> Dict[str, Shape]:
    """Names and shapes of all weights that a configuration asks for, softmax left out."""
    cnn, lstm = config.char_cnn, config.lstm
    f, p, c = cnn.n_filters, lstm.projection_dim, lstm.cell_dim
    shapes: Dict[str, Shape] = {
        "token_encoder.char_embedding": (cnn.n_characters, cnn.embedding_dim)
    }
    for i, (width, count) in enumerate(cnn.filters):
        shapes[f"token_encoder.conv.{i}.weight"] = (count, cnn.embedding_dim, width)
        shapes[f"token_encoder.conv.{i}.bias"] = (count,)
    for k in range(cnn.n_highway):
        for part in ("transform", "gate"):
            shapes[f"token_encoder.highway.{k}.{part}.weight"] = (f, f)
            shapes[f"token_encoder.highway.{k}.{part}.bias"] = (f,)
    if cnn.word_dim:
        shapes["token_encoder.word_embedding"] = (cnn.n_words, cnn.word_dim)
    if config.has_cnn_projection:
        shapes["token_encoder.projection.weight"] = (p, cnn.word_dim + f)
        shapes["token_encoder.projection.bias"] = (p,)
    for direction in ("forward", "backward"):
        for layer in range(lstm.n_layers):
            name = f"{direction}_lstm.{layer}"
            shapes[f"{name}.input_weight"] = (4 * c, p)
            shapes[f"{name}.recurrent_weight"] = (4 * c, p)
            shapes[f"{name}.bias"] = (4 * c,)
            if lstm.has_projection:
                shapes[f"{name}.projection_weight"] = (p, c)
    return shapes


def softmax_shapes(config: BiLMConfig, n_words: int) -> Dict[str, Shape]:
    """Names and shapes of a softmax over ``n_words`` words."""
    return {SOFTMAX_WEIGHT: (n_words, config.lstm.projection_dim), SOFTMAX_BIAS: (n_words,)}


def count_parameters(config: BiLMConfig) -> Dict[str, int]:
    """Number of weights by part of the model, in the order of computation."""
    parts = {
        "characters": "token_encoder.char_embedding",
        "convolutions": "token_encoder.conv.",
        "highway": "token_encoder.highway.",
        "words": "token_encoder.word_embedding",
        "projection": "token_encoder.projection.",
        "forward": "forward_lstm.",
        "backward": "backward_lstm.",
    }
    sizes = {name: prod(shape) for name, shape in expected_shapes(config).items()}
    return {
        part: sum(size for name, size in sizes.items() if name.startswith(prefix))
        for part, prefix in parts.items()
    }


def check_shapes(
    found: Mapping[str, Sequence[int]], expected: Mapping[str, Shape], path: Union[str, Path]
) -> None:
    """Compare arrays of a file with those that its configuration asks for.

    :param found: Shapes by name, as in the file.
    :param expected: Shapes by the same names.
    :raises ElmoError: E024, listing wrong shapes, missing and unexpected names.
    """
    wrong = [
        f"{name} is {_show(found[name])}, expected {_show(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name]) != shape
    ]
    missing = [f"{n} {_show(shape)}" for n, shape in expected.items() if n not in found]
    extra = [f"{n} {_show(shape)}" for n, shape in found.items() if n not in expected]
    problems = [
        f"{title}: {_listing(names)}"
        for title, names in (("wrong", wrong), ("missing", missing), ("unexpected", extra))
        if names
    ]
    if problems:
        raise ElmoError(Errors.E024.format(path=path, problems="; ".join(problems)))


def check_files(files: ModelFiles, path: Union[str, Path]) -> None:
    """Check that what is about to be written is a whole model.

    :param path: Where it is to be written, for the messages.
    :raises ElmoError: E010, E024 for weights that do not fit the configuration, E038.
    """
    config = files.config.validate()
    expected = expected_shapes(config)
    if files.has_softmax or SOFTMAX_BIAS in files.tensors:
        n_words = len(files.vocabulary or ())
        weight = files.tensors.get(SOFTMAX_WEIGHT)
        if weight is not None and weight.shape[:1] != (n_words,):
            problem = f"it has {_show(weight.shape)} weights for a vocabulary of {n_words} words"
            raise ElmoError(Errors.E038.format(problems=problem))
        expected.update(softmax_shapes(config, n_words))
    check_shapes({name: t.shape for name, t in files.tensors.items()}, expected, path)


def to_float32(tensor: Tensor) -> Tensor:
    """The tensor itself if it is float32 already, else a converted copy."""
    return tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)


def _show(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"


def _listing(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
