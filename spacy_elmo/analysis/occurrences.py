"""Occurrences of a word in a text, their vectors, and what it costs to average these.

A static embedding gives a word one vector for all its occurrences. The average of the contextual
vectors is the best such vector in the sense of least squares; how far the occurrences lie from it
is the price.
"""

import itertools
import random
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from ..errors import ElmoError, Errors
from .encoders import Encoder

#: Sentences that are embedded at a time.
PIECE_SENTENCES = 256


class Occurrence(NamedTuple):
    """A token in its sentence.

    :param sentence: The tokens.
    :param position: Index of the token, from 0.
    """

    sentence: Tuple[str, ...]
    position: int

    @property
    def word(self) -> str:
        """The token."""
        return self.sentence[self.position]

    def in_context(self, width: int = 40) -> Tuple[str, str, str]:
        """Left context, word and right context, contexts cut to a number of characters."""
        left = " ".join(self.sentence[: self.position])
        right = " ".join(self.sentence[self.position + 1 :])
        if len(left) > width:
            left = "…" + left[len(left) - width + 1 :]
        if len(right) > width:
            right = right[: width - 1] + "…"
        return left, self.word, right


class WordVectors(NamedTuple):
    """What is known of a word after a text was read.

    :param kept: Occurrences whose vectors are here: all, or a random sample.
    :param vectors: Vectors of these by view. *Shape:* ``(n_kept, width)`` each
    :param average: Average over all occurrences, kept or not, by view. *Shape:* ``(width,)``
    :param total: Occurrences in the text.
    :param n_sentences: Sentences of the text.
    """

    kept: List[Occurrence]
    vectors: Dict[str, np.ndarray]
    average: Dict[str, np.ndarray]
    total: int
    n_sentences: int


class AverageCost(NamedTuple):
    """What the average of a word's vectors loses, see :func:`average_cost`.

    :param self_similarity: Mean cosine of two different occurrences (Ethayarajh 2019); NaN for
        a single one.
    :param mean_cosine: Mean cosine of an occurrence to the average.
    :param min_cosine: The least of these.
    :param lost: Share of the vectors' mean squared length that the average does not hold,
        0 (all occurrences are the same) to 1.
    """

    self_similarity: float
    mean_cosine: float
    min_cosine: float
    lost: float


def pieces(sentences: Iterable[Sequence[str]]) -> Iterator[List[Tuple[str, ...]]]:
    """Sentences in lists of limited size; empty ones are left out."""
    rest = iter(tuple(s) for s in sentences if len(s))
    while piece := list(itertools.islice(rest, PIECE_SENTENCES)):
        yield piece


def collect(
    encoder: Encoder,
    sentences: Iterable[Sequence[str]],
    word: str,
    views: Sequence[str],
    *,
    ignore_case: bool = False,
    limit: int = 1000,
    seed: int = 0,
) -> WordVectors:
    """Vectors of a word's occurrences. Only sentences that have the word are embedded.

    :param sentences: The text; it is streamed.
    :param views: Views to keep, see :class:`Encoder`.
    :param ignore_case: Whether other capitalisation counts as the same word.
    :param limit: Occurrences to keep, sampled evenly (reservoir sampling) if there are more.
    :raises ElmoError: E145 if the word does not occur, E144 if `limit` is less than one.
    """
    if limit < 1:
        raise ElmoError(Errors.E144.format(name="limit", found=limit, expected="at least 1"))
    wanted = word.casefold() if ignore_case else word
    rng = random.Random(seed)
    kept: List[Occurrence] = []
    rows: Dict[str, List[np.ndarray]] = {view: [] for view in views}
    sums: Dict[str, np.ndarray] = {}
    total = n_sentences = 0
    for piece in pieces(sentences):
        n_sentences += len(piece)
        found = [
            Occurrence(sentence, i)
            for sentence in piece
            for i, token in enumerate(sentence)
            if (token.casefold() if ignore_case else token) == wanted
        ]
        if not found:
            continue
        having = list(dict.fromkeys(occurrence.sentence for occurrence in found))
        embedded = dict(zip(having, encoder.bilm.embed(having)))
        layers = np.stack([embedded[s][:, i] for s, i in found], axis=1)
        new = {view: encoder.view(layers, view) for view in views}
        for view, vectors in new.items():
            sums[view] = sums.get(view, 0.0) + vectors.sum(axis=0, dtype=np.float64)
        for k, occurrence in enumerate(found):
            place = len(kept) if total < limit else rng.randrange(total + 1)
            total += 1
            if place == len(kept) and place < limit:
                kept.append(occurrence)
                for view in views:
                    rows[view].append(new[view][k])
            elif place < limit:
                kept[place] = occurrence
                for view in views:
                    rows[view][place] = new[view][k]
    if not total:
        raise ElmoError(Errors.E145.format(word=word, n=n_sentences))
    average = {view: (s / total).astype(np.float32) for view, s in sums.items()}
    kept_vectors = {view: np.stack(rows[view]) for view in views}
    return WordVectors(kept, kept_vectors, average, total, n_sentences)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors at length one; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: np.ndarray = vectors / np.where(norms > 0.0, norms, 1.0)
    return scaled


def average_cost(vectors: np.ndarray) -> AverageCost:
    """What is lost if the average stands for every vector.

    :param vectors: One for each occurrence. *Shape:* ``(n, width)``
    """
    vectors = vectors.astype(np.float64)
    n = len(vectors)
    units = unit(vectors)
    average = vectors.mean(axis=0)
    cosines = units @ unit(average)
    together = float((units.sum(axis=0) ** 2).sum())
    length = float((vectors**2).sum(axis=1).mean())
    return AverageCost(
        (together - n) / (n * (n - 1)) if n > 1 else float("nan"),
        float(cosines.mean()),
        float(cosines.min()),
        1.0 - float((average**2).sum()) / length if length else 0.0,
    )


def spread_out(vectors: np.ndarray, n: int) -> List[int]:
    """Indices of vectors that are far from each other: the first, then always the farthest."""
    units = unit(vectors)
    chosen = [0]
    nearest = units @ units[0]
    while len(chosen) < min(n, len(units)):
        farthest = int(nearest.argmin())
        if farthest in chosen:
            break
        chosen.append(farthest)
        nearest = np.maximum(nearest, units @ units[farthest])
    return chosen
