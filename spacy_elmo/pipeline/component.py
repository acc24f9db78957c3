"""The component `elmo`: annotates docs, and feeds the listeners of later components."""

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import numpy as np
from spacy import util
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from ..bilm.allocator import return_freed_memory
from ..bilm.encoder import BiLM
from ..errors import ElmoError, Errors
from ..layers.annotations import register_extensions, store
from ..layers.cache import CacheStatistics
from ..layers.encoder import shim_of
from ..layers.listener import ListenerState, ListenerStates, is_sized, state_of, tell_sizes
from ..layers.replacing import ListenerReplacement, replacement_of
from ..layers.segmenters import SegmenterT
from ..layers.settings import EncoderSettings
from ..layers.source import WeightsT, as_source
from ..layers.types import EncoderT, LayersT
from .hooks import set_hooks
from .pending import PendingUpdate
from .settings import MixT, check_encoder, check_settings

WEIGHTS_NAME = "weights"
#: Batches of the biLM that docs are collected for, so that sentences of like length meet.
TOGETHER = 4


class Elmo(TrainablePipe):
    """Contextual vectors from a biLM (Peters et al. 2018).

    Made by `nlp.add_pipe("elmo")`. Reads no file until weights are needed.

    vocab (Vocab): The pipeline's vocab.
    model (Model): An `ElmoEncoder.v1`.
    name (str): The component's name.
    weights (Union[str, List[str]]): Built-in name, path, or the two paths of options and weights.
    trainable (bool): Whether the listeners' gradients reach the biLM.
    mix (Union[str, List[float]]): The component's own mix: "mean", "top", or L + 1 weights.
    store (str): What stays on the docs: "layers", "vectors" or "none".
    hooks (bool): Whether `.vector` and `.similarity` come from ELMo.
    cache_mb (float): Outputs of a frozen encoder that are kept during training, in MiB; 0 for
        none. Outside of training 16 MiB of them are used at most.
    cache_path (Optional[str]): File behind the cache, shared between runs. Outside of training it
        is read if it is there, and not written.
    cache_file_mb (float): What that file may grow to, in MiB; 0 for no limit.
    max_batch_tokens (int): Tokens that are encoded at a time; a batch through which gradients go
        is one graph, however large.
    segmenter (SegmenterT): Cuts docs into what is encoded together.
    learn_rate_factor (float): The encoder's learn rate relative to the optimiser's.
    :raises ElmoError: E104, E117, E180, E181 for settings that cannot be used.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: EncoderT,
        name: str = "elmo",
        *,
        weights: Optional[WeightsT],
        trainable: bool,
        mix: MixT,
        store: str,
        hooks: bool,
        cache_mb: float,
        cache_path: Optional[str],
        cache_file_mb: float,
        max_batch_tokens: int,
        segmenter: SegmenterT,
        learn_rate_factor: float,
    ) -> None:
        super().__init__(vocab, model, name)
        check_encoder(model)
        check_settings(mix, store)
        settings = EncoderSettings(
            weights=weights,
            segmenter=segmenter,
            trainable=trainable,
            learn_rate_factor=learn_rate_factor,
            cache_mb=cache_mb,
            cache_path=cache_path,
            cache_file_mb=cache_file_mb,
            max_batch_tokens=max_batch_tokens,
        )
        settings.apply(model)
        ListenerReplacement(settings).install(model)
        self.cfg: Dict[str, Any] = {"mix": mix, "store": store, "hooks": hooks}
        self.listener_map: Dict[str, List[Model]] = {}
        # spaCy empties its map whenever it links a pipeline, and then leaves out what is disabled,
        # or belongs to another pipeline with which this object is shared.
        self._known = ListenerStates()
        self._pending = PendingUpdate()
        register_extensions()

    # -- facts ---------------------------------------------------------------------------

    @property
    def bilm(self) -> BiLM:
        """The biLM itself; loads the weights if they were not needed yet."""
        return shim_of(self.model).bilm

    @property
    def trainable(self) -> bool:
        """Whether the biLM learns."""
        return bool(self.model.attrs["trainable"])

    @property
    def cache(self) -> CacheStatistics:
        """What the cache of frozen outputs did so far."""
        return shim_of(self.model).cache.statistics

    @property
    def is_trainable(self) -> bool:
        """Whether spaCy should call `update`: always, since that is how listeners are fed."""
        return True

    def mix_weights(self) -> np.ndarray:
        """The component's own mix, a weight for each layer. *(L + 1,)*."""
        n, mix = self.bilm.n_layers, self.cfg["mix"]
        if mix == "mean":
            return np.full(n, 1.0 / n, np.float32)
        if mix == "top":
            return np.eye(n, dtype=np.float32)[-1]
        if len(mix) != n:
            raise ElmoError(Errors.E004.format(found=mix, n=len(mix), n_layers=n))
        return np.array(mix, np.float32)

    # -- listeners -----------------------------------------------------------------------

    @property
    def listeners(self) -> List[Model]:
        """RETURNS (List[Model]): The listener nodes that are linked to this component."""
        return [m for name in self.listening_components for m in self.listener_map[name]]

    @property
    def listening_components(self) -> List[str]:
        """RETURNS (List[str]): Names of the components that listen."""
        return list(self.listener_map)

    def add_listener(self, listener: Model, component_name: str) -> None:
        """Link a listener, and tell it how wide the layers are, if that is known yet."""
        known = self.listener_map.setdefault(component_name, [])
        if not any(node is listener for node in known):
            known.append(listener)
        state = _state(listener)
        state.link(self)
        self._known.add(state)

    def remove_listener(self, listener: Model, component_name: str) -> bool:
        """Unlink a listener. RETURNS (bool): Whether it was linked."""
        self._known.discard(_state(listener))
        known = self.listener_map.get(component_name, [])
        kept = [node for node in known if node is not listener]
        if len(kept) == len(known):
            return False
        self.listener_map[component_name] = kept
        if not kept:
            del self.listener_map[component_name]
        return True

    def find_listeners(self, component: Any) -> None:
        """Link all listeners of a later component that ask for this one, or for any."""
        replacement_of(self.model).remember_segmenter(self)
        model = getattr(component, "model", None)
        if not isinstance(model, Model):
            return
        for node in model.walk():
            state = state_of(node)
            if state is not None and state.upstream in ("*", self.name):
                self.add_listener(node, component.name)
        shim = shim_of(self.model)
        # Weights are loaded late, but in time to say that a trained listener was made for others.
        linked = self.listener_map.get(component.name, [])
        if shim.is_loaded or (shim.source is not None and is_sized(model, linked)):
            self._tell_sizes(component.name, model)

    def _fed(self) -> List[ListenerState]:
        """States of all listeners that there are, whether spaCy's map has them now or not."""
        return [state for state in self._known if state.upstream in ("*", self.name)]

    def _tell_sizes(self, name: str, model: Model) -> None:
        bilm = self.bilm
        tell_sizes(model, self.listener_map.get(name, []), bilm.n_layers, bilm.width)

    def _refuse_rivals(self, nlp: Language) -> None:
        """Raise if a listener to any component has several to choose from."""
        names = nlp.component_names
        for name, nodes in self.listener_map.items():
            before = [n for n in names[: names.index(name)] if n in nlp.pipe_names]
            upstreams = [n for n in before if isinstance(nlp.get_pipe(n), Elmo)]
            if len(upstreams) > 1 and any(_state(node).upstream == "*" for node in nodes):
                raise ElmoError(Errors.E112.format(name=name, upstreams=", ".join(upstreams)))

    # -- annotating ----------------------------------------------------------------------

    def predict(self, docs: Iterable[Doc]) -> LayersT:
        """All layers of docs, which are not changed. *(L + 1, n_tokens, width)* each."""
        layers: LayersT = self.model.predict(list(docs))
        return layers

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Annotate a stream of docs, see spaCy's `Pipe.pipe`.

        stream (Iterable[Doc]): The docs.
        batch_size (int): Docs that are encoded together at most. Long ones are fewer: all layers
            of what is encoded together are in memory until the docs have what `store` keeps.
        YIELDS (Doc): The same docs, in order.
        """
        limit = TOGETHER * shim_of(self.model).max_batch_tokens
        for docs in _bounded(stream, batch_size, limit):
            yield from super().pipe(docs, batch_size=len(docs))
        return_freed_memory(0, ends=True)

    def set_annotations(self, docs: Sequence[Doc], layers: LayersT) -> None:
        """Put layers on docs, as `store` says.

        Listeners read layers from the docs, so they stay there as long as there are any, be
        they disabled.
        """
        what = "layers" if self._fed() else self.cfg["store"]
        mix = self.mix_weights()
        for doc, array in zip(docs, layers):
            store(doc, self.model.ops.to_numpy(array), mix, what, self.name)
            if self.cfg["hooks"]:
                set_hooks(doc)

    def score_doc(self, doc: Doc) -> Doc:
        """Put log-probabilities of the component's language model on a doc, which it returns.

        Needs the softmax, which is read from where the weights came from; see
        `spacy_elmo.score` for what is on the doc then.
        """
        from .language_model import score

        return score(doc, self, segmenter=self.model.attrs["segmenter"].function)

    # -- training ------------------------------------------------------------------------

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        weights: Optional[WeightsT] = None,
    ) -> None:
        """Load the weights, so that the components behind know how wide the vectors are.

        get_examples (Callable): Not used; there is nothing to infer from data.
        nlp (Optional[Language]): The pipeline, whose listeners are told the sizes.
        weights (Optional[Union[str, List[str]]]): What to load instead of the configured weights.
        """
        shim = shim_of(self.model)
        if weights is not None:
            shim.source = source = as_source(weights)
            shim.load(source)
        self._loaded()
        if nlp is not None:
            self._refuse_rivals(nlp)
            for name, component in nlp.pipeline:
                if name in self.listener_map:
                    self._tell_sizes(name, component.model)  # type: ignore[attr-defined]

    def _loaded(self) -> None:
        bilm = self.bilm
        if self.model.maybe_get_dim("nO") is None:
            self.model.set_dim("nO", bilm.width)
        elif self.model.get_dim("nO") != bilm.width:
            found, expected = self.model.get_dim("nO"), bilm.width
            raise ElmoError(Errors.E109.format(what="width", found=found, expected=expected))
        self.mix_weights()

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Encode a batch and hand it to the listeners.

        If the encoder learns, the listeners' gradients are collected, and go through it before
        the next batch or in `finish_update`, whichever comes first: so it does not matter which
        listeners take part in a batch, and which is the last.

        losses (Optional[Dict[str, float]]): Gets an entry of 0, the loss being the listeners'.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "Elmo.update")
        docs = [eg.predicted for eg in examples]
        set_dropout_rate(self.model, drop)
        self._pending.flush()
        if self.trainable:
            layers, backprop = self.model.begin_update(docs)
            self._pending = PendingUpdate(backprop)
        else:
            shim_of(self.model).cache.train()
            layers = self.model.predict(docs)
        for state in self._fed():
            state.receive(docs, layers, self._pending.add if self.trainable else None)
        if sgd is not None and sgd is not False:
            self.finish_update(sgd)
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Send the collected gradients through the encoder and update it."""
        self._pending.flush()
        self.model.finish_update(sgd)

    def fill_cache(self, docs: Iterable[Doc], *, batch_size: int = 128) -> CacheStatistics:
        """Encode docs and keep the outputs as a training does, before there is one.

        So several trainings that share the file (`cache_path`) find it complete.

        docs (Iterable[Doc]): The docs, which are not changed.
        batch_size (int): Docs that are encoded together.
        RETURNS (CacheStatistics): What the cache did so far.
        :raises ElmoError: E118 if the file cannot be written, E183 if there is no cache.
        """
        cache = shim_of(self.model).cache
        if not cache.enabled:
            raise ElmoError(Errors.E183.format(name=self.name))
        trained = cache.trains
        cache.train()
        try:
            for batch in util.minibatch(docs, batch_size):
                self.predict(batch)
        finally:
            cache.train(trained)
        return cache.statistics

    def get_loss(self, examples: Iterable[Example], scores: Any) -> None:
        """There is none of its own."""

    def add_label(self, label: str) -> int:
        """The component has no labels."""
        raise ElmoError(Errors.E110)

    # -- files ---------------------------------------------------------------------------

    # Settings are not among the files: the pipeline's config has them, and whoever loads it may
    # give others.

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Weights as bytes."""
        data: bytes = util.to_bytes({WEIGHTS_NAME: lambda: shim_of(self.model).to_bytes()}, exclude)
        return data

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "Elmo":
        """Take what `to_bytes` gave."""
        util.from_bytes(data, {WEIGHTS_NAME: lambda b: shim_of(self.model).from_bytes(b)}, exclude)
        if WEIGHTS_NAME not in exclude:
            self._loaded()
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write the weights as a model folder that all commands can read."""
        self._log_cache()
        util.to_disk(path, {WEIGHTS_NAME: lambda p: shim_of(self.model).write(p)}, exclude)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "Elmo":
        """Read what `to_disk` wrote; weights are mapped, so that pipelines share them."""
        util.from_disk(path, {WEIGHTS_NAME: lambda p: shim_of(self.model).read(p)}, exclude)
        if WEIGHTS_NAME not in exclude:
            self._loaded()
        return self

    def _log_cache(self) -> None:
        """Say how the cache did. `spacy train` saves after each evaluation and at the end."""
        now = self.cache
        if now.hits + now.file_hits + now.misses:
            util.logger.info(
                "Cache of '%s': %d hits, %d of them in the file, %d misses, %.1f MiB in memory",
                self.name,
                now.hits + now.file_hits,
                now.file_hits,
                now.misses,
                now.n_bytes / 2**20,
            )


def _state(listener: Model) -> ListenerState:
    state = state_of(listener)
    if state is None:
        raise ElmoError(Errors.E111.format(name=listener.name))
    return state


def _bounded(stream: Iterable[Doc], size: int, n_tokens: int) -> Iterator[List[Doc]]:
    """Lists of at most so many docs that have at most so many tokens, but for a single doc."""
    docs: List[Doc] = []
    total = 0
    for doc in stream:
        if docs and (len(docs) >= size or total + len(doc) > n_tokens):
            yield docs
            docs, total = [], 0
        docs.append(doc)
        total += len(doc)
    if docs:
        yield docs
