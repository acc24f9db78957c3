"""`.vector`, `.has_vector`, `.vector_norm` and `.similarity` of docs, spans and tokens from ELMo.

Opt-in (`hooks = true`), since hooks do not survive `Doc.to_bytes`. A text's vector is the mean of
its tokens' vectors, whitespace left out.
"""

from typing import Any, Union

import numpy as np
from spacy.tokens import Doc, Span, Token

from ..layers.annotations import vectors

TextT = Union[Doc, Span, Token]


def set_hooks(doc: Doc) -> None:
    """Set the hooks on a doc that has ELMo's arrays."""
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks["vector"] = get_vector
        hooks["has_vector"] = has_vector
        hooks["vector_norm"] = vector_norm
        hooks["similarity"] = similarity


def get_vector(text: TextT) -> np.ndarray:
    """Mean of the tokens' vectors. *(width,)*."""
    if isinstance(text, Token):
        row: np.ndarray = vectors(text.doc, text.i, text.i + 1)[0]
        return row
    doc, start, stop = (text, 0, len(text)) if isinstance(text, Doc) else _range(text)
    rows = vectors(doc, start, stop)
    words = [i for i, token in enumerate(text) if not token.is_space]
    if not words:
        return np.zeros(rows.shape[1], np.float32)
    mean: np.ndarray = rows[words].mean(axis=0)
    return mean


def _range(span: Span) -> Any:
    return span.doc, span.start, span.end


def has_vector(text: TextT) -> bool:
    """Whether there is anything but whitespace."""
    return not text.is_space if isinstance(text, Token) else any(not t.is_space for t in text)


def vector_norm(text: TextT) -> float:
    """Euclidean length of the vector."""
    return float(np.linalg.norm(get_vector(text)))


def similarity(text: TextT, other: TextT) -> float:
    """Cosine of the two vectors; 0 if one is empty."""
    a, b = get_vector(text), np.asarray(other.vector)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm else 0.0
