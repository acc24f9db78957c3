"""Where the tokens of a batch of sentences stand when the batch is packed time-major."""

from typing import List, NamedTuple, Sequence

import numpy as np


class Packing(NamedTuple):
    """Layout of a packed batch; the same for both directions.

    A flat array holds the sentences one after another, a packed one all first tokens, then
    all second tokens and so on, longest sentence first, so that every step is a dense block.

    :param batch_sizes: Sentences that have a token at each step, not increasing.
    :param order: Which sentence each row of the first step belongs to. *Shape:* ``(batch,)``
    :param forward: Packed row of each flat token when read left to right. *Shape:* ``(n,)``
    :param backward: The same when every sentence is read right to left. *Shape:* ``(n,)``
    """

    batch_sizes: List[int]
    order: np.ndarray
    forward: np.ndarray
    backward: np.ndarray

    @property
    def mean_rows(self) -> float:
        """Sentences in a step, on average."""
        return sum(self.batch_sizes) / len(self.batch_sizes)


def pack(lengths: Sequence[int]) -> Packing:
    """Lay out sentences of these lengths; all must be 1 or more and at least one is needed."""
    n = np.asarray(lengths, np.int64)
    order = np.argsort(-n, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    # Sentences that are still running at step t, for every t.
    ended = np.bincount(n, minlength=int(n.max()) + 1)
    batch_sizes = len(n) - np.cumsum(ended)[: int(n.max())]
    starts = np.cumsum(batch_sizes) - batch_sizes
    first = np.cumsum(n) - n
    rows = np.repeat(rank, n)
    step = np.arange(int(n.sum())) - np.repeat(first, n)
    back = np.repeat(n, n) - 1 - step
    return Packing(batch_sizes.tolist(), order, starts[step] + rows, starts[back] + rows)
