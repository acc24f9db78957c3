"""The biLM as thinc sees it: a shim that loads late, embeds through a cache, learns, and travels.

thinc's own PyTorchShim is not used: it serialises with pickle, leaves the module in training mode
after each prediction, and its parameter averages never reach the module.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import srsly
import torch
from thinc.api import Optimizer, Shim

from ..bilm.encoder import BiLM
from ..bilm.io import ModelFiles, read_native, write_native
from ..errors import ElmoError, Errors
from .cache import SentenceCache
from .forks import before_fork
from .shared_models import SourceT, load_shared

PathT = Union[str, Path]


class BiLMShim(Shim):
    """Holds a biLM. Until it is needed there is none, only where to load it from.

    source (Optional[SourceT]): Built-in name, path, or the two paths of options and weights.
    precision (str): Precision of inference.
    """

    def __init__(self, source: Optional[SourceT] = None, precision: str = "float32") -> None:
        super().__init__(None, config={"precision": precision})
        self.source = source
        self.cache = SentenceCache(0)
        self.max_batch_tokens = 4096
        self.learn_rate_factor = 1.0
        self._frozen = True
        self._pid = os.getpid()
        before_fork(self)

    # -- weights -------------------------------------------------------------------------

    @property
    def bilm(self) -> BiLM:
        """The model, loaded now if it was not yet.

        :raises ElmoError: E101 if there is nothing to load from, and what the reader raises.
        """
        if self._model is None:
            if self.source is None:
                raise ElmoError(Errors.E101)
            self.load(self.source)
        model: BiLM = self._model
        return model

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._model is not None

    def load(self, source: SourceT) -> None:
        """Load a model; pipelines that load the same files share its weights.

        source (SourceT): Built-in name, path, or the two paths of options and weights.
        """
        self.set_bilm(load_shared(source))

    def set_bilm(self, bilm: BiLM) -> None:
        """Take another model, which may be shared; what was cached of the old one is forgotten.

        One that carries states from call to call is taken as a primed one, over the same weights:
        a pipeline's vectors may not depend on what it was given before.
        """
        if bilm.config.initial_state == "carry":
            bilm = BiLM.from_files(bilm.to_files(), initial_state="primed")
        self._model = bilm.eval()
        self._pid = os.getpid()
        self._frozen = True
        for p in bilm.parameters():
            p.requires_grad_(False)
        self._forget_outputs()

    def _forget_outputs(self) -> None:
        self.cache.clear()
        self.cache.fingerprint = ""

    def _weights_changed(self) -> None:
        if self._model is not None:
            self._model.reset_states()
        self._forget_outputs()

    def prepare(self) -> None:
        """Load and lay out weights now, so that processes that are forked off share the result."""
        if self._model is None and self.source is not None:
            # What is wrong with them is said when they are needed.
            with contextlib.suppress(ElmoError, OSError):
                self.load(self.source)
        if self._model is not None and self._frozen and self._model.suits_engine:
            self._model.engine(self.cfg["precision"])

    def fingerprint(self) -> str:
        """Hash of weights, numerics and precision: what the vectors of a sentence depend on."""
        digest = hashlib.blake2b(digest_size=16)
        config = self.bilm.config
        facts = {**config.to_dict(), "meta": {}, "precision": self.cfg["precision"]}
        digest.update(srsly.json_dumps(facts, sort_keys=True).encode())
        for name, tensor in sorted(self.bilm.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    # -- computing -----------------------------------------------------------------------

    def embed(self, sentences: Sequence[Sequence[str]]) -> List[np.ndarray]:
        """Layers of sentences, without a graph; what the cache has is not computed again.

        sentences (Sequence[Sequence[str]]): Token texts.
        RETURNS (List[ndarray]): *(L + 1, n_tokens, width)* each, not to be changed.
        :raises ElmoError: E182 in a forked process if the weights are on a GPU.
        """
        self._refuse_gpu_in_fork()
        if not self.cache.enabled:
            return self._compute(sentences)
        if not self.cache.fingerprint:
            # Only a file is shared with other weights; hashing them takes a while.
            self.cache.fingerprint = self.fingerprint() if self.cache.has_file else "memory"
        results: List[Optional[np.ndarray]] = [self.cache.get(s) for s in sentences]
        missing: Dict[Tuple[str, ...], List[int]] = {}
        for i, found in enumerate(results):
            if found is None:
                missing.setdefault(tuple(sentences[i]), []).append(i)
        # In later epochs of a training nothing is missing.
        computed = self._compute(list(missing)) if missing else []
        for (tokens, places), layers in zip(missing.items(), computed):
            self.cache.put(tokens, layers)
            for i in places:
                results[i] = layers
        return [layers for layers in results if layers is not None]

    def _compute(self, sentences: Sequence[Sequence[str]]) -> List[np.ndarray]:
        precision = self.cfg["precision"]
        return self.bilm.embed(sentences, batch_tokens=self.max_batch_tokens, precision=precision)

    def begin_embed(
        self, sentences: Sequence[Sequence[str]]
    ) -> Tuple[List[np.ndarray], Callable[[List[np.ndarray]], None]]:
        """Layers of sentences, and the function that takes their gradients.

        RETURNS (Tuple[List[ndarray], Callable]): Layers as from `embed`, and a callback that
            takes arrays of the same shapes and adds to the gradients of the weights.
        :raises ElmoError: E182 in a forked process if the weights are on a GPU.
        """
        self._refuse_gpu_in_fork()
        if self._frozen:
            self._unfreeze()
        bilm = self.bilm
        with torch.enable_grad():
            flat = bilm(sentences)
        edges = np.cumsum([0, *(len(s) + 2 for s in sentences)])
        values = flat.detach().cpu().numpy()
        spans = [(a + 1, b - 1) for a, b in zip(edges, edges[1:])]
        outputs = [values[:, a:b].copy() for a, b in spans]

        def backprop(gradients: List[np.ndarray]) -> None:
            d_flat = torch.zeros_like(flat)
            for (a, b), gradient in zip(spans, gradients):
                d_flat[:, a:b] = torch.from_numpy(np.ascontiguousarray(gradient)).to(d_flat.device)
            flat.backward(d_flat)

        return outputs, backprop

    def _refuse_gpu_in_fork(self) -> None:
        """CUDA does not work in a forked process, and what it says about it helps nobody.

        It cannot be said before the fork: Python swallows errors of what it calls there.
        """
        if self._pid != os.getpid():
            device = self.bilm.token_encoder.char_embedding.device
            if device.type != "cpu":
                raise ElmoError(Errors.E182.format(device=device))

    def _unfreeze(self) -> None:
        """Take a copy of the weights: these may be another pipeline's too, or belong to a file."""
        files = self.bilm.to_files()
        files.tensors = {name: t.clone() for name, t in files.tensors.items()}
        self._model = BiLM.from_files(files)
        self._frozen = False
        for p in self._model.parameters():
            p.requires_grad_(True)

    # -- thinc ---------------------------------------------------------------------------

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights from their gradients, if there are any."""
        if self._model is None or self._frozen:
            return
        changed = False
        for name, p in self._model.named_parameters():
            if p.grad is None:
                continue
            # On the CPU, wherever the weights are: thinc's optimiser takes arrays of its own ops.
            weight, gradient = p.data.cpu().numpy(), p.grad.cpu().numpy()
            new, _ = optimizer((self.id, name), weight, gradient, lr_scale=self.learn_rate_factor)
            p.data = _like(new, p.data)
            p.grad = None
            changed = True
        if changed:
            self._weights_changed()

    @contextlib.contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        """Have the weights be these (an optimiser's averages) for a while."""
        if self._model is None:
            yield
            return
        backup = {}
        for name, p in self._model.named_parameters():
            value = params.get((self.id, name))
            if value is not None:
                backup[name] = p.data
                p.data = _like(value, p.data)
        if backup:
            self._weights_changed()
        try:
            yield
        finally:
            for name, p in self._model.named_parameters():
                if name in backup:
                    p.data = backup[name]
            if backup:
                self._weights_changed()

    def copy(self) -> "BiLMShim":
        """Another shim; weights that do not learn are shared, others copied."""
        return self._duplicate(self.cfg["precision"])

    def __deepcopy__(self, memo: Dict[int, Any]) -> "BiLMShim":
        return self._duplicate(self.cfg["precision"])

    def _duplicate(self, precision: str) -> "BiLMShim":
        new = BiLMShim(self.source, precision)
        new.max_batch_tokens = self.max_batch_tokens
        new.learn_rate_factor = self.learn_rate_factor
        new.cache = self.cache.copy()
        if self._model is not None and self._frozen:
            new.set_bilm(self._model)
        elif self._model is not None:
            files = self._model.to_files()
            files.tensors = {name: t.clone() for name, t in files.tensors.items()}
            new.set_bilm(BiLM.from_files(files))
        return new

    def to_device(self, device_type: str, device_id: int) -> None:
        """Move the weights."""
        if self._model is not None:
            device = "cpu" if device_type == "cpu" else f"{device_type}:{device_id}"
            self._model.to(device)

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state["_model"] = None
        state["weights"] = self.to_bytes() if self.is_loaded else None
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        weights = state.pop("weights")
        self.__dict__.update(state)
        self._frozen = True
        self._pid = os.getpid()
        before_fork(self)
        if weights is not None:
            self.from_bytes(weights)

    # -- files ---------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write a native model folder."""
        files = self.bilm.to_files()
        write_native(files, path, dtype="float16" if _is_narrow(files) else "float32")

    def read(self, path: Path) -> None:
        """Read a native model folder, mapped into memory."""
        self.load(str(path))

    def to_bytes(self) -> bytes:
        """The files of the native format in one message; loads the weights if need be."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self.write(path)
            files = {p.name: p.read_bytes() for p in sorted(path.iterdir())}
        data: bytes = srsly.msgpack_dumps(files)
        return data

    def from_bytes(self, data: bytes) -> "BiLMShim":
        """Take what `to_bytes` gave."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in srsly.msgpack_loads(data).items():
                (Path(folder) / Path(name).name).write_bytes(content)
            files = read_native(Path(folder))
            # The folder goes away, so its files must not stay mapped.
            files.tensors = {name: t.clone() for name, t in files.tensors.items()}
        self.set_bilm(BiLM.from_files(files))
        return self


def _like(values: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of these values, of the shape and on the device of another."""
    array = np.ascontiguousarray(values)
    return torch.from_numpy(array).view_as(tensor).to(tensor.device, copy=True)


def _is_narrow(files: ModelFiles) -> bool:
    """Whether float16 holds all weights exactly, as when they came from float16."""
    return all(bool((t.half().float() == t).all()) for t in files.tensors.values())
