"""Packed streams: sentences end to end in long rows, cut into pieces, states carried on.

The alternative to whole sentences, as bilm-tf trains. Both directions read the same sentences
in the same order, the backward one each sentence from its end, so that a piece holds the same
words for both and every word is encoded once.
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from ..bilm.encoder import BOS_INDEX, EOS_INDEX
from ..errors import ElmoError, Errors
from .batches import BLOCK_SENTENCES, Batch, Corpus, DirectionBatch, WordIds, _rng


class StreamPosition(NamedTuple):
    """Where the rows stand.

    :param epoch: Pass over the text.
    :param sentence: For each row how many of its sentences were begun and done.
    :param offset: For each row how many predictions of the current sentence are done.
    """

    epoch: int
    sentence: Tuple[int, ...]
    offset: Tuple[int, ...]


class _Piece(NamedTuple):
    words: Tuple[List[str], List[str]]
    targets: Tuple[np.ndarray, np.ndarray]


def stream_batches(
    corpus: Corpus,
    vocabulary: WordIds,
    *,
    seed: int,
    batch_tokens: int,
    steps: int,
    epochs: Optional[int],
    position: Optional[StreamPosition] = None,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Tuple[Batch, StreamPosition]]:
    """Batches of `batch_tokens / steps` rows of `steps` predictions, with the position behind.

    Each row reads its own stretch of the permuted text, all of about the same length; an epoch
    ends when the first row is through, so that hardly more than one piece of each is left out.

    :raises ElmoError: E080 if the text is too short for a single batch.
    """
    n_rows = max(world_size, batch_tokens // steps)
    if position is None:
        position = StreamPosition(0, (0,) * n_rows, (0,) * n_rows)
    while epochs is None or position.epoch < epochs:
        order = _stretches(corpus.lengths, seed, position.epoch, n_rows)
        at_start = not any(position.sentence) and not any(position.offset)
        rows = [
            _Row(corpus, vocabulary, stretch, position.sentence[r], position.offset[r])
            for r, stretch in enumerate(order)
        ]
        while all(row.fill(steps) for row in rows):
            batch = _assemble([row.take(steps) for row in rows], steps, rank, world_size)
            position = StreamPosition(
                position.epoch,
                tuple(row.sentence for row in rows),
                tuple(row.offset for row in rows),
            )
            at_start = False
            yield batch, position
        if at_start:
            n = int(corpus.lengths.sum(dtype=np.int64)) + len(corpus.lengths)
            raise ElmoError(Errors.E080.format(n=n, rows=n_rows, steps=steps))
        position = StreamPosition(position.epoch + 1, (0,) * n_rows, (0,) * n_rows)


def _stretches(lengths: np.ndarray, seed: int, epoch: int, n_rows: int) -> List[np.ndarray]:
    """Sentence numbers of each row: the permuted text cut where a row's share of it is reached."""
    n_blocks = -(-len(lengths) // BLOCK_SENTENCES)
    blocks = _rng(seed, epoch).permutation(n_blocks)
    members = (blocks[:, None] * BLOCK_SENTENCES + np.arange(BLOCK_SENTENCES)).ravel()
    members = members[members < len(lengths)]
    ends = np.cumsum(lengths[members].astype(np.int64) + 1)
    shares = ends[-1] * np.arange(1, n_rows) // n_rows
    return np.split(members, np.searchsorted(ends, shares, side="right"))


class _Row:
    """One row's cursor; holds the rest of the sentence that it stands in."""

    def __init__(
        self, corpus: Corpus, vocabulary: WordIds, order: np.ndarray, sentence: int, offset: int
    ) -> None:
        self.corpus, self.vocabulary, self.order = corpus, vocabulary, order
        self.sentence, self.offset = sentence, offset
        self.ready: List[List[str]] = []
        self.available = -offset
        self.following = sentence

    def fill(self, steps: int) -> bool:
        while self.available < steps:
            chunk = self.order[self.following : self.following + 16]
            if len(chunk) == 0:
                return False
            for sentence in self.corpus.sentences(chunk):
                self.ready.append(sentence)
                self.available += len(sentence) + 1
            self.following += len(chunk)
        return True

    def take(self, steps: int) -> _Piece:
        forward: List[str] = []
        backward: List[str] = []
        targets: Tuple[List[int], List[int]] = ([], [])
        missing = steps
        while missing:
            sentence = self.ready[0]
            size = len(sentence) + 1
            stop = min(size, self.offset + missing)
            ids = self.vocabulary.ids(sentence).tolist()
            part = slice(self.offset, stop)
            # "" stands for the boundary: no token is empty.
            forward += ["", *sentence][part]
            targets[0].extend([*ids, 1][part])
            backward += ["", *reversed(sentence)][part]
            targets[1].extend([*reversed(ids), 0][part])
            missing -= stop - self.offset
            self.offset = stop
            if stop == size:
                self.ready.pop(0)
                self.sentence, self.offset = self.sentence + 1, 0
        self.available -= steps
        return _Piece(
            (forward, backward), (np.array(targets[0], np.int64), np.array(targets[1], np.int64))
        )


def _assemble(pieces: List[_Piece], steps: int, rank: int, world_size: int) -> Batch:
    mine = list(range(rank, len(pieces), world_size))
    index: Dict[str, int] = {}
    directions = []
    flat = np.array(mine)[None, :] * steps + np.arange(steps)[:, None]
    for k, boundary in enumerate((BOS_INDEX, EOS_INDEX)):
        inputs = np.array(
            [
                [
                    boundary if word == "" else index.setdefault(word, len(index) + 2)
                    for word in pieces[r].words[k]
                ]
                for r in mine
            ],
            np.int64,
        )
        targets = np.stack([pieces[r].targets[k] for r in mine])
        directions.append(
            DirectionBatch(inputs.T.ravel().copy(), targets.T.ravel().copy(), flat.ravel())
        )
    all_targets = np.unique(np.concatenate([t for piece in pieces for t in piece.targets]))
    n = len(pieces) * steps
    n_boundaries = sum(int((piece.targets[0] == 1).sum()) for piece in pieces)
    return Batch(
        list(index),
        [len(mine)] * steps,
        (directions[0], directions[1]),
        all_targets,
        n,
        n - n_boundaries,
    )
