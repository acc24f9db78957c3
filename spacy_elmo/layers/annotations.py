"""What ELMo leaves on a doc, and how it is read: plain arrays that survive bytes and pickle.

Stored is one array: all layers under `doc._.elmo_layers` with the mix's weights beside it, or the
mixed vectors alone. `doc._.elmo`, `span._.elmo` and `token._.elmo` read from it.
"""

from typing import Any, Dict, Optional, cast

import numpy as np
from spacy.tokens import Doc, Span, Token

from ..errors import ElmoError, Errors

LAYERS = "elmo_layers"
_LAYERS_KEY = ("._.", LAYERS, None, None)
_VECTORS_KEY = ("spacy_elmo", "vectors")
_MIX_KEY = ("spacy_elmo", "mix")


def store(doc: Doc, layers: np.ndarray, mix: np.ndarray, what: str) -> None:
    """Put layers, or the vectors mixed of them, on a doc.

    doc (Doc): The doc.
    layers (ndarray): *(L + 1, n_tokens, width)*, not shared with anything.
    mix (ndarray): Weight of each layer, *(L + 1,)*.
    what (str): "layers", "vectors" or "none".
    """
    clear(doc)
    data = _data(doc)
    if what == "layers":
        data[_LAYERS_KEY] = layers
        data[_MIX_KEY] = mix
    elif what == "vectors":
        data[_VECTORS_KEY] = mixed(layers, mix)


def _data(doc: Doc) -> Dict[Any, Any]:
    # spaCy keeps extensions under tuples, whatever the annotation of its attribute says.
    return cast(Dict[Any, Any], doc.user_data)


def clear(doc: Doc) -> None:
    """Take everything of ELMo off a doc."""
    for key in (_LAYERS_KEY, _VECTORS_KEY, _MIX_KEY):
        _data(doc).pop(key, None)


def mixed(layers: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """Weighted sum of layers. *(L + 1, ..., width)* and *(L + 1,)* to *(..., width)*."""
    return np.ascontiguousarray(np.tensordot(mix, layers, axes=1), dtype=np.float32)


def doc_layers(doc: Doc) -> Optional[np.ndarray]:
    """Layers on a doc, None if there are none.

    :raises ElmoError: E102 if the doc's tokens were merged or split since.
    """
    return _checked(doc, _data(doc).get(_LAYERS_KEY), axis=1)


def _checked(doc: Doc, array: Optional[np.ndarray], axis: int) -> Optional[np.ndarray]:
    if array is not None and array.shape[axis] != len(doc):
        raise ElmoError(Errors.E102.format(found=array.shape[axis], expected=len(doc)))
    return array


def vectors(doc: Doc, start: int = 0, stop: Optional[int] = None) -> np.ndarray:
    """The component's own mix for some tokens. *(n_tokens, width)*.

    :raises ElmoError: E102 if the tokens were changed, E103 if there is nothing on the doc.
    """
    stop = len(doc) if stop is None else stop
    stored = _checked(doc, _data(doc).get(_VECTORS_KEY), axis=0)
    if stored is not None:
        return stored[start:stop]
    layers = doc_layers(doc)
    if layers is None:
        raise ElmoError(Errors.E103.format(text=doc.text[:40]))
    return mixed(layers[:, start:stop], _data(doc)[_MIX_KEY])


def has_vectors(doc: Doc) -> bool:
    """Whether ELMo has been on the doc."""
    return _VECTORS_KEY in _data(doc) or _data(doc).get(_LAYERS_KEY) is not None


def _get_doc(doc: Doc) -> np.ndarray:
    return vectors(doc)


def _get_span(span: Span) -> np.ndarray:
    return vectors(span.doc, span.start, span.end)


def _get_token(token: Token) -> np.ndarray:
    row: np.ndarray = vectors(token.doc, token.i, token.i + 1)[0]
    return row


def register_extensions() -> None:
    """Make the extensions known; ones of the same name that a user set are left alone."""
    extensions: Any = (
        (Doc, "elmo", {"getter": _get_doc}),
        (Span, "elmo", {"getter": _get_span}),
        (Token, "elmo", {"getter": _get_token}),
        (Doc, LAYERS, {"default": None}),
    )
    for kind, name, options in extensions:
        if not kind.has_extension(name):
            kind.set_extension(name, **options)
