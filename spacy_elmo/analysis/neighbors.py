"""Nearest neighbours of occurrences among all tokens of a text, which is streamed."""

import bisect
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from ..errors import ElmoError, Errors
from .encoders import Encoder
from .occurrences import Occurrence, pieces, unit


class Neighbor(NamedTuple):
    """A token near to a query.

    :param cosine: Of its vector with the query's.
    :param occurrence: The token in its sentence.
    """

    cosine: float
    occurrence: Occurrence


class Query(NamedTuple):
    """What neighbours are searched for.

    :param vectors: Its vector in each view. *Shape:* ``(width,)`` each
    :param occurrence: Where it is from, to be no neighbour of itself; None for an average.
    """

    vectors: Dict[str, np.ndarray]
    occurrence: Optional[Occurrence] = None


class _Best:
    """The best n of a stream for one query; an occurrence counts once, however often it comes."""

    def __init__(self, n: int, query: Query) -> None:
        self.n = n
        self.excluded = query.occurrence
        self.found: List[Neighbor] = []

    @property
    def threshold(self) -> float:
        return self.found[-1].cosine if len(self.found) == self.n else float("-inf")

    def offer(self, cosines: np.ndarray, occurrences: Sequence[Occurrence]) -> None:
        better = np.flatnonzero(cosines > self.threshold)
        for k in better[np.argsort(-cosines[better], kind="stable")]:
            cosine, occurrence = float(cosines[k]), occurrences[k]
            if cosine <= self.threshold:
                return
            # The same sentence twice in a text is one occurrence.
            if occurrence == self.excluded or any(
                occurrence == other.occurrence for other in self.found
            ):
                continue
            place = bisect.bisect([-other.cosine for other in self.found], -cosine)
            self.found.insert(place, Neighbor(cosine, occurrence))
            del self.found[self.n :]


def nearest(
    encoder: Encoder,
    sentences: Iterable[Sequence[str]],
    queries: Sequence[Query],
    views: Sequence[str],
    n: int = 10,
) -> Dict[str, List[List[Neighbor]]]:
    """The nearest tokens of a text for every query, by cosine, in every view.

    Every token of the text is a candidate, of whatever word. Memory does not grow with the text.

    :param sentences: The text; it is streamed.
    :param n: Neighbours for each query.
    :returns: For each view, for each query, its neighbours, nearest first.
    :raises ElmoError: E144 if `n` is less than one.
    """
    if n < 1:
        raise ElmoError(Errors.E144.format(name="n", found=n, expected="at least 1"))
    best = {view: [_Best(n, query) for query in queries] for view in views}
    matrices = {view: unit(np.stack([q.vectors[view] for q in queries])) for view in views}
    for piece in pieces(sentences):
        layers = np.concatenate(encoder.bilm.embed(piece), axis=1)
        occurrences = [Occurrence(s, i) for s in piece for i in range(len(s))]
        for view in views:
            # Rounded, so that equal vectors (of layer 0) tie and come in the order of the text.
            cosines = np.round(unit(encoder.view(layers, view)) @ matrices[view].T, 5)
            for k, one in enumerate(best[view]):
                one.offer(cosines[:, k], occurrences)
    return {view: [one.found for one in best[view]] for view in views}


def shared_neighbors(found: Sequence[Sequence[Neighbor]], of_average: Sequence[Neighbor]) -> float:
    """Mean share of an occurrence's neighbours that the average has too, 0 to 1.

    :param found: Neighbours of each occurrence.
    :param of_average: Neighbours of the average.
    """
    known = {neighbor.occurrence for neighbor in of_average}
    shares = [
        sum(neighbor.occurrence in known for neighbor in one) / len(one) for one in found if one
    ]
    return float(np.mean(shares)) if shares else 0.0
