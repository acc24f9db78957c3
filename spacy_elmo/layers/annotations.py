"""What ELMo leaves on a doc, and how it is read: plain arrays that survive bytes and pickle.

Stored is one array: all layers under `doc._.elmo_layers` with the mix's weights beside it, or the
mixed vectors alone. `doc._.elmo`, `span._.elmo` and `token._.elmo` read from it. Where several
components follow each other, these are the last one's; the layers of those before stay on the doc
for the listeners, under the component's name.
"""

from typing import Any, Dict, Optional, Tuple, Union, cast

import numpy as np
from spacy.tokens import Doc, Span, Token

from ..errors import ElmoError, Errors

TextT = Union[Doc, Span, Token]
#: Number of a layer, or "mix".
LayerT = Union[int, str]

LAYERS = "elmo_layers"
_LAYERS_KEY = ("._.", LAYERS, None, None)
_VECTORS_KEY = ("spacy_elmo", "vectors")
_MIX_KEY = ("spacy_elmo", "mix")
_OWNER_KEY = ("spacy_elmo", "component")


def store(doc: Doc, layers: np.ndarray, mix: np.ndarray, what: str, owner: str = "elmo") -> None:
    """Put layers, or the vectors mixed of them, on a doc.

    doc (Doc): The doc.
    layers (ndarray): *(L + 1, n_tokens, width)*, not shared with anything.
    mix (ndarray): Weight of each layer, *(L + 1,)*.
    what (str): "layers", "vectors" or "none".
    owner (str): Name of the component. Layers that another one left are kept for its listeners.
    """
    data = _data(doc)
    before, others = data.get(_LAYERS_KEY), data.get(_OWNER_KEY)
    for key in (_LAYERS_KEY, _VECTORS_KEY, _MIX_KEY, _OWNER_KEY, _owned_key(owner)):
        data.pop(key, None)
    if before is not None and others not in (None, owner):
        data[_owned_key(others)] = before
    if what == "layers":
        data[_LAYERS_KEY] = layers
        data[_MIX_KEY] = mix
        data[_OWNER_KEY] = owner
    elif what == "vectors":
        data[_VECTORS_KEY] = mixed(layers, mix)


def _data(doc: Doc) -> Dict[Any, Any]:
    # spaCy keeps extensions under tuples, whatever the annotation of its attribute says.
    return cast(Dict[Any, Any], doc.user_data)


def _owned_key(owner: str) -> Tuple[str, str, str]:
    return "spacy_elmo", LAYERS, owner


def clear(doc: Doc) -> None:
    """Take everything of ELMo off a doc."""
    data = _data(doc)
    for key in list(data):
        if key == _LAYERS_KEY or (isinstance(key, tuple) and key[:1] == _MIX_KEY[:1]):
            del data[key]


def mixed(layers: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """Weighted sum of layers. *(L + 1, ..., width)* and *(L + 1,)* to *(..., width)*."""
    return np.ascontiguousarray(np.tensordot(mix, layers, axes=1), dtype=np.float32)


def doc_layers(doc: Doc, owner: Optional[str] = None) -> Optional[np.ndarray]:
    """Layers on a doc, None if there are none.

    doc (Doc): The doc.
    owner (Optional[str]): Name of the component whose layers are wanted; None for the last one's.
    :raises ElmoError: E102 if the doc's tokens were merged or split since.
    """
    data = _data(doc)
    key: Any = _LAYERS_KEY
    if owner is not None and data.get(_OWNER_KEY) != owner:
        key = _owned_key(owner)
    return _checked(doc, data.get(key), axis=1)


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


def token_vectors(text: TextT, layer: LayerT = "mix") -> np.ndarray:
    """Vectors of a text's tokens. *(n_tokens, width)*, not to be changed.

    text (Union[Doc, Span, Token]): A text that went through a pipeline with `elmo`.
    layer (Union[int, str]): Number of a layer (0 for the token layer, -1 for the top one), or
        "mix" for the component's own mix.
    :raises ElmoError: E102 and E103 as `vectors`, E152 if a layer is wanted but only the mix is
        there, E144 if there is no such layer.
    """
    if isinstance(text, Token):
        text = text.doc[text.i : text.i + 1]
    doc, start, stop = (
        (text, 0, len(text)) if isinstance(text, Doc) else (text.doc, text.start, text.end)
    )
    if layer == "mix":
        return vectors(doc, start, stop)
    layers = doc_layers(doc)
    if layers is None:
        vectors(doc, 0, 0)  # Raises if there is nothing at all.
        raise ElmoError(Errors.E152.format(text=doc.text[:40]))
    if not isinstance(layer, int) or not -len(layers) <= layer < len(layers):
        expected = f"'mix' or the number of a layer, 0 to {len(layers) - 1}"
        raise ElmoError(Errors.E144.format(name="layer", found=layer, expected=expected))
    rows: np.ndarray = layers[layer, start:stop]
    return rows


def are_words(text: TextT) -> np.ndarray:
    """Which tokens of a text are words, not whitespace: others have no vectors. *(n_tokens,)*."""
    tokens = [text] if isinstance(text, Token) else text
    return np.array([not token.is_space for token in tokens], bool)


def _get_doc(doc: Doc) -> np.ndarray:
    return vectors(doc)


def _set_layers(doc: Doc, value: Optional[np.ndarray]) -> None:
    # So that spaCy's doc_cleaner can free the memory: {"_.elmo_layers": None}.
    if value is not None:
        raise ElmoError(Errors.E116)
    clear(doc)


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
        (Doc, LAYERS, {"getter": doc_layers, "setter": _set_layers}),
    )
    for kind, name, options in extensions:
        if not kind.has_extension(name):
            kind.set_extension(name, **options)
