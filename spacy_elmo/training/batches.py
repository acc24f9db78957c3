"""Order of the training text, and batches made of it.

The order of an epoch follows from the seed and the epoch's number alone, so that a position is
three numbers (epoch, window, batch) and a resumed run goes on exactly. Blocks of neighbouring
sentences are permuted over the whole corpus, then a window of blocks is shuffled in memory: as
good as a full shuffle in practice, at a cost that does not grow with the corpus.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import (
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)

import numpy as np

from ..bilm.encoder import BOS_INDEX, EOS_INDEX
from ..bilm.packing import pack

#: Sentences that stay together in the permutation of the corpus.
BLOCK_SENTENCES = 512
#: Blocks that are shuffled together in memory.
WINDOW_BLOCKS = 128

BatchT = TypeVar("BatchT")


class Corpus(Protocol):
    """What batches need of a corpus; `corpus.PreparedCorpus` is one."""

    lengths: np.ndarray

    def sentences(self, indices: np.ndarray) -> List[List[str]]:
        """Tokens of these sentences."""


class WordIds(Protocol):
    """What batches need of a vocabulary."""

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Softmax ids of tokens, the unknown word's for those that are not in."""


class Position(NamedTuple):
    """Where in the training text a run stands: the next batch to be used."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class DirectionBatch(NamedTuple):
    """Input and targets of one direction, packed time-major.

    :param inputs: Index of the word that is read, in the batch's word list. *Shape:* ``(n,)``
    :param targets: Softmax id of the word to predict. *Shape:* ``(n,)``
    :param flat: Place of each packed row in the global batch, sentence by sentence; by it
        dropout masks are the same however many processes share the batch. *Shape:* ``(n,)``
    """

    inputs: np.ndarray
    targets: np.ndarray
    flat: np.ndarray


class Batch(NamedTuple):
    """A batch as the training step takes it.

    :param words: Distinct words of this process's part; index 0 and 1 are the boundaries, so
        word ``k`` has index ``k + 2``.
    :param batch_sizes: Rows at each step; the same for both directions.
    :param directions: Forward and backward.
    :param all_targets: Distinct softmax ids of the global batch, increasing.
    :param n_targets: Predictions of one direction in the global batch.
    :param n_tokens: Tokens of the global batch, boundaries not counted.
    """

    words: List[str]
    batch_sizes: List[int]
    directions: Tuple[DirectionBatch, DirectionBatch]
    all_targets: np.ndarray
    n_targets: int
    n_tokens: int


def plan_window(
    lengths: np.ndarray, seed: int, position: Position, batch_tokens: int
) -> Optional[List[np.ndarray]]:
    """Sentence numbers of each batch of a window, None behind the epoch's last window.

    Sentences of a batch have about the same length, so that rows end together.

    :param lengths: Tokens of every sentence of the corpus.
    :param batch_tokens: Predictions of one direction in a batch at most (a longer sentence is
        a batch of its own).
    """
    n_blocks = -(-len(lengths) // BLOCK_SENTENCES)
    blocks = _rng(seed, position.epoch).permutation(n_blocks)
    first = position.window * WINDOW_BLOCKS
    chosen = blocks[first : first + WINDOW_BLOCKS]
    if len(chosen) == 0:
        return None
    members = (chosen[:, None] * BLOCK_SENTENCES + np.arange(BLOCK_SENTENCES)).ravel()
    members = members[members < len(lengths)]
    rng = _rng(seed, position.epoch, position.window + 1)
    members = rng.permutation(members)
    sizes = lengths[members].astype(np.int64) + 1
    order = np.argsort(sizes, kind="stable")
    members, sizes = members[order], sizes[order]
    batches: List[np.ndarray] = []
    start = total = 0
    for i, size in enumerate(sizes.tolist()):
        if total and total + size > batch_tokens:
            batches.append(members[start:i])
            start, total = i, 0
        total += size
    batches.append(members[start:])
    return [batches[i] for i in rng.permutation(len(batches))]


def sentence_batches(
    corpus: Corpus,
    vocabulary: WordIds,
    *,
    seed: int,
    batch_tokens: int,
    epochs: Optional[int],
    position: Position = Position(),
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Tuple[Batch, Position]]:
    """Batches of whole sentences from `position` on, each with the position behind it.

    :param epochs: Passes over the corpus, None for no end.
    :param rank: This process's number; it gets every `world_size`-th sentence of a batch.
    """
    while epochs is None or position.epoch < epochs:
        plan = plan_window(corpus.lengths, seed, position, batch_tokens)
        if plan is None:
            position = Position(position.epoch + 1)
            continue
        for number in range(position.batch, len(plan)):
            following = position._replace(batch=number + 1)
            if number + 1 == len(plan):
                following = Position(position.epoch, position.window + 1)
            sentences = corpus.sentences(plan[number])
            yield make_batch(sentences, vocabulary, rank, world_size), following
        position = Position(position.epoch, position.window + 1)


def make_batch(
    sentences: Sequence[Sequence[str]],
    vocabulary: WordIds,
    rank: int = 0,
    world_size: int = 1,
) -> Batch:
    """Pack sentences with their targets in both directions.

    The forward direction reads ``<S> w1 … wn`` and predicts ``w1 … wn </S>``, the backward one
    reads ``</S> wn … w1`` and predicts ``wn … w1 <S>`` (ids 0 and 1 are the boundaries').
    """
    targets = [vocabulary.ids(sentence) for sentence in sentences]
    sizes = np.array([len(s) + 1 for s in sentences])
    first = np.cumsum(sizes) - sizes
    mine = range(rank, len(sentences), world_size)
    index: Dict[str, int] = {}
    read = [
        np.array([index.setdefault(word, len(index) + 2) for word in sentences[i]], np.int64)
        for i in mine
    ]
    packing = pack([len(r) + 1 for r in read]) if read else None
    bos, eos = np.array([BOS_INDEX]), np.array([EOS_INDEX])
    flat = _concatenate([first[i] + np.arange(sizes[i]) for i in mine])
    forward = _pack_direction(
        _concatenate([np.concatenate((bos, r)) for r in read]),
        _concatenate([np.concatenate((targets[i], [1])) for i in mine]),
        flat,
        None if packing is None else packing.forward,
    )
    backward = _pack_direction(
        _concatenate([np.concatenate((r, eos)) for r in read]),
        _concatenate([np.concatenate(([0], targets[i])) for i in mine]),
        flat,
        None if packing is None else packing.backward,
    )
    return Batch(
        list(index),
        [] if packing is None else packing.batch_sizes,
        (forward, backward),
        np.unique(np.concatenate([*targets, [0, 1]])),
        int(sizes.sum()),
        int(sizes.sum()) - len(sentences),
    )


def ahead(batches: Iterator[BatchT]) -> Iterator[BatchT]:
    """Make the next batch while the present one is worked on."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, batches, None)
        while True:
            item = future.result()
            if item is None:
                return
            future = pool.submit(next, batches, None)
            yield item


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _pack_direction(
    inputs: np.ndarray, targets: np.ndarray, flat: np.ndarray, places: Optional[np.ndarray]
) -> DirectionBatch:
    if places is None:
        return DirectionBatch(inputs, targets, flat)
    packed = [np.empty_like(a) for a in (inputs, targets, flat)]
    for new, old in zip(packed, (inputs, targets, flat)):
        new[places] = old
    return DirectionBatch(*packed)


def _rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(key)))
