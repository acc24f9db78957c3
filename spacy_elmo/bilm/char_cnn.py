"""The token encoder: characters → convolutions → highway layers → projection.

Words are taken in chunks of similar length, so that a long word does not stretch the others.
Only the positions that can differ are computed: windows that start behind the end of a word
see nothing but padding and all give the value of the first such window, so that the maximum
over positions is the same, to the bit, as over the whole width.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from .config import BiLMConfig, CharCNNConfig
from .parameters import empty_parameter

#: Words that are convolved together: small enough for the windows to stay in the cache.
CHUNK_WORDS = 128


class WordChunk(NamedTuple):
    """Some words of a batch, of similar length, transposed for the convolutions.

    :param ids: Character ids, padded; *Shape:* ``(n_characters, n_words)``
    :param n_positions: Window positions to look at: the longest word's characters and one.
    :param places: Where the words stand in the batch's list. *Shape:* ``(n_words,)``
    :param words: Rows of the table of word vectors, or None. *Shape:* ``(n_words,)``
    """

    ids: Tensor
    n_positions: int
    places: Tensor
    words: Optional[Tensor]


def chunk_words(
    ids: Tensor,
    lengths: Tensor,
    config: CharCNNConfig,
    pad: int,
    words: Optional[Tensor] = None,
    chunk_words: int = CHUNK_WORDS,
) -> List[WordChunk]:
    """Cut a batch's distinct words into chunks of similar length.

    :param ids: Character ids. *Shape:* ``(n_words, longest)``
    :param lengths: Characters of each word, markers included. *Shape:* ``(n_words,)``
    :param config: Gives the widest filter and the limit of characters.
    :param pad: Id of the pad character.
    :param words: Rows of the table of word vectors, if the model has one.
    :param chunk_words: Words in a chunk at most.
    """
    order = torch.argsort(lengths, stable=True)
    chunks = []
    for index in order.split(chunk_words):
        longest = int(lengths[index].max())
        width = min(config.max_characters, longest + config.max_width)
        part = ids[index, :width]
        if part.shape[1] < width:
            part = functional.pad(part, (0, width - part.shape[1]), value=pad)
        chunks.append(
            WordChunk(
                part.t().contiguous(),
                longest + 1,
                index,
                None if words is None else words[index],
            )
        )
    return chunks


class ConvolveMax(torch.autograd.Function):
    """Convolutions over characters, and the maximum over positions.

    Each filter is one product over the windows of all positions; the backward pass goes
    through the position of the maximum alone.
    """

    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        n_positions: int,
        embedding: Tensor,
        matmul_dtype: Optional[torch.dtype],
        *filters: Tensor,
    ) -> Tensor:
        weights, biases = filters[0::2], filters[1::2]
        embedded = embedding[ids]
        training = any(ctx.needs_input_grad)
        pooled, winners, flat_weights = [], [], []
        for weight, bias in zip(weights, biases):
            count, dim, width = weight.shape
            seen = windows(embedded, width, n_positions)
            flat = weight.permute(2, 1, 0).reshape(width * dim, count)
            if matmul_dtype is None:
                values = seen.flatten(0, 1) @ flat
            else:
                low = seen.flatten(0, 1).to(matmul_dtype) @ flat.to(matmul_dtype)
                values = low.to(embedded.dtype)
            values = values.view(seen.shape[0], seen.shape[1], count)
            if training:
                best, winner = _argmax(values)
                winners.append(winner)
                flat_weights.append(flat)
            else:
                best = values.amax(0)
            pooled.append(best + bias)
        ctx.n_positions, ctx.widths = n_positions, [w.shape[2] for w in weights]
        ctx.matmul_dtype = matmul_dtype
        ctx.save_for_backward(ids, embedding, embedded, *winners, *flat_weights)
        return torch.cat(pooled, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        ids, embedding, embedded, *rest = ctx.saved_tensors
        n_filters = len(ctx.widths)
        winners, flat_weights = rest[:n_filters], rest[n_filters:]
        dtype = ctx.matmul_dtype
        d_embedded = torch.zeros_like(embedded)
        d_filters: List[Tensor] = []
        start = 0
        for width, winner, flat in zip(ctx.widths, winners, flat_weights):
            count, dim = flat.shape[1], embedding.shape[1]
            d_best = grad[:, start : start + count]
            start += count
            seen = windows(embedded, width, ctx.n_positions)
            n_windows, n_words = seen.shape[:2]
            d_values = grad.new_empty(n_windows, n_words, count)
            for position in range(n_windows):
                torch.eq(winner, position, out=d_values[position]).mul_(d_best)
            d_flat_values = d_values.view(-1, count)
            rows = seen.flatten(0, 1)
            if dtype is None:
                d_flat = rows.t() @ d_flat_values
                d_windows = d_flat_values @ flat.t()
            else:
                low = d_flat_values.to(dtype)
                d_flat = (rows.t().to(dtype) @ low).to(grad.dtype)
                d_windows = (low @ flat.t().to(dtype)).to(grad.dtype)
            d_windows = d_windows.view(n_windows, n_words, width, dim)
            for k in range(width):
                d_embedded[k : k + n_windows] += d_windows[:, :, k]
            d_filters.append(d_flat.view(width, dim, count).permute(2, 1, 0))
            d_filters.append(d_best.sum(0))
        d_embedding = torch.zeros_like(embedding).index_add_(
            0, ids.flatten(), d_embedded.flatten(0, 1)
        )
        return (None, None, d_embedding, None, *d_filters)


def windows(embedded: Tensor, width: int, n_positions: int) -> Tensor:
    """Windows of characters. *Shape:* ``(n_windows, n_words, width * dim)``."""
    n_windows = min(n_positions, embedded.shape[0] - width + 1)
    if width == 1:
        return embedded[:n_windows]
    return torch.cat([embedded[k : k + n_windows] for k in range(width)], dim=-1)


def _argmax(values: Tensor) -> Tuple[Tensor, Tensor]:
    """Maximum over the first axis and where it stands first, as floats.

    torch's own is scalar code, and comparisons that write booleans are several times slower
    than those that write floats.
    """
    best = values[0].clone()
    winner, better = torch.zeros_like(best), torch.empty_like(best)
    for position in range(1, values.shape[0]):
        torch.gt(values[position], best, out=better)
        torch.maximum(winner, better.mul_(position), out=winner)
        torch.maximum(best, values[position], out=best)
    return best, winner


class _Linear(nn.Module):
    """Weights of a linear map, not initialised: they are read from a file or set by `lm`."""

    def __init__(self, n_in: int, n_out: int, device: Optional[torch.device]) -> None:
        super().__init__()
        self.weight = empty_parameter(n_out, n_in, device=device)
        self.bias = empty_parameter(n_out, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class Highway(nn.Module):
    """A highway layer (Srivastava et al. 2015): ``g·relu(T(x)) + (1 − g)·x``, ``g = σ(G(x))``."""

    def __init__(self, width: int, device: Optional[torch.device] = None) -> None:
        super().__init__()
        self.transform = _Linear(width, width, device)
        self.gate = _Linear(width, width, device)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, self.transform(x).relu(), self.gate(x).sigmoid())


class _Convolution(nn.Module):
    def __init__(self, dim: int, width: int, count: int, device: Optional[torch.device]) -> None:
        super().__init__()
        self.weight = empty_parameter(count, dim, width, device=device)
        self.bias = empty_parameter(count, device=device)


class CharCNN(nn.Module):
    """Word vectors from characters; layer 0 of the biLM.

    :param config: The model's configuration.
    :param device: Where to make the parameters, the CPU if not given; "meta" for none at all.
    """

    def __init__(self, config: BiLMConfig, device: Optional[torch.device] = None) -> None:
        super().__init__()
        cnn = config.char_cnn
        self.config = cnn
        self.char_embedding = empty_parameter(cnn.n_characters, cnn.embedding_dim, device=device)
        self.conv = nn.ModuleList(
            _Convolution(cnn.embedding_dim, width, count, device) for width, count in cnn.filters
        )
        self.highway = nn.ModuleList(Highway(cnn.n_filters, device) for _ in range(cnn.n_highway))
        self.word_embedding: Optional[nn.Parameter] = None
        if cnn.word_dim:
            self.word_embedding = empty_parameter(cnn.n_words, cnn.word_dim, device=device)
        self.projection: Optional[_Linear] = None
        if config.has_cnn_projection:
            self.projection = _Linear(
                cnn.word_dim + cnn.n_filters, config.lstm.projection_dim, device
            )

    def forward(
        self, chunks: Sequence[WordChunk], matmul_dtype: Optional[torch.dtype] = None
    ) -> Tensor:
        """Encode words, chunk by chunk up to the maximum, then all at once.

        :param chunks: Words of similar length each.
        :param matmul_dtype: Precision of the products of the convolutions, if not the weights'.
        :returns: One vector a word, in the order of the chunks. *Shape:* ``(n_words, P)``
        """
        filters = [p for conv in self.conv for p in (conv.weight, conv.bias)]
        pooled = [
            ConvolveMax.apply(
                chunk.ids, chunk.n_positions, self.char_embedding, matmul_dtype, *filters
            )
            for chunk in chunks
        ]
        x = torch.cat(pooled)
        x = x.relu() if self.config.activation == "relu" else x.tanh()
        for layer in self.highway:
            x = layer(x)
        if self.word_embedding is not None:
            rows = torch.cat([chunk.words for chunk in chunks if chunk.words is not None])
            x = torch.cat([self.word_embedding[rows], x], dim=1)
        return x if self.projection is None else self.projection(x)

    def encode(
        self, chunks: Sequence[WordChunk], matmul_dtype: Optional[torch.dtype] = None
    ) -> Tensor:
        """Encode words and put the vectors into the order of the batch's list.

        *Shape:* ``(n_words, P)``
        """
        vectors = self(chunks, matmul_dtype)
        order = torch.cat([chunk.places for chunk in chunks])
        return torch.empty_like(vectors).index_copy(0, order, vectors)
