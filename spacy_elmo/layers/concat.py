"""The node of `spacy-elmo.ConcatEmbed.v1`: ELMo beside the task's own vectors, before and behind
the task's encoder (Peters et al. 2018, section 3.3).
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from spacy.tokens import Doc
from thinc.api import Model

from ..errors import ElmoError, Errors
from .listener import INFER_WIDTH, forward_mixes
from .scalar_mix import MIX_NAME
from .types import MixT, Tok2VecT, VectorsT

#: Name of the node.
CONCAT_NAME = "elmo_concat_embed"
#: Parts whose vectors are joined at the input, in this order.
_INPUTS = ("elmo", "embed", "static_vectors")
_PARTS = (*_INPUTS, "encode", "output")


def concat_embed(parts: Dict[str, Optional[Model]]) -> Tok2VecT:
    """Build the node.

    parts (Dict[str, Optional[Model]]): "elmo", and "embed" and "static_vectors" or None, all from
        docs to vectors; "encode", which takes the joined vectors; "output" or None, a second mix
        on the source of "elmo", which is joined to what "encode" gives.
    """
    given = [part for part in (parts[name] for name in _PARTS) if part is not None]
    model: Tok2VecT = Model(
        CONCAT_NAME,
        _forward,
        init=_init,
        dims={"nO": None},
        layers=given,
        refs={name: parts[name] for name in _PARTS},
        attrs={INFER_WIDTH: infer_width},
    )
    infer_width(model)
    return model


def infer_width(model: Tok2VecT) -> None:
    """Set the width, as soon as it is known how wide the encoder's and ELMo's vectors are."""
    encode, output = model.get_ref("encode"), model.maybe_get_ref("output")
    widths = [part.maybe_get_dim("nO") for part in (encode, output) if part is not None]
    if model.has_dim("nO") is None and None not in widths:
        model.set_dim("nO", sum(width for width in widths if width is not None))


def find_mixes(model: Model) -> List[Tuple[str, MixT]]:
    """The initialised scalar mixes in a model, each with "input" or "output".

    "output" is the mix that is joined to what an encoder gives; all others are at its input.
    """
    nodes = list(model.walk())
    outputs = [node.maybe_get_ref("output") for node in nodes if node.name == CONCAT_NAME]
    at_output = {id(part) for node in outputs if node is not None for part in node.walk()}
    return [
        ("output" if id(node) in at_output else "input", node)
        for node in nodes
        if node.name == MIX_NAME and node.has_param("w")
    ]


def _inputs(model: Tok2VecT) -> List[Model]:
    found = [model.maybe_get_ref(name) for name in _INPUTS]
    return [part for part in found if part is not None]


def _forward(
    model: Tok2VecT, docs: List[Doc], is_train: bool
) -> Tuple[VectorsT, Callable[[VectorsT], List[Doc]]]:
    elmo, *own = _inputs(model)
    encode, output = model.get_ref("encode"), model.maybe_get_ref("output")
    at_output: List[VectorsT] = []
    bp_elmo: Callable[[List[VectorsT]], Any]
    if output is None:
        first, bp_first = elmo(docs, is_train)

        def bp_elmo(gradients: List[VectorsT]) -> Any:
            return bp_first(gradients[0])

    else:
        mixes = [elmo.layers[1], output.layers[1]]
        (first, second), bp_elmo = forward_mixes(elmo.layers[0], mixes, docs, is_train)
        at_output = [second]
    others = [_of_docs(part, docs, is_train) for part in own]
    joined, split_joined = _join(model, [first, *(vectors for vectors, _ in others)])
    encoded, bp_encode = encode(joined, is_train)
    result, split_result = _join(model, [encoded, *at_output])

    def backprop(d_result: VectorsT) -> List[Doc]:
        d_encoded, *d_output = split_result(d_result)
        d_first, *d_others = split_joined(bp_encode(d_encoded))
        for (_, callback), gradient in zip(others, d_others):
            callback(gradient)
        bp_elmo([d_first, *d_output])
        return []

    return result, backprop


def _of_docs(
    part: Tok2VecT, docs: List[Doc], is_train: bool
) -> Tuple[VectorsT, Callable[[VectorsT], Any]]:
    """A part's vectors; spaCy's static vectors give nothing at all where all docs are empty."""
    vectors, callback = part(docs, is_train)
    if len(vectors) == len(docs):
        return vectors, callback
    return [part.ops.alloc2f(0, part.get_dim("nO")) for _ in docs], lambda gradients: []


def _join(
    model: Tok2VecT, parts: Sequence[VectorsT]
) -> Tuple[VectorsT, Callable[[VectorsT], List[VectorsT]]]:
    """Vectors of each doc side by side, and the way back for gradients."""
    xp = model.ops.xp
    widths = [[vectors.shape[1] for vectors in of_doc] for of_doc in zip(*parts)]

    def split(gradients: VectorsT) -> List[VectorsT]:
        pieces: List[VectorsT] = [[] for _ in parts]
        for gradient, of_doc in zip(gradients, widths):
            start = 0
            for piece, width in zip(pieces, of_doc):
                piece.append(xp.ascontiguousarray(gradient[:, start : start + width]))
                start += width
        return pieces

    if len(parts) == 1:
        return parts[0], lambda gradients: [gradients]
    return [xp.concatenate(of_doc, axis=1) for of_doc in zip(*parts)], split


def _init(model: Tok2VecT, X: Optional[List[Doc]] = None, Y: Optional[VectorsT] = None) -> None:
    static = model.maybe_get_ref("static_vectors")
    if static is not None and X and not X[0].vocab.vectors.shape[1]:
        raise ElmoError(Errors.E115)
    inputs, encode = _inputs(model), model.get_ref("encode")
    for part in inputs:
        part.initialize(X=X)
    if X:
        joined, _ = _join(model, [part.predict(X) for part in inputs])
        encode.initialize(X=joined)
    else:
        encode.initialize()
    output = model.maybe_get_ref("output")
    if output is not None:
        output.initialize(X=X)
    infer_width(model)
