"""Similarity of texts by pooled vectors: the mean of their words' vectors, and cosines of these.

This is a baseline, and an honest use of it knows its limits. A biLM was trained to predict words,
not so that near vectors mean the same: the cosine of any two sentences is high, since all vectors
lie in a narrow cone (Ethayarajh 2019), and the mean weighs "the" as much as a noun. Which layer is
best depends on the task: lower ones compare spelling and syntax, upper ones context. Taking off
the mean of many texts undoes most of the cone (Mu and Viswanath 2018 do it for words, Arora et al.
2017 take off the first component for sentences). If similarity is the task, train on it or use a
model that was.
"""

from typing import Optional, Sequence

import numpy as np

from ..errors import ElmoError, Errors
from ..layers.annotations import LayerT, TextT, are_words, token_vectors


def pooled(text: TextT, layer: LayerT = "mix") -> np.ndarray:
    """Mean vector of a text's words, whitespace left out; zeros if there are none. *(width,)*.

    text (Union[Doc, Span, Token]): A text that went through a pipeline with `elmo`.
    layer (Union[int, str]): Number of a layer (0 for the token layer, -1 for the top one), or
        "mix" for the component's own mix.

    Raises E103 if there is nothing of ELMo on the doc, E152 if a layer is wanted but only the mix
    is there, E144 if there is no such layer.
    """
    rows = token_vectors(text, layer)
    words = are_words(text)
    if not words.any():
        return np.zeros(rows.shape[1], np.float32)
    mean: np.ndarray = rows[words].mean(axis=0)
    return mean


def common_mean(texts: Sequence[TextT], layer: LayerT = "mix") -> np.ndarray:
    """Mean of the pooled vectors of many texts, to be taken off by `similarity`. *(width,)*.

    Raises E144 if there is no text.
    """
    mean: np.ndarray = _matrix(texts, layer).mean(axis=0)
    return mean


def similarity(
    first: TextT,
    second: TextT,
    layer: LayerT = "mix",
    *,
    mean: Optional[np.ndarray] = None,
) -> float:
    """Cosine of the pooled vectors of two texts: a baseline, see the head of this module.

    layer (Union[int, str]): As in `pooled`.
    mean (Optional[ndarray]): Taken off both vectors, from `common_mean`. *(width,)*
    RETURNS (float): From -1 to 1; 0 if one text has no words.
    """
    return float(similarity_matrix([first], [second], layer, mean=mean)[0, 0])


def similarity_matrix(
    texts: Sequence[TextT],
    others: Optional[Sequence[TextT]] = None,
    layer: LayerT = "mix",
    *,
    mean: Optional[np.ndarray] = None,
) -> np.ndarray:
    """Cosines of the pooled vectors of every text with every other. *(n_texts, n_others)*.

    others (Optional[Sequence[TextT]]): What the texts are compared with, by default themselves.
    layer, mean: As in `similarity`.
    """
    rows = _unit(_matrix(texts, layer), mean)
    if others is None:
        columns = rows
    else:
        columns = _unit(_matrix(others, layer), mean)
    cosines: np.ndarray = rows @ columns.T
    return cosines


def _matrix(texts: Sequence[TextT], layer: LayerT) -> np.ndarray:
    if len(texts) == 0:
        raise ElmoError(Errors.E144.format(name="texts", found=[], expected="at least one text"))
    return np.stack([pooled(text, layer) for text in texts])


def _unit(matrix: np.ndarray, mean: Optional[np.ndarray]) -> np.ndarray:
    """Rows of length one; rows of texts without words stay zero."""
    empty = ~matrix.any(axis=1)
    if mean is not None:
        matrix = matrix - mean
        matrix[empty] = 0.0
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: np.ndarray = matrix / np.where(norms > 0.0, norms, 1.0)
    return unit
