"""How sure a difference of two accuracies on the same items is."""

from typing import Tuple

import numpy as np


def difference(
    correct: np.ndarray, other: np.ndarray, *, n_samples: int = 2000, seed: int = 0
) -> Tuple[float, float, float]:
    """Difference of two accuracies with its 95 % interval, by paired bootstrap (Efron 1979).

    Items are taken as independent; tokens of one sentence or word are not quite, so that the
    interval is rather narrow.

    :param correct: Whether each item was right in one way. *Shape:* ``(n,)``, bool
    :param other: Whether it was in the other. *Shape:* ``(n,)``, bool
    :returns: Difference, lower and upper end; NaN if there are no items.
    """
    delta = correct.astype(np.float64) - other
    if not len(delta):
        return (float("nan"),) * 3
    rng = np.random.default_rng(seed)
    means = [delta[rng.integers(0, len(delta), len(delta))].mean() for _ in range(n_samples)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(delta.mean()), float(low), float(high)
