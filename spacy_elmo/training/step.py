"""One training step: loss and gradients of a batch, both directions at once on two threads.

Every thread runs single-threaded kernels on work of its own (half of the words for the token
encoder, one direction for the LSTMs and the softmax). That keeps two cores busy without the
synchronisation inside kernels, and makes the sums, and so the result, the same in every run.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ..bilm.char_cnn import WordChunk, chunk_words
from ..bilm.encoder import BiLM
from ..bilm.lm import Negatives, NegativeSampler, sampled_loss
from ..bilm.lstm import LSTMState, run_layer
from .batches import Batch, DirectionBatch

#: Purposes of random numbers, so that no two draw the same stream.
NEGATIVES, DROPOUT = 1, 2


class RowGradient(NamedTuple):
    """Gradient of the softmax, which touches few of its rows.

    :param rows: Words with a gradient; the sample first. *Shape:* ``(R,)``
    :param weight: *Shape:* ``(R, P)``
    :param bias: *Shape:* ``(R,)``
    """

    rows: Tensor
    weight: Tensor
    bias: Tensor

    def plus(self, other: "RowGradient") -> "RowGradient":
        """The sum of both, for the rows of either."""
        rows = torch.unique(torch.cat([self.rows, other.rows]))
        weight = self.weight.new_zeros(len(rows), self.weight.shape[1])
        bias = self.bias.new_zeros(len(rows))
        for part in (self, other):
            places = torch.searchsorted(rows, part.rows).to(weight.device)
            weight.index_add_(0, places, part.weight)
            bias.index_add_(0, places, part.bias)
        return RowGradient(rows, weight, bias)


class StepResult(NamedTuple):
    """What a step yields.

    :param losses: Summed sampled loss of each direction in this process, in nats.
    :param row_gradient: Gradient of the softmax.
    :param states: Final states of both directions, for packed streams.
    """

    losses: Tuple[float, float]
    row_gradient: RowGradient
    states: List[List[LSTMState]]


def seeded(seed: int, step: int, *purpose: int) -> torch.Generator:
    """A generator that depends on the seed, the step and the purpose alone."""
    # Odd multipliers of a 64-bit hash (splitmix64) keep neighbouring steps apart.
    value = seed
    for part in (step, *purpose):
        value = (value * 0x9E3779B97F4A7C15 + part + 1) % 2**64
        value ^= value >> 31
        value = (value * 0xBF58476D1CE4E5B9) % 2**64
        value ^= value >> 29
    return torch.Generator().manual_seed(value % 2**63)


class Workers:
    """Two threads for the two directions; on a GPU everything runs in the caller's thread.

    :param threads: Cores to use together.
    """

    def __init__(self, threads: int) -> None:
        self.count = min(2, threads)
        self._pool: Optional[ThreadPoolExecutor] = None
        self._threads_before = torch.get_num_threads()
        if self.count == 2:
            per_worker = max(1, threads // 2)
            self._pool = ThreadPoolExecutor(
                2, initializer=torch.set_num_threads, initargs=(per_worker,)
            )
        else:
            torch.set_num_threads(1)

    @property
    def executor(self) -> Optional[ThreadPoolExecutor]:
        """The threads, None where everything runs in the caller's."""
        return self._pool

    def map(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> List[Any]:
        """Apply `function` to each tuple of arguments, in parallel where there are threads."""
        if self._pool is None:
            return [function(*args) for args in zip(*arguments)]
        return list(self._pool.map(function, *arguments))

    def close(self) -> None:
        """End the threads; the caller's own number of threads is what it was."""
        if self._pool is not None:
            self._pool.shutdown()
        torch.set_num_threads(self._threads_before)


class TrainingStep:
    """Computes losses and gradients of batches for one model.

    :param model: A biLM with a softmax.
    :param sampler: Negatives for the sampled softmax.
    :param workers: Threads to run on.
    :param dropout: Rate on the input of every layer and on the top output, a fresh mask for
        every token; nothing is dropped in the recurrence (as in bilm-tf).
    :param seed: Start of all random numbers.
    :param matmul_dtype: Precision of matrix products, None for the weights' own.
    """

    def __init__(
        self,
        model: BiLM,
        sampler: NegativeSampler,
        workers: Workers,
        *,
        dropout: float = 0.0,
        seed: int = 0,
        matmul_dtype: Optional[torch.dtype] = None,
    ) -> None:
        assert model.softmax is not None
        self.model = model
        self.softmax = model.softmax
        self.sampler = sampler
        self.workers = workers
        self.dropout = dropout
        self.seed = seed
        self.matmul_dtype = matmul_dtype
        self.token_parameters = list(model.token_encoder.parameters())
        self.direction_parameters = [
            list(model.forward_lstm.parameters()),
            list(model.backward_lstm.parameters()),
        ]
        self.device = model.token_encoder.char_embedding.device

    def __call__(
        self,
        batch: Batch,
        step: int,
        *,
        scale: float = 1.0,
        initial: Optional[Sequence[Sequence[Optional[LSTMState]]]] = None,
        train_encoder: bool = True,
        number: int = 0,
    ) -> StepResult:
        """Compute the gradients of ``scale · (forward + backward) / (2 · n_targets)``.

        The gradients of the encoder are put into ``.grad`` of its parameters.

        :param batch: What to learn from.
        :param step: Number of the step; random numbers depend on it.
        :param initial: State of each direction and layer before the batch, zeros if not given.
        :param train_encoder: False leaves the encoder alone and trains the softmax only.
        :param number: Number of the batch in the step. From the second on, gradients of the
            encoder are added to those that are there. All batches of a step have the same
            negatives, as one large batch would, and dropout masks of their own.
        """
        model, device = self.model, self.device
        negatives = self.sampler.sample(seeded(self.seed, step, NEGATIVES))
        all_targets = torch.from_numpy(batch.all_targets)
        extra = all_targets[negatives.columns[all_targets] < 0]
        rows = torch.cat([negatives.ids, extra])
        place = negatives.columns
        place[extra] = torch.arange(len(negatives.ids), len(rows), device=place.device)
        rows_weight = self.softmax.weight.detach()[rows.to(device)]
        rows_bias = self.softmax.bias.detach()[rows.to(device)]
        parts = self._word_parts(batch)
        encode = self._encode_words if train_encoder else torch.no_grad()(self._encode_words)
        encoded = self.workers.map(encode, parts)
        vectors = encoded[0].detach().new_empty(len(batch.words) + 2, encoded[0].shape[1])
        for part, value in zip(parts, encoded):
            vectors[torch.cat([chunk.places for chunk in part])] = value.detach()
        scale = scale / (2 * batch.n_targets)
        if initial is None:
            initial = [[None] * model.config.lstm.n_layers] * 2
        results = self.workers.map(
            lambda k: self._direction(
                k,
                batch,
                vectors,
                negatives,
                (place, rows_weight, rows_bias),
                step,
                number,
                scale,
                initial[k],
                train_encoder,
            ),
            (0, 1),
        )
        if train_encoder:
            d_vectors = results[0].d_vectors + results[1].d_vectors
            self._backward_words(parts, encoded, d_vectors, number > 0)
        row_gradient = RowGradient(
            rows,
            results[0].d_weight + results[1].d_weight,
            results[0].d_bias + results[1].d_bias,
        )
        losses = (float(results[0].loss), float(results[1].loss))
        return StepResult(losses, row_gradient, [r.states for r in results])

    # -- token encoder -------------------------------------------------------------------

    def _word_parts(self, batch: Batch) -> List[List[WordChunk]]:
        """The distinct words in chunks, dealt out to the workers by cost."""
        cnn = self.model.config.char_cnn
        ids, lengths, words = self.model.characters.encode(batch.words)
        chunks = chunk_words(
            torch.from_numpy(ids),
            torch.from_numpy(lengths),
            cnn,
            self.model.pad,
            None if words is None else torch.from_numpy(words),
        )
        if self.device.type != "cpu":
            chunks = [
                WordChunk(
                    c.ids.to(self.device),
                    c.n_positions,
                    c.places.to(self.device),
                    None if c.words is None else c.words.to(self.device),
                )
                for c in chunks
            ]
        per_position = sum(width * cnn.embedding_dim * count for width, count in cnn.filters)
        per_word = 2 * cnn.n_highway * cnn.n_filters**2
        per_word += cnn.n_filters * self.model.config.lstm.projection_dim
        parts: List[List[WordChunk]] = [[] for _ in range(self.workers.count)]
        costs = [0.0] * self.workers.count
        for chunk in reversed(chunks):
            k = costs.index(min(costs))
            parts[k].append(chunk)
            costs[k] += len(chunk.places) * (chunk.n_positions * per_position + per_word)
        return [part for part in parts if part]

    def _encode_words(self, part: List[WordChunk]) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            vectors: Tensor = self.model.token_encoder(part, self.matmul_dtype)
            return vectors

    def _backward_words(
        self, parts: List[List[WordChunk]], encoded: List[Tensor], d_vectors: Tensor, add: bool
    ) -> None:
        def backward(part: List[WordChunk], value: Tensor) -> Tuple[Tensor, ...]:
            d_part = d_vectors[torch.cat([chunk.places for chunk in part])]
            return torch.autograd.grad(value, self.token_parameters, d_part)

        gradients = self.workers.map(backward, parts, encoded)
        for parameter, *values in zip(self.token_parameters, *gradients):
            _store(parameter, sum(values[1:], values[0]), add)

    # -- directions ----------------------------------------------------------------------

    def _direction(
        self,
        k: int,
        batch: Batch,
        vectors: Tensor,
        negatives: Negatives,
        rows: Tuple[Tensor, Tensor, Tensor],
        step: int,
        batch_number: int,
        scale: float,
        initial: Sequence[Optional[LSTMState]],
        train_encoder: bool,
    ) -> "_DirectionResult":
        config, device = self.model.config.lstm, self.device
        place, rows_weight, rows_bias = rows
        n_samples = len(negatives.ids)
        direction = batch.directions[k]
        add = batch_number > 0
        masks = 2 * batch_number + k  # of each direction of each batch of the step
        if not batch.batch_sizes:  # a process whose share of a small batch is empty
            for parameter in self.direction_parameters[k]:
                # What is there is still the last step's, and would be summed over the processes.
                _store(parameter, torch.zeros_like(parameter), add)
            zeros = (torch.zeros_like(vectors), torch.zeros_like(rows_weight))
            return _DirectionResult(0.0, *zeros, torch.zeros_like(rows_bias), [])
        layers = self.model.directions[k]
        leaf = vectors.detach().requires_grad_(train_encoder)
        states: List[LSTMState] = []
        with torch.set_grad_enabled(train_encoder):
            x = leaf[torch.from_numpy(direction.inputs).to(device)]
            for number, layer in enumerate(layers):
                x = self._drop(x, direction, batch, step, masks, number)
                out, state = run_layer(
                    x,
                    layer.weights,
                    batch.batch_sizes,
                    config,
                    initial[number],
                    self.matmul_dtype,
                )
                if number > 0 and config.skip_connections:
                    out = out + x
                x = out
                states.append(state)
            hidden = self._drop(x, direction, batch, step, masks, len(layers))
        top = hidden.detach().requires_grad_()
        targets = torch.from_numpy(direction.targets)
        own = place[targets]
        hits = torch.where(own < n_samples, own, -1).to(device)
        own = own.to(device)
        weight = rows_weight[:n_samples].requires_grad_()
        bias = (rows_bias[:n_samples] - negatives.log_q.to(device)).requires_grad_()
        target_weight = rows_weight[own].requires_grad_()
        target_bias = rows_bias[own].requires_grad_()
        with torch.enable_grad():
            loss = sampled_loss(
                top, weight, bias, target_weight, target_bias, hits, self.matmul_dtype
            )
        leaves = (top, weight, bias, target_weight, target_bias)
        d_top, d_w, d_b, d_tw, d_tb = torch.autograd.grad(loss * scale, leaves)
        d_weight, d_bias = torch.zeros_like(rows_weight), torch.zeros_like(rows_bias)
        d_weight[:n_samples], d_bias[:n_samples] = d_w, d_b
        d_weight.index_add_(0, own, d_tw)
        d_bias.index_add_(0, own, d_tb)
        d_vectors = torch.zeros_like(vectors)
        if train_encoder:
            parameters = self.direction_parameters[k]
            d_vectors, *gradients = torch.autograd.grad(hidden, [leaf, *parameters], d_top)
            for parameter, gradient in zip(parameters, gradients):
                _store(parameter, gradient, add)
        return _DirectionResult(float(loss.detach()), d_vectors, d_weight, d_bias, states)

    def _drop(
        self, x: Tensor, direction: DirectionBatch, batch: Batch, step: int, masks: int, layer: int
    ) -> Tensor:
        """Dropout with a mask of the global batch, of which this process takes its rows."""
        if not self.dropout:
            return x
        generator = seeded(self.seed, step, DROPOUT, masks, layer)
        # On the CPU like the generator, so that the masks are the same wherever the model is.
        keep = torch.empty(batch.n_targets, x.shape[1], dtype=torch.float32, device="cpu")
        keep.bernoulli_(1.0 - self.dropout, generator=generator)
        mine = keep[torch.from_numpy(direction.flat)].div_(1.0 - self.dropout)
        return x * mine.to(device=x.device, dtype=x.dtype)


class _DirectionResult(NamedTuple):
    loss: float
    d_vectors: Tensor
    d_weight: Tensor
    d_bias: Tensor
    states: List[LSTMState]


def _store(parameter: Tensor, gradient: Tensor, add: bool) -> None:
    """Put a gradient where the optimiser looks; into its place in the flat buffer if any."""
    if parameter.grad is None:
        parameter.grad = gradient
    elif add:
        parameter.grad.add_(gradient)
    else:
        parameter.grad.copy_(gradient)


def nats_to_perplexity(nats: float) -> float:
    """exp of a mean loss, infinite where that overflows."""
    return math.exp(nats) if nats < 700 else math.inf
