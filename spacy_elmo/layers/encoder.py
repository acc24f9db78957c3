"""`spacy-elmo.ElmoEncoder.v1`: docs in, all layers of all tokens out."""

from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ..bilm.kernels import PRECISIONS
from ..errors import ElmoError, Errors
from .forks import mind_fork
from .segmenters import NAMED, SegmenterT, Sentence, punct_segmenter, segmenter_name, sentences_of
from .shim import BiLMShim
from .types import EncoderT, LayersT

_NOTHING = np.zeros((0, 0, 0), np.float32)


class SegmenterAttr:
    """A segmenter as an attribute of a model, which travels in bytes by its name.

    segmenter (Optional[SegmenterT]): The function; None for the default.
    """

    def __init__(self, segmenter: Optional[SegmenterT] = None) -> None:
        self.is_default = segmenter is None
        self.function: SegmenterT = segmenter or punct_segmenter


@serialize_attr.register(SegmenterAttr)
def _serialize_segmenter(_: Any, value: SegmenterAttr, name: str, model: Model) -> bytes:
    return (segmenter_name(value.function) or "").encode()


@deserialize_attr.register(SegmenterAttr)
def _deserialize_segmenter(_: Any, value: bytes, name: str, model: Model) -> SegmenterAttr:
    # What the model was built with is what its config says, which may be a user's own function.
    # Only configs of before there was a setting for it say nothing.
    kept: SegmenterAttr = model.attrs[name]
    return SegmenterAttr(NAMED.get(bytes(value).decode())) if kept.is_default else kept


def build_elmo_encoder_v1(precision: str = "float32", trainable: bool = False) -> EncoderT:
    """Build the encoder. It has no weights yet: the component, or bytes, bring them.

    precision (str): Of the weights in inference: "float32", "float16" or "int8".
    trainable (bool): Whether gradients reach the biLM; the component sets it to its own.
    """
    if precision not in PRECISIONS:
        allowed = ", ".join(PRECISIONS)
        raise ElmoError(Errors.E104.format(name="precision", found=precision, allowed=allowed))
    return Model(
        "elmo_encoder",
        forward,
        dims={"nO": None},
        attrs={
            "trainable": trainable,
            "segmenter": SegmenterAttr(),
        },
        shims=[BiLMShim(precision=precision)],
    )


def shim_of(model: EncoderT) -> BiLMShim:
    """The shim of an encoder."""
    shim = model.shims[0]
    assert isinstance(shim, BiLMShim)
    return shim


def forward(
    model: EncoderT, docs: List[Doc], is_train: bool
) -> Tuple[LayersT, Callable[[LayersT], List[Doc]]]:
    """Encode docs; with a graph only if the encoder is trainable and this is training."""
    mind_fork()
    shim = shim_of(model)
    sentences = sentences_of(docs, model.attrs["segmenter"].function)
    words = [sentence.words for sentence in sentences]
    bilm = shim.bilm
    if model.maybe_get_dim("nO") is None:
        model.set_dim("nO", bilm.width)
    bp_embed: Optional[Callable[[List[np.ndarray]], None]] = None
    if is_train and model.attrs["trainable"] and sentences:
        embedded, bp_embed = shim.begin_embed(words)
    else:
        embedded = shim.embed(words)
    outputs = _by_doc(docs, sentences, embedded, (bilm.n_layers, bilm.width))

    def backprop(d_outputs: LayersT) -> List[Doc]:
        if bp_embed is not None:
            arrays = [model.ops.to_numpy(d) for d in d_outputs]
            bp_embed([arrays[number][:, indices] for number, indices, _ in sentences])
        return []

    return [model.ops.asarray3f(y) for y in outputs], backprop


def _by_doc(
    docs: Sequence[Doc],
    sentences: Sequence[Sentence],
    embedded: List[np.ndarray],
    shape: Tuple[int, int],
) -> List[Any]:
    """Put sentences together; rows of whitespace tokens are zero.

    `embedded` is emptied on the way, so that a large doc is not in memory twice.
    """
    n_layers, width = shape
    outputs: List[Any] = [None] * len(docs)
    seen: Set[int] = set()
    for k, (number, indices, _) in enumerate(sentences):
        layers, embedded[k] = embedded[k], _NOTHING
        if (
            len(indices) == len(docs[number])
            and layers.flags.c_contiguous
            and id(layers) not in seen
        ):
            # One sentence, the whole doc: its own array, unless another doc has it already.
            outputs[number] = layers
            seen.add(id(layers))
            continue
        if outputs[number] is None:
            outputs[number] = np.zeros((n_layers, len(docs[number]), width), np.float32)
        outputs[number][:, indices] = layers
    for number, doc in enumerate(docs):
        if outputs[number] is None:
            outputs[number] = np.zeros((n_layers, len(doc), width), np.float32)
    return outputs
