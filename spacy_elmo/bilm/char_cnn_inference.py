"""The token encoder as the engine runs it: no graph, weights laid out once, two threads."""

from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union, cast

import numpy as np
import torch
from torch import Tensor

from .char_cnn import CharCNN, WordChunk, chunk_words, windows
from .characters import ByteCharacters, CharacterIds, DictionaryCharacters
from .config import CharCNNConfig
from .kernels import Linear, pack_linear
from .threads import run_both, shared_threads

#: Operations below which a second thread does not pay: both wait for the interpreter.
_SHARE_FROM_FLOPS = 6e7
#: Fewer rows than this take another path through the products, with other last bits: a word's
#: vector would depend on how many words were new beside it.
_LEAST_WORDS = 4
#: Words that go through the convolutions and the highway layers together; bounds memory.
_MOST_WORDS = 1024


class CharCNNInference:
    """Vectors of words.

    :param encoder: Weights.
    :param config: Shape.
    :param characters: Turns words into characters.
    :param pad: Id of the pad character.
    :param precision: Of the highway layers and the projection; the convolutions are float32.
    :param plain: Do without PyTorch's packed kernels.
    """

    def __init__(
        self,
        encoder: CharCNN,
        config: CharCNNConfig,
        characters: Union[ByteCharacters, DictionaryCharacters],
        pad: int,
        precision: str,
        plain: bool,
    ) -> None:
        self._config, self._characters, self._pad = config, characters, pad
        self._relu = config.activation == "relu"
        self._embedding = encoder.char_embedding.detach()
        self._filters: List[Tuple[int, Tensor]] = []
        convolutions = cast(Iterable[Any], encoder.conv)
        for conv in convolutions:
            count, dim, width = conv.weight.shape
            flat = conv.weight.detach().permute(2, 1, 0).reshape(width * dim, count)
            self._filters.append((width, flat.contiguous()))
        self._bias = torch.cat([conv.bias.detach() for conv in convolutions])

        def laid_out(linear: Any) -> Linear:
            weight, bias = linear.weight.detach(), linear.bias.detach()
            if precision == "float32":
                return Linear(weight, bias)
            return pack_linear(weight, bias, precision, plain=plain)

        highway = cast(Iterable[Any], encoder.highway)
        self._highway = [(laid_out(h.transform), laid_out(h.gate)) for h in highway]
        self._word_embedding: Optional[Tensor] = None
        if encoder.word_embedding is not None:
            self._word_embedding = encoder.word_embedding.detach()
        self._projection: Optional[Linear] = None
        if encoder.projection is not None:
            self._projection = laid_out(encoder.projection)
        dense = [*encoder.highway.parameters()]
        if encoder.projection is not None:
            dense += encoder.projection.parameters()
        self._flops_of_word = 2.0 * sum(p.numel() for p in dense)
        self._flops_of_position = 2.0 * sum(flat.numel() for _, flat in self._filters)

    def boundaries(self) -> Tensor:
        """Vectors of the two sentence boundaries. *Shape:* ``(2, P)``."""
        with torch.inference_mode(), shared_threads():
            return self._encode(self._characters.encode([]), np.arange(2))

    def encode(self, words: Sequence[str]) -> Tensor:
        """Vectors of words. *Shape:* ``(n_words, P)``."""
        parts = [
            self._encode_some(words[start : start + _MOST_WORDS])
            for start in range(0, len(words), _MOST_WORDS)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _encode_some(self, words: Sequence[str]) -> Tensor:
        ids = self._characters.encode(words)
        flops = len(words) * self._flops_of_word
        flops += float(ids.lengths[2:].sum()) * self._flops_of_position
        if len(words) < 2 or flops < _SHARE_FROM_FLOPS:
            return self._encode(ids, np.arange(2, len(words) + 2))
        # Long words to one thread, short ones to the other, by the work that they make.
        order = np.argsort(-ids.lengths[2:], kind="stable") + 2
        work = np.cumsum(ids.lengths[order])
        middle = int(np.searchsorted(work, work[-1] / 2))
        vectors = torch.cat(
            run_both(
                lambda: self._encode(ids, order[:middle]),
                lambda: self._encode(ids, order[middle:]),
            )
        )
        return torch.empty_like(vectors).index_copy_(0, torch.from_numpy(order - 2), vectors)

    def _encode(self, ids: CharacterIds, rows: np.ndarray) -> Tensor:
        n = len(rows)
        if n < _LEAST_WORDS:
            rows = np.resize(rows, _LEAST_WORDS)
        chunks = chunk_words(
            torch.from_numpy(ids.ids[rows]),
            torch.from_numpy(ids.lengths[rows]),
            self._config,
            self._pad,
            None if ids.words is None else torch.from_numpy(ids.words[rows]),
        )
        x = torch.cat([self._convolve(chunk) for chunk in chunks]).add_(self._bias)
        x = x.relu_() if self._relu else x.tanh_()
        for transform, gate in self._highway:
            x = torch.lerp(x, transform(x).relu_(), gate(x).sigmoid_())
        if self._word_embedding is not None:
            words = torch.cat([chunk.words for chunk in chunks if chunk.words is not None])
            x = torch.cat([self._word_embedding[words], x], dim=1)
        if self._projection is not None:
            x = self._projection(x)
        order = torch.cat([chunk.places for chunk in chunks])
        return torch.empty_like(x).index_copy_(0, order, x)[:n]

    def _convolve(self, chunk: WordChunk) -> Tensor:
        """Convolutions and the maximum over positions. *Shape:* ``(n_words, F)``."""
        embedded = self._embedding[chunk.ids]
        pooled = []
        for width, flat in self._filters:
            seen = windows(embedded, width, chunk.n_positions)
            values = seen.flatten(0, 1) @ flat
            pooled.append(values.view(seen.shape[0], seen.shape[1], -1).amax(0))
        return torch.cat(pooled, dim=1)
