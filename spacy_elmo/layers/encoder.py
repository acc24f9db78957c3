"""`spacy-elmo.ElmoEncoder.v1`: docs in, all layers of all tokens out."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

import numpy as np
from spacy.attrs import IS_SPACE
from spacy.tokens import Doc
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ..bilm.kernels import PRECISIONS
from ..errors import ElmoError, Errors
from .forks import mind_fork
from .segmenters import NAMED, SegmenterT, punct_segmenter, segmenter_name
from .shim import BiLMShim
from .types import EncoderT, LayersT

_NOTHING = np.zeros((0, 0, 0), np.float32)


class SegmenterAttr:
    """A segmenter as an attribute of a model, which travels in bytes by its name.

    segmenter (SegmenterT): The function.
    """

    def __init__(self, segmenter: SegmenterT = punct_segmenter) -> None:
        self.function = segmenter


@serialize_attr.register(SegmenterAttr)
def _serialize_segmenter(_: Any, value: SegmenterAttr, name: str, model: Model) -> bytes:
    return (segmenter_name(value.function) or "").encode()


@deserialize_attr.register(SegmenterAttr)
def _deserialize_segmenter(_: Any, value: bytes, name: str, model: Model) -> SegmenterAttr:
    # One of the user's own has no name to go by; the model keeps what it was built with.
    found = NAMED.get(bytes(value).decode())
    kept: SegmenterAttr = model.attrs[name]
    return kept if found is None else SegmenterAttr(found)


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
            "replace_listener_cfg": replace_listener_cfg,
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
    places, sentences = _sentences(model.attrs["segmenter"].function, docs)
    bilm = shim.bilm
    if model.maybe_get_dim("nO") is None:
        model.set_dim("nO", bilm.width)
    bp_embed: Optional[Callable[[List[np.ndarray]], None]] = None
    if is_train and model.attrs["trainable"] and sentences:
        embedded, bp_embed = shim.begin_embed(sentences)
    else:
        embedded = shim.embed(sentences)
    outputs = _by_doc(docs, places, embedded, (bilm.n_layers, bilm.width))

    def backprop(d_outputs: LayersT) -> List[Doc]:
        if bp_embed is not None:
            arrays = [model.ops.to_numpy(d) for d in d_outputs]
            bp_embed([arrays[number][:, indices] for number, indices in places])
        return []

    return [model.ops.asarray3f(y) for y in outputs], backprop


def _by_doc(
    docs: Sequence[Doc],
    places: Sequence[Tuple[int, np.ndarray]],
    embedded: List[np.ndarray],
    shape: Tuple[int, int],
) -> List[Any]:
    """Put sentences together; rows of whitespace tokens are zero.

    `embedded` is emptied on the way, so that a large doc is not in memory twice.
    """
    n_layers, width = shape
    outputs: List[Any] = [None] * len(docs)
    seen: Set[int] = set()
    for k, (number, indices) in enumerate(places):
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


def _sentences(
    segmenter: SegmenterT, docs: Sequence[Doc]
) -> Tuple[List[Tuple[int, np.ndarray]], List[List[str]]]:
    """Sentences with the doc and tokens that they come from; whitespace tokens are left out."""
    places: List[Tuple[int, np.ndarray]] = []
    sentences: List[List[str]] = []
    for number, (doc, spans) in enumerate(zip(docs, segmenter(docs))):
        # By columns: an attribute of one token after another takes longer than all the rest.
        texts = [token.text for token in doc]
        is_word = doc.to_array(IS_SPACE) == 0
        for start, stop in spans:
            indices = np.flatnonzero(is_word[start:stop]) + start
            if len(indices):
                places.append((number, indices))
                sentences.append([texts[i] for i in indices.tolist()])
    return places, sentences


def replace_listener_cfg(
    encoder: Dict[str, Any], tok2vec: Dict[str, Any], weights: Union[str, List[str]] = "en_mini"
) -> Dict[str, Any]:
    """Config of what stands in a listener's place after `nlp.replace_listeners`.

    encoder (Dict[str, Any]): Config of the encoder that is copied.
    tok2vec (Dict[str, Any]): Config of the task's tok2vec: a listener, or something around one.
    weights (Union[str, List[str]]): Where the component has its weights from.
    """
    listener = _find_listener(tok2vec) or {}
    mix = {k: v for k, v in listener.items() if k not in ("@architectures", "width", "upstream")}
    return {
        "@architectures": "spacy-elmo.ElmoTok2Vec.v1",
        "weights": weights,
        "precision": encoder.get("precision", "float32"),
        **mix,
    }


def _find_listener(config: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    if config.get("@architectures") == "spacy-elmo.ElmoListener.v1":
        return config
    found = (_find_listener(part) for part in config.values() if isinstance(part, dict))
    return next((part for part in found if part is not None), None)
