"""The inference engine: all layers for sentences, without a graph, near the machine's limit.

What makes it fast, in the order of what it saves: a word goes through the char CNN once, however
often it comes; a batch is packed, so that nothing is computed for padding; the input product of a
layer is one product over many steps; both directions run at once on two threads; weights lie in
layouts made for products of few rows (`kernels`), in float32, float16 or int8.

Memory is bounded by the tokens of a batch, and by steps of a block within it: a sentence of any
length goes through block by block, the states being handed on.
"""

from contextlib import nullcontext
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from .allocator import return_freed_memory
from .char_cnn_inference import CharCNNInference
from .config import LSTMConfig
from .kernels import Linear, check_precision, has_kernel, pack_linear
from .lstm import LSTMState, LSTMWeights
from .packing import Packing, pack
from .sentences import batches_by_length
from .steps import Steps, compiled
from .threads import run_both, shared_threads, undivided_threads
from .word_cache import WordCache

#: Rows whose gates are computed together at most: enough for an efficient product.
BLOCK_ROWS = 512
#: Bytes of these gates at most: they should stay in the processor's cache until the steps have used
#: them, and both directions have some.
BLOCK_BYTES = 8 << 20
#: Operations in a step of one direction below which two threads are slower than one.
SHARE_FROM_FLOPS = 3e6
#: A step of so few rows is bound by reading its weights. If those of one direction's layer fit into
#: a processor's cache, but not both directions' at once, all threads work on one direction.
FEW_ROWS = 2
HALF_FITTING_BYTES = (16 << 20, 32 << 20)
#: Word vectors that are kept.
WORD_CACHE_BYTES = 16 << 20
#: States before the first boundary, by direction, then by layer; one row. None stands for zeros.
StartStates = Sequence[Sequence[Optional[LSTMState]]]
_BYTES = {"float32": 4, "float16": 2, "int8": 1}


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
        self._scale_candidate = type(recurrent) is Linear
        if self._scale_candidate:
            # Small weights are used where they are, possibly in a file, and the gates are
            # doubled instead.
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
    :param places: Row of the output. *Shape:* ``(n,)``
    """

    words: Tensor
    places: Tensor


class Engine:
    """Gives all layers for sentences. Weights must not change while it is used.

    :param token_encoder: Word vectors.
    :param directions: Weights of the layers, forward and backward.
    :param config: Shape and clips of the layers.
    :param start: State that every sentence starts in.
    :param precision: "float32", "float16" or "int8".
    :param plain: Do without PyTorch's packed kernels.
    :param block_rows: Rows whose gates are computed together at most.
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
        self._weight_bytes = 4 if plain or not has_kernel(precision) else _BYTES[precision]
        self._config = config
        self._block_rows = max(1, min(block_rows, BLOCK_BYTES // (4 * 4 * config.cell_dim)))
        self._token_encoder = token_encoder
        self._words = WordCache(config.projection_dim, WORD_CACHE_BYTES)
        self._directions = [
            [_Layer(weights, config, precision, plain) for weights in direction]
            for direction in directions
        ]
        self._boundaries = token_encoder.boundaries()
        self._start = [[self._start_state(state) for state in direction] for direction in start]
        with torch.inference_mode(), shared_threads():
            self._begun = [self._after_boundary(direction) for direction in (0, 1)]

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
        found = [r for r in results if r is not None]
        return_freed_memory(sum(r.nbytes for r in found))
        return found

    def _encode(self, sentences: Sequence[Sequence[str]], boundaries: bool) -> np.ndarray:
        """A batch, its sentences one after another. *Shape:* ``(L + 1, n_tokens, 2P)``.

        The boundary that a direction begins with leaves the same states in every sentence, and
        nothing depends on the one that it ends with. So both are computed only if they are wanted.
        """
        index: "dict[str, int]" = {}
        flat: List[int] = []
        for sentence in sentences:
            inner = [index.setdefault(word, len(index) + 2) for word in sentence]
            flat += [0, *inner, 1] if boundaries else inner
        vectors = self._word_vectors(list(index))
        n, p = len(flat), self._config.projection_dim
        output = vectors.new_empty(self.n_layers, n, 2, p)
        if n:
            words = np.array(flat, np.int64)
            output[0] = vectors[torch.from_numpy(words)][:, None]
            lengths = [len(sentence) + 2 * boundaries for sentence in sentences]
            packing = pack([length for length in lengths if length])
            forward, backward = (_rows(words, q) for q in (packing.forward, packing.backward))
            states = self._start if boundaries else self._begun
            with undivided_threads() if self._half_fits(packing) else nullcontext():
                run_both(
                    lambda: self._run(states[0], 0, vectors, forward, packing, output[:, :, 0]),
                    lambda: self._run(states[1], 1, vectors, backward, packing, output[:, :, 1]),
                    at_once=self._is_worth_sharing(packing),
                )
        return output.view(self.n_layers, n, 2 * p).numpy()

    def _is_worth_sharing(self, packing: Packing) -> bool:
        """Whether two threads would not wait for the interpreter, or for short steps only."""
        if all(layer.is_compiled for direction in self._directions for layer in direction):
            return True
        c, p = self._config.cell_dim, self._config.projection_dim
        return 10.0 * c * p * packing.mean_rows > SHARE_FROM_FLOPS

    def _half_fits(self, packing: Packing) -> bool:
        """Whether steps read weights that stay in the cache for one direction, but not for two."""
        if packing.mean_rows > FEW_ROWS:
            return False
        c, p = self._config.cell_dim, self._config.projection_dim
        # The recurrent weights and, with less, the projection's.
        least, most = HALF_FITTING_BYTES
        return least <= self._weight_bytes * 5 * c * p <= most

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
        self,
        start: Sequence[LSTMState],
        direction: int,
        vectors: Tensor,
        rows: _Rows,
        packing: Packing,
        output: Tensor,
    ) -> None:
        """One direction through all layers, block by block.

        :param start: State of each layer before the first step; one row.
        :param output: Where the vectors go. *Shape:* ``(L + 1, n_tokens, P)``
        """
        states = [LSTMState(*(t.repeat(packing.batch_sizes[0], 1) for t in s)) for s in start]
        for first, last, sizes in _blocks(packing.batch_sizes, self._block_rows):
            x, places = vectors[rows.words[first:last]], rows.places[first:last]
            for k in range(len(states)):
                x, states[k] = self._layer(direction, k, x, sizes, states[k])
                output[k + 1].index_copy_(0, places, x)

    def _layer(
        self, direction: int, k: int, x: Tensor, sizes: Sequence[int], state: LSTMState
    ) -> Tuple[Tensor, LSTMState]:
        """Some steps of one layer, with its skip connection; see `_Layer.run`."""
        y, state = self._directions[direction][k].run(x, sizes, state)
        if k > 0 and self._config.skip_connections:
            # Behind the cell: recurrence and state do not see it.
            y = y + x
        return y, state

    def _start_state(self, state: Optional[LSTMState]) -> LSTMState:
        """A start state as the steps want it, with twice the cell."""
        if state is None:
            zeros = self._boundaries.new_zeros
            return LSTMState(zeros(1, self._config.projection_dim), zeros(1, self._config.cell_dim))
        return LSTMState(state.hidden, 2.0 * state.cell)

    def _after_boundary(self, direction: int) -> List[LSTMState]:
        """States of one direction after the boundary that it begins with."""
        x, states = self._boundaries[direction : direction + 1], []
        for k, state in enumerate(self._start[direction]):
            before = LSTMState(*(t.clone() for t in state))
            x, after = self._layer(direction, k, x, [1], before)
            states.append(after)
        return states


def _rows(words: np.ndarray, packed: np.ndarray) -> _Rows:
    """Turn around `packed`, the packed row of each flat token."""
    flat = np.empty_like(packed)
    flat[packed] = np.arange(len(packed))
    return _Rows(torch.from_numpy(words[flat]), torch.from_numpy(flat))


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
