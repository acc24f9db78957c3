"""The inference engine: all layers for sentences, without a graph, near the machine's limit.

What makes it fast, in the order of what it saves: a word goes through the char CNN once, however
often it comes; a batch is packed, so that nothing is computed for padding; the input product of a
layer is one product over many steps; both directions run at once on two threads; weights lie in
layouts made for products of few rows (`kernels`), in float32, float16 or int8.

Memory is bounded by the tokens of a batch, and by steps of a block within it: a sentence of any
length goes through block by block, the states being handed on.
"""

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from .char_cnn_inference import CharCNNInference
from .config import LSTMConfig
from .kernels import Linear, check_precision, pack_linear
from .lstm import LSTMState, LSTMWeights
from .packing import Packing, pack
from .sentences import batches_by_length
from .steps import Steps, compiled
from .threads import run_both, shared_threads
from .word_cache import WordCache

#: Rows whose gates are computed together: enough for an efficient product, few enough for the
#: result to stay in the cache of the processor until the steps have used it.
BLOCK_ROWS = 512
#: Operations in a step of one direction below which two threads are slower than one.
SHARE_FROM_FLOPS = 3e6
#: Word vectors that are kept.
WORD_CACHE_BYTES = 16 << 20
#: States at the start, by direction, then by layer; one row. None stands for zeros.
StartStates = Sequence[Sequence[Optional[LSTMState]]]


class _Layer:
    """One layer of one direction with its weights laid out; doubled as `Steps` wants them."""

    def __init__(
        self, weights: LSTMWeights, config: LSTMConfig, precision: str, plain: bool
    ) -> None:
        c = self._cell_dim = config.cell_dim
        bias = weights.bias.detach().clone()
        bias[c : 2 * c] += config.forget_bias
        bias[3 * c :] *= 2.0
        doubled = weights.recurrent_weight.detach().clone()
        doubled[3 * c :] *= 2.0
        recurrent = pack_linear(doubled, None, precision, plain=plain)
        self._scale_candidate = precision == "float32"
        if self._scale_candidate:
            # Products of many rows gain nothing from another layout, so the weights are used
            # where they are, possibly in a file, and the gates are doubled instead.
            bias[3 * c :] *= 0.5
            self._input = Linear(weights.input_weight.detach(), bias)
        else:
            doubled = weights.input_weight.detach().clone()
            doubled[3 * c :] *= 2.0
            self._input = pack_linear(doubled, bias, precision, plain=plain)
        projection: Optional[Linear] = None
        if weights.projection_weight is not None:
            weight = weights.projection_weight.detach()
            if precision == "float32":
                projection = Linear(weight)
            else:
                projection = pack_linear(weight, None, precision, plain=plain)
        steps = Steps(recurrent, projection, config.cell_clip, config.proj_clip)
        self._steps, self.is_compiled = compiled(steps, plain=plain)

    def run(self, x: Tensor, sizes: Sequence[int], state: LSTMState) -> Tuple[Tensor, LSTMState]:
        """Some steps of a packed batch.

        :param x: Input of these steps. *Shape:* ``(Σ sizes, P)``
        :param sizes: Sentences at each step, not increasing.
        :param state: Before the first step, with twice the cell in place of the cell; its
            tensors are overwritten. *Shapes:* ``(n, P)``, ``(n, C)`` with ``n >= sizes[0]``
        :returns: Output, *Shape:* ``(Σ sizes, P)``, and the state after the last step.
        """
        gates = self._input(x)
        if self._scale_candidate:
            gates[:, 3 * self._cell_dim :].mul_(2.0)
        output, h, doubled = self._steps(gates, list(sizes), *state)
        return output, LSTMState(h, doubled)


class _Rows(NamedTuple):
    """For the packed rows of one direction: the word of each, and where its vectors go.

    :param words: Row of the batch's word vectors. *Shape:* ``(n,)``
    :param kept: Packed rows that are wanted, all but boundaries. *Shape:* ``(n_kept,)``
    :param places: Row of the output for each of them. *Shape:* ``(n_kept,)``
    """

    words: Tensor
    kept: np.ndarray
    places: Tensor


class Engine:
    """Gives all layers for sentences. Weights must not change while it is used.

    :param token_encoder: Word vectors.
    :param directions: Weights of the layers, forward and backward.
    :param config: Shape and clips of the layers.
    :param start: State that every sentence starts in.
    :param precision: "float32", "float16" or "int8".
    :param plain: Do without PyTorch's packed kernels.
    :param block_rows: Rows whose gates are computed together.
    :raises ElmoError: E160 for an unknown precision.
    """

    def __init__(
        self,
        token_encoder: CharCNNInference,
        directions: Sequence[Iterable[LSTMWeights]],
        config: LSTMConfig,
        start: StartStates,
        precision: str = "float32",
        *,
        plain: bool = False,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        check_precision(precision)
        self.precision = precision
        self._config = config
        self._block_rows = block_rows
        self._token_encoder = token_encoder
        self._words = WordCache(config.projection_dim, WORD_CACHE_BYTES)
        self._directions = [
            [_Layer(weights, config, precision, plain) for weights in direction]
            for direction in directions
        ]
        self._start = start
        self._boundaries = token_encoder.boundaries()

    @property
    def n_layers(self) -> int:
        """Layers given for each token."""
        return self._config.n_layers + 1

    def forget_words(self) -> None:
        """Empty the cache of word vectors, which changes no result."""
        self._words = WordCache(self._config.projection_dim, WORD_CACHE_BYTES)

    def embed(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        batch_tokens: int = 4096,
        boundaries: bool = False,
    ) -> List[np.ndarray]:
        """All layers for every token of every sentence; see `BiLM.embed`."""
        results: List[Optional[np.ndarray]] = [None] * len(sentences)
        with torch.inference_mode(), shared_threads():
            for group in batches_by_length(sentences, batch_tokens):
                flat = self._encode([sentences[i] for i in group], boundaries)
                if len(group) == 1:
                    results[group[0]] = flat
                    continue
                start = 0
                for i in group:
                    stop = start + len(sentences[i]) + (2 if boundaries else 0)
                    results[i] = np.ascontiguousarray(flat[:, start:stop])
                    start = stop
        return [r for r in results if r is not None]

    def _encode(self, sentences: Sequence[Sequence[str]], boundaries: bool) -> np.ndarray:
        """A batch, its sentences one after another. *Shape:* ``(L + 1, n_tokens, 2P)``."""
        index: "dict[str, int]" = {}
        flat: List[int] = []
        for sentence in sentences:
            flat.append(0)
            flat.extend([index.setdefault(word, len(index) + 2) for word in sentence])
            flat.append(1)
        vectors = self._word_vectors(list(index))
        words = np.array(flat, np.int64)
        packing = pack([len(sentence) + 2 for sentence in sentences])
        inner = np.ones(len(words), bool) if boundaries else words > 1
        n, p = int(inner.sum()), self._config.projection_dim
        output = vectors.new_empty(self.n_layers, n, 2, p)
        if n:
            output[0] = vectors[torch.from_numpy(words[inner])][:, None]
        forward, backward = (
            _rows(words, inner, places) for places in (packing.forward, packing.backward)
        )
        run_both(
            lambda: self._run(0, vectors, forward, packing, output[:, :, 0]),
            lambda: self._run(1, vectors, backward, packing, output[:, :, 1]),
            at_once=self._is_worth_sharing(packing),
        )
        return output.view(self.n_layers, n, 2 * p).numpy()

    def _is_worth_sharing(self, packing: Packing) -> bool:
        """Whether two threads would not wait for the interpreter, or for short steps only."""
        if all(layer.is_compiled for direction in self._directions for layer in direction):
            return True
        rows = sum(packing.batch_sizes) / len(packing.batch_sizes)
        c, p = self._config.cell_dim, self._config.projection_dim
        return 10.0 * c * p * rows > SHARE_FROM_FLOPS

    def _word_vectors(self, words: List[str]) -> Tensor:
        """Vectors of the two boundaries and then of distinct words."""
        vectors = self._boundaries.new_empty(len(words) + 2, self._boundaries.shape[1])
        vectors[:2] = self._boundaries
        missing = self._words.get(words, vectors[2:])
        if missing:
            new = [words[i] for i in missing]
            computed = self._token_encoder.encode(new)
            vectors[2:][torch.tensor(missing, device=vectors.device)] = computed
            self._words.put(new, computed)
        return vectors

    def _run(
        self, direction: int, vectors: Tensor, rows: _Rows, packing: Packing, output: Tensor
    ) -> None:
        """One direction through all layers, block by block.

        :param output: Where the vectors go. *Shape:* ``(L + 1, n_tokens, P)``
        """
        layers = self._directions[direction]
        states = [self._initial(direction, k, packing.batch_sizes[0]) for k in range(len(layers))]
        for start, stop, sizes in _blocks(packing.batch_sizes, self._block_rows):
            x = vectors[rows.words[start:stop]]
            first, last = np.searchsorted(rows.kept, (start, stop))
            kept = torch.from_numpy(rows.kept[first:last] - start)
            places = rows.places[first:last]
            for k, layer in enumerate(layers):
                y, states[k] = layer.run(x, sizes, states[k])
                if k > 0 and self._config.skip_connections:
                    # Behind the cell: recurrence and state do not see it.
                    y = y + x
                wanted = y if len(kept) == len(y) else y[kept]
                output[k + 1].index_copy_(0, places, wanted)
                x = y

    def _initial(self, direction: int, layer: int, n: int) -> LSTMState:
        state = self._start[direction][layer]
        if state is None:
            zeros = self._boundaries.new_zeros
            return LSTMState(zeros(n, self._config.projection_dim), zeros(n, self._config.cell_dim))
        return LSTMState(state.hidden.repeat(n, 1), (2.0 * state.cell).repeat(n, 1))


def _rows(words: np.ndarray, inner: np.ndarray, packed: np.ndarray) -> _Rows:
    """Turn around `packed`, the packed row of each flat token."""
    flat = np.empty_like(packed)
    flat[packed] = np.arange(len(packed))
    place = np.cumsum(inner) - 1
    kept = np.flatnonzero(inner[flat])
    return _Rows(torch.from_numpy(words[flat]), kept, torch.from_numpy(place[flat[kept]]))


def _blocks(batch_sizes: Sequence[int], block_rows: int) -> List[Tuple[int, int, Sequence[int]]]:
    """Cut steps into blocks of a bounded number of rows, a step at least."""
    blocks: List[Tuple[int, int, Sequence[int]]] = []
    start = stop = first = 0
    for step, size in enumerate(batch_sizes):
        if step > first and stop + size - start > block_rows:
            blocks.append((start, stop, batch_sizes[first:step]))
            start, first = stop, step
        stop += size
    blocks.append((start, stop, batch_sizes[first:]))
    return blocks
