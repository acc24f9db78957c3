"""`spacy-elmo.ElmoListener.v1`: a task's door to the shared encoder, with its own scalar mix.

The listener is a plain node; what makes it one is the `ListenerState` among its attributes, which
is serialised to nothing. So copies, pickles and bytes of a task's model all keep a working
listener, and never carry a batch along.
"""

import weakref
from typing import Any, Callable, List, Optional, Protocol, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ..errors import ElmoError, Errors
from .annotations import doc_layers
from .encoder import shim_of
from .scalar_mix import build_scalar_mix_v1, set_parameters
from .types import EncoderT, LayersT, MixT, Tok2VecT, VectorsT

ATTR = "elmo_listener"
JOIN_NAME = "elmo_tok2vec"
#: Attribute of nodes around a join whose own width follows from its width: a function of the node.
INFER_WIDTH = "elmo_infer_width"


class ComponentT(Protocol):
    """What can be listened to."""

    name: str
    model: EncoderT

    @property
    def trainable(self) -> bool:
        """Whether it wants gradients."""


class ListenerState:
    """What a listener listens to, and the batch that it was given last.

    upstream (str): Name of the component to listen to, "*" for any.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        #: Name of the component, once linked, and whether it wants gradients.
        self.linked_to: Optional[str] = None
        self.needs_gradient = False
        self._component: Optional["weakref.ref[ComponentT]"] = None
        #: Docs of `initialize`, which models run on to find out their sizes before any
        #: component has annotated them.
        self.sample: List[Doc] = []
        self._docs: Optional[List[Doc]] = None
        self._outputs: Optional[LayersT] = None
        self._backprop: Optional[Callable[[LayersT], None]] = None

    def link(self, component: ComponentT) -> None:
        """Link to a component, which is not kept alive by that."""
        self._component = weakref.ref(component)
        self.linked_to = component.name
        self.needs_gradient = component.trainable

    @property
    def encoder(self) -> Optional[EncoderT]:
        """The linked component's encoder, None if there is no such component (any more)."""
        component = None if self._component is None else self._component()
        return None if component is None else component.model

    def receive(
        self,
        docs: Sequence[Doc],
        outputs: LayersT,
        backprop: Optional[Callable[[LayersT], None]],
    ) -> None:
        """Take a batch from the encoder, with the function that takes the gradients."""
        self._docs, self._outputs, self._backprop = list(docs), outputs, backprop
        # Also after a copy or pickle, which know of no link.
        self.needs_gradient = backprop is not None
        self.sample = []

    def take(
        self, docs: Sequence[Doc]
    ) -> Optional[Tuple[LayersT, Optional[Callable[[LayersT], None]]]]:
        """Hand the batch out, once; None if there is none, or docs have layers of their own.

        :raises ElmoError: E106 if the batch was made of other docs, and these have no layers.
        """
        if self._docs is None or self._outputs is None:
            return None
        given, outputs, backprop = self._docs, self._outputs, self._backprop
        self._docs = self._outputs = self._backprop = None
        if len(given) != len(docs) or not all(_same(a, b) for a, b in zip(given, docs)):
            if all(len(doc) == 0 or self.layers_on(doc) is not None for doc in docs):
                # Left over from when the listener was excluded; now the component annotates.
                return None
            raise ElmoError(Errors.E106.format(found=len(docs), expected=len(given)))
        return outputs, backprop

    @property
    def name(self) -> Optional[str]:
        """Name of the component, None if it could be any."""
        return self.linked_to or (self.upstream if self.upstream != "*" else None)

    def layers_on(self, doc: Doc) -> Optional[np.ndarray]:
        """The component's layers on a doc, None if there are none."""
        layers = doc_layers(doc, self.name)
        return doc_layers(doc) if layers is None and self.upstream == "*" else layers

    def __reduce__(self) -> Tuple[Any, ...]:
        return ListenerState, (self.upstream,)


class ListenerStates(weakref.WeakSet):
    """The states of listeners, as long as these live: a component that is removed is forgotten."""

    def __reduce__(self) -> Tuple[Any, ...]:
        # As it is, a set of weak references cannot be pickled.
        return ListenerStates, (list(self),)


def _same(a: Doc, b: Doc) -> bool:
    return a is b or (len(a) == len(b) and all(s.orth == t.orth for s, t in zip(a, b)))


@serialize_attr.register(ListenerState)
def _serialize_state(_: Any, value: ListenerState, name: str, model: Model) -> bytes:
    return b""


@deserialize_attr.register(ListenerState)
def _deserialize_state(_: Any, value: bytes, name: str, model: Model) -> ListenerState:
    kept: ListenerState = model.attrs[name]
    return kept


def state_of(model: Model) -> Optional[ListenerState]:
    """The state of a listener, None for any other node."""
    state = model.attrs.get(ATTR)
    return state if isinstance(state, ListenerState) else None


def build_listener(upstream: str = "*", width: Optional[int] = None) -> EncoderT:
    """Build the listener alone: all layers of the encoder that it is linked to."""
    model: EncoderT = Model(
        "elmo_listener",
        _forward_listener,
        dims={"nO": width, "nL": None},
        attrs={ATTR: ListenerState(upstream)},
    )
    return model


def _forward_listener(
    model: EncoderT, docs: List[Doc], is_train: bool
) -> Tuple[LayersT, Callable[[LayersT], List[Doc]]]:
    state = state_of(model)
    assert state is not None
    if is_train:
        batch = state.take(docs)
        if batch is not None:
            outputs, callback = batch

            def backprop(d_outputs: LayersT) -> List[Doc]:
                if callback is not None and len(d_outputs):
                    callback(d_outputs)
                return []

            return outputs, backprop
    return [_from_doc(model, doc, state, is_train) for doc in docs], _no_backprop


def _from_doc(model: EncoderT, doc: Doc, state: ListenerState, is_train: bool) -> Any:
    layers: Any = state.layers_on(doc)
    if layers is not None:
        return model.ops.asarray3f(layers)
    in_sample = any(doc is known for known in state.sample)
    if (len(doc) == 0 or in_sample) and model.maybe_get_dim("nL") is not None:
        return model.ops.alloc3f(model.get_dim("nL"), len(doc), model.get_dim("nO"))
    name = state.name or "elmo"
    if is_train:
        raise ElmoError(Errors.E107.format(upstream=name))
    raise ElmoError(Errors.E108.format(upstream=name, text=doc.text[:40]))


def _no_backprop(d_outputs: LayersT) -> List[Doc]:
    return []


def join(source: EncoderT, mix: Any) -> Tok2VecT:
    """A source of layers (listener or encoder) with the mix of its layers."""
    model: Tok2VecT = Model(
        JOIN_NAME,
        _forward_join,
        init=_init_join,
        dims={"nO": source.maybe_get_dim("nO")},
        layers=[source, mix],
    )
    return model


def _encoder_of(source: EncoderT) -> Optional[EncoderT]:
    """The encoder behind a source of layers: the linked component's, or the source itself."""
    state = state_of(source)
    return source if state is None else state.encoder


def _wants_gradient(source: EncoderT) -> bool:
    state = state_of(source)
    return state.needs_gradient if state is not None else bool(source.attrs.get("trainable"))


def _forward_join(
    model: Tok2VecT, docs: List[Doc], is_train: bool
) -> Tuple[VectorsT, Callable[[VectorsT], List[Doc]]]:
    source, mix = model.layers
    (vectors,), bp_mixes = forward_mixes(source, [mix], docs, is_train)
    return vectors, lambda d_vectors: bp_mixes([d_vectors])


def forward_mixes(
    source: EncoderT, mixes: Sequence[MixT], docs: List[Doc], is_train: bool
) -> Tuple[List[VectorsT], Callable[[List[VectorsT]], List[Doc]]]:
    """Run a source of layers once, and any number of mixes on what it gives.

    source (Model): Listener or encoder.
    mixes (Sequence[Model]): Scalar mixes.
    RETURNS (Tuple[List[VectorsT], Callable]): Vectors of each mix, and a callback that takes the
        gradients of each.
    """
    layers, bp_layers = source(docs, is_train)
    encoder = _encoder_of(source)
    if is_train and encoder is not None:
        # Else a component that is frozen the way of spaCy, and only annotates, would not know.
        shim_of(encoder).cache.train()
    wanted = is_train and _wants_gradient(source)
    outputs: List[VectorsT] = []
    callbacks: List[Callable[[VectorsT], LayersT]] = []
    for mix in mixes:
        mix.attrs["input_gradient"] = wanted
        vectors, callback = mix(layers, is_train)
        outputs.append(vectors)
        callbacks.append(callback)

    def backprop(d_outputs: List[VectorsT]) -> List[Doc]:
        gradients = [callback(d) for callback, d in zip(callbacks, d_outputs)]
        if not wanted:
            return []
        # In one piece: the graph behind the layers can be gone through once.
        total = gradients[0]
        for others in gradients[1:]:
            total = [a + b for a, b in zip(total, others)]
        return bp_layers(total)

    return outputs, backprop


def _init_join(
    model: Tok2VecT, X: Optional[List[Doc]] = None, Y: Optional[VectorsT] = None
) -> None:
    source, mix = model.layers
    encoder, state = _encoder_of(source), state_of(source)
    if encoder is None:
        set_sizes(model, source.maybe_get_dim("nL"), source.maybe_get_dim("nO"))
    else:
        # A component that is frozen the way of spaCy is not initialised, so it is asked here.
        bilm = shim_of(encoder).bilm
        set_sizes(model, bilm.n_layers, bilm.width)
    if state is not None and X is not None:
        state.sample = list(X)
        if encoder is not None:
            shim_of(encoder).cache.train()
    source.initialize(X=X)
    mix.initialize()


def tell_sizes(model: Model, listeners: Sequence[Model], n_layers: int, width: int) -> None:
    """Tell all mixes in a model that stand behind these listeners what will come.

    :raises ElmoError: E109 if one was built for other sizes.
    """
    for node in model.walk():
        if node.name == JOIN_NAME and any(node.layers[0] is m for m in listeners):
            set_sizes(node, n_layers, width)
    for node in model.walk():
        if INFER_WIDTH in node.attrs:
            node.attrs[INFER_WIDTH](node)


def is_sized(model: Model, listeners: Sequence[Model]) -> bool:
    """Whether a mix behind one of these listeners has parameters, and so takes no other sizes."""
    joins = (node for node in model.walk() if node.name == JOIN_NAME)
    return any(
        bool(join.layers[1].has_param("w")) and any(join.layers[0] is m for m in listeners)
        for join in joins
    )


def set_sizes(model: Tok2VecT, n_layers: Optional[int], width: Optional[int]) -> None:
    """Tell a joined node how many layers of which width will come.

    :raises ElmoError: E109 if it was built for others.
    """
    source, mix = model.layers
    for node, dim, value in (
        (source, "nO", width),
        (model, "nO", width),
        (mix, "nO", width),
        (mix, "nL", n_layers),
        (source, "nL", n_layers),
    ):
        if value is None or node.has_dim(dim) is False:
            continue
        found = node.maybe_get_dim(dim)
        if found is None:
            node.set_dim(dim, value)
        elif found != value:
            what = "width" if dim == "nO" else "number of layers"
            raise ElmoError(Errors.E109.format(what=what, found=found, expected=value))
    if mix.maybe_get_dim("nL") is not None:
        set_parameters(mix)


def build_elmo_listener_v1(
    upstream: str = "*",
    width: Optional[int] = None,
    init_weights: Optional[List[float]] = None,
    trainable: bool = True,
    layer_norm: bool = False,
    dropout: float = 0.0,
    l2: float = 0.0,
) -> Tok2VecT:
    """Build a listener with its own scalar mix; goes where a task wants a tok2vec.

    upstream (str): Name of the elmo component to listen to, "*" for any.
    width (Optional[int]): Width of its vectors; taken from the component when it is linked, and
        checked if given. Give it to architectures that want to know it when they are built:
        `spacy.EntityLinker.v2` does.
    init_weights, trainable, layer_norm, dropout, l2: See `ScalarMix.v1`.
    """
    mix = build_scalar_mix_v1(None, init_weights, trainable, layer_norm, dropout, l2)
    return join(build_listener(upstream, width), mix)
