"""Sense evaluation with an encoder whose vectors are known, so that the answers are."""

from typing import Any, Dict, List

import numpy as np
import pytest

from spacy_elmo.analysis.encoders import load_encoder
from spacy_elmo.analysis.senses import evaluate_senses
from spacy_elmo.analysis.tagged_text import TaggedSentence, find_parts, read_senses

from ..util import shared


class ByHand:
    """Stands for an encoder: view "good" is the token before (its sense), "bad" is constant."""

    def __init__(self) -> None:
        self.bilm = self
        self.codes: Dict[str, int] = {}

    def embed(self, sentences: Any) -> List[Any]:
        out = []
        for tokens in sentences:
            layers = np.zeros((2, len(tokens), 8), np.float32)
            layers[1, :, 0] = 1.0
            for i in range(1, len(tokens)):
                layers[0, i, self.codes.setdefault(tokens[i - 1], len(self.codes))] = 1.0
            out.append(layers)
        return out

    def view(self, layers: Any, name: str) -> Any:
        return layers[("good", "bad").index(name)]


def sentence(before: str, word: str, sense: Any) -> TaggedSentence:
    return TaggedSentence([before, word], [None, sense])


TRAIN = [
    *[sentence("river", "bank", "n.PLACE")] * 3,
    *[sentence("money", "bank", "n.GROUP")] * 2,
    sentence("river", "runs", "v.motion"),
    sentence("he", "runs", "v.social"),
    sentence("the", "cat", "n.ANIMAL"),
]
TEST = [
    sentence("river", "bank", "n.PLACE"),
    sentence("money", "Bank", "n.GROUP"),
    sentence("money", "bank", "n.GROUP"),
    sentence("he", "runs", "v.social"),
    sentence("the", "cat", "n.ANIMAL"),  # one sense: not asked
    sentence("the", "zebra", "n.ANIMAL"),  # unknown
    sentence("the", "thing", None),
]


def test_nearest_neighbour_and_baseline() -> None:
    result = evaluate_senses(ByHand(), TRAIN, TEST, views=["good", "bad"])  # type: ignore[arg-type]
    assert (result.n_tagged, result.n_known, result.n_asked) == (6, 5, 4)
    baseline, good, bad = result.results
    # "runs" has each sense once: as often over all, so the last by name.
    assert baseline.correct.tolist() == [True, False, False, True and baseline.correct[3]]
    assert good.correct.tolist() == [True, True, True, True]
    # Vectors that are all the same leave the most frequent sense.
    assert bad.correct.tolist() == baseline.correct.tolist()
    assert good.accuracy() == 1.0 and baseline.accuracy("n") == pytest.approx(1 / 3)
    assert np.isnan(good.accuracy("p")) and good.kinds == ["n", "n", "n", "v"]


def test_more_neighbours_vote() -> None:
    train = [
        sentence("money", "bank", "n.GROUP"),
        *[sentence("river", "bank", "n.PLACE")] * 4,
    ]
    test = [sentence("money", "bank", "n.GROUP")]
    one = evaluate_senses(ByHand(), train, test, views=["good"])  # type: ignore[arg-type]
    assert one.results[1].accuracy() == 1.0
    # With ties at the edge all take part, here the four far ones outvote the near one.
    five = evaluate_senses(ByHand(), train, test, views=["good"], k=2)  # type: ignore[arg-type]
    assert five.results[1].accuracy() == 0.0


def test_leaving_one_out_leaves_out_the_sentence() -> None:
    # Both tokens of the last sentence are "bank": neither may look at the other.
    double = TaggedSentence(["sea", "bank", "bank"], [None, "n.SEA", "n.SEA"])
    text = [*TRAIN[:5], double]
    result = evaluate_senses(ByHand(), text, views=["good", "bad"])  # type: ignore[arg-type]
    assert result.n_tagged == result.n_asked == 7
    good = result.results[1].correct.tolist()
    assert good == [True] * 5 + [False, False]


def test_en_mini_tells_senses_apart_better_than_frequency() -> None:
    """On a part of STREUSLE, so that it takes seconds. Figures of the whole: docs/results.md."""
    parts = find_parts(shared("corpora", "downstream", "sense_streusle"), ".tsv", ("train", "dev"))
    assert parts["train"] is not None and parts["dev"] is not None
    train, dev = read_senses(parts["train"])[:500], read_senses(parts["dev"])[:200]
    result = evaluate_senses(load_encoder("en_mini"), train, dev, views=["0", "1", "2"], k=5)
    by_name = {r.name: r.accuracy() for r in result.results}
    baseline = by_name["most frequent sense"]
    assert result.n_asked > 100
    assert abs(by_name["0"] - baseline) < 0.03  # no context: no more than frequency
    assert by_name["1"] > baseline + 0.02 and by_name["2"] > baseline
