"""Vectors of many texts as one array, for models that want batches of one length."""

from typing import NamedTuple, Sequence

import numpy as np

from ..errors import ElmoError, Errors
from ..layers.annotations import LayerT, TextT, are_words, token_vectors


class Padded(NamedTuple):
    """Vectors of texts, and which rows of them there are.

    vectors (ndarray): Zero behind the end of a text. *(n_texts, n_tokens of the longest, width)*
    mask (ndarray): True for words; False behind the end, and for whitespace tokens, which have no
        vectors. *(n_texts, n_tokens of the longest)*
    """

    vectors: np.ndarray
    mask: np.ndarray


def to_padded(texts: Sequence[TextT], layer: LayerT = "mix") -> Padded:
    """Put the vectors of texts into one array.

    Pad here and not before: a token that was added to a text is a word to the biLM, which changes
    the vectors of all others.

    texts (Sequence[Union[Doc, Span, Token]]): Docs that went through a pipeline with `elmo`, or
        parts of such.
    layer (Union[int, str]): Number of a layer (0 for the token layer, -1 for the top one), or
        "mix" for the component's own mix.
    RETURNS (Padded): float32 vectors and a mask, in the order of the texts.

    Raises E103 if there is nothing of ELMo on a doc, E152 if a layer is wanted but only the mix is
    there, E144 if there is no such layer or no text, E188 if the widths differ.
    """
    if len(texts) == 0:
        raise ElmoError(Errors.E144.format(name="texts", found=[], expected="at least one text"))
    rows = [token_vectors(text, layer) for text in texts]
    widths = sorted({array.shape[1] for array in rows})
    if len(widths) > 1:
        raise ElmoError(Errors.E188.format(found=", ".join(map(str, widths))))
    longest = max(map(len, rows))
    vectors = np.zeros((len(rows), longest, widths[0]), np.float32)
    mask = np.zeros((len(rows), longest), bool)
    for number, (text, array) in enumerate(zip(texts, rows)):
        vectors[number, : len(array)] = array
        mask[number, : len(array)] = are_words(text)
    return Padded(vectors, mask)
