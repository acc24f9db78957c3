"""The interval of a difference against the normal approximation."""

import math

import numpy as np
import pytest

from spacy_elmo.analysis.bootstrap import difference


def test_difference_and_its_interval() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(900) < 0.7, rng.random(900) < 0.6
    delta, low, high = difference(a, b)
    assert delta == pytest.approx(a.mean() - b.mean())
    # Standard error of the mean difference of the same items.
    error = (a.astype(float) - b).std() / 30
    assert (delta - low, high - delta) == pytest.approx((1.96 * error,) * 2, rel=0.12)
    assert difference(a, a) == (0.0, 0.0, 0.0)
    assert difference(a, b) == (delta, low, high)
    assert all(math.isnan(x) for x in difference(a[:0], b[:0]))


def test_items_are_paired() -> None:
    """Where two ways nearly agree, the interval is far narrower than that of either accuracy."""
    a = np.arange(1000) % 2 == 0
    b = a.copy()
    b[:10] = False
    _, low, high = difference(a, b)
    assert 0.0 < low < 0.005 < high < 0.012
