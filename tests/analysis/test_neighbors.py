"""Occurrences, the cost of their average, and neighbours against a search over everything."""

import functools
from typing import Any, List, Tuple

import numpy as np
import pytest
import spacy

from spacy_elmo.analysis import occurrences as module
from spacy_elmo.analysis.encoders import Encoder, load_encoder
from spacy_elmo.analysis.neighbors import Neighbor, Query, nearest, shared_neighbors
from spacy_elmo.analysis.occurrences import (
    Occurrence,
    average_cost,
    collect,
    spread_out,
    unit,
)
from spacy_elmo.errors import ElmoError

from ..pipeline.conftest import TAGGER, make_nlp, train, weights  # noqa: F401  (fixtures)
from ..training import tiny

TEXT = tiny.sentences(120, seed=4)
VIEWS = ["0", "1", "2", "mix"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(tiny.model(tiny.vocabulary(TEXT)))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that these texts go through in several pieces."""
    monkeypatch.setattr(module, "PIECE_SENTENCES", 17)


def all_occurrences(word: str) -> List[Occurrence]:
    return [Occurrence(tuple(s), i) for s in TEXT for i, t in enumerate(s) if t == word]


@functools.lru_cache(maxsize=None)
def embedded(encoder: Encoder, sentence: Tuple[str, ...]) -> Any:
    return encoder.bilm.embed([sentence])[0]


def vector(encoder: Encoder, occurrence: Occurrence, view: str) -> Any:
    layers = embedded(encoder, occurrence.sentence)[:, occurrence.position]
    return layers.mean(axis=0) if view == "mix" else layers[int(view)]


def test_all_occurrences_and_their_average(encoder: Encoder) -> None:
    known = collect(encoder, iter(TEXT), "cat", VIEWS)
    expected = all_occurrences("cat")
    assert known.kept == expected and known.total == len(expected) > 20
    assert known.n_sentences == len(TEXT)
    for view in VIEWS:
        rows = np.stack([vector(encoder, o, view) for o in expected])
        assert np.allclose(known.vectors[view], rows, atol=1e-5)
        assert np.allclose(known.average[view], rows.mean(axis=0), atol=1e-5)


def test_a_sample_keeps_the_exact_average(encoder: Encoder) -> None:
    whole = collect(encoder, TEXT, "cat", ["2"])
    seen = set()
    for seed in range(5):
        part = collect(encoder, TEXT, "cat", ["2"], limit=10, seed=seed)
        assert len(part.kept) == len(part.vectors["2"]) == 10 and part.total == whole.total
        assert np.allclose(part.average["2"], whole.average["2"], atol=1e-6)
        for occurrence, row in zip(part.kept, part.vectors["2"]):
            assert np.allclose(row, vector(encoder, occurrence, "2"), atol=1e-5)
        seen |= {whole.kept.index(o) for o in part.kept}
    # Not only the first: a reservoir.
    assert max(seen) > 20 and min(seen) < 10


def test_capitalisation(encoder: Encoder) -> None:
    text = [["The", "Cat"], ["the", "cat"], ["THE", "CAT"]]
    assert collect(encoder, text, "cat", ["0"]).total == 1
    assert collect(encoder, text, "cat", ["0"], ignore_case=True).total == 3
    with pytest.raises(ElmoError) as caught:
        collect(encoder, text, "dog", ["0"])
    assert caught.value.code == "ELMO-E145" and "3 sentences" in str(caught.value)


def test_cost_of_the_textbook_average() -> None:
    senses = np.array([[0.90, 0.05, 0.20], [0.05, 0.90, 0.20]])
    cost = average_cost(senses)
    assert cost.self_similarity == pytest.approx(0.1525, abs=5e-5)
    assert cost.mean_cosine == pytest.approx(0.7591, abs=5e-5) == cost.min_cosine
    # 1 - |average|^2 / |sense|^2
    assert cost.lost == pytest.approx(1 - 0.49125 / 0.8525)
    same = average_cost(np.tile(senses[:1], (5, 1)))
    assert same.self_similarity == pytest.approx(1.0) and same.lost == pytest.approx(0.0)
    assert np.isnan(average_cost(senses[:1]).self_similarity)
    opposite = average_cost(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert opposite.lost == 1.0 and opposite.self_similarity == pytest.approx(-1.0)


@pytest.mark.parametrize("view", VIEWS[1:])
def test_neighbors_are_those_of_a_search_over_everything(encoder: Encoder, view: str) -> None:
    known = collect(encoder, TEXT, "dog", VIEWS)
    queries = [Query({view: known.vectors[view][i]}, known.kept[i]) for i in (0, 3)]
    queries.append(Query({view: known.average[view]}))
    found = nearest(encoder, iter(TEXT), queries, [view], 8)[view]
    everything = list(dict.fromkeys(Occurrence(tuple(s), i) for s in TEXT for i in range(len(s))))
    rows = unit(np.stack([vector(encoder, o, view) for o in everything]))
    for query, neighbors in zip(queries, found):
        cosines = rows @ unit(query.vectors[view])
        if query.occurrence is not None:
            cosines[everything.index(query.occurrence)] = -2.0
        best = np.sort(cosines)[::-1][:8]
        assert np.allclose([n.cosine for n in neighbors], best, atol=2e-5)
        assert len({n.occurrence for n in neighbors}) == 8
        for cosine, occurrence in neighbors:
            assert cosine == pytest.approx(float(cosines[everything.index(occurrence)]), abs=2e-5)


def test_a_repeated_sentence_counts_once(encoder: Encoder) -> None:
    text = [["the", "cat", "sees"]] * 40 + [["a", "dog", "sees"]]
    known = collect(encoder, text, "cat", ["2"])
    query = Query({"2": known.vectors["2"][0]}, known.kept[0])
    found = nearest(encoder, text, [query], ["2"], 10)["2"][0]
    assert len(found) == 5  # six tokens, less the query itself
    assert found == sorted(found, key=lambda n: -n.cosine)


def test_ties_come_in_the_order_of_the_text(encoder: Encoder) -> None:
    query = Query({"0": vector(encoder, all_occurrences("cat")[0], "0")})
    found = nearest(encoder, TEXT, [query], ["0"], 5)["0"][0]
    assert [n.occurrence for n in found] == list(dict.fromkeys(all_occurrences("cat")))[:5]


def test_shared_neighbors() -> None:
    a, b, c = (Neighbor(1.0, Occurrence((w,), 0)) for w in "abc")
    assert shared_neighbors([[a, b], [a, c]], [a, b]) == 0.75
    assert shared_neighbors([], [a]) == 0.0


def test_spread_out_takes_what_is_far() -> None:
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [-1, 0.0], [0.1, 1]])
    assert spread_out(vectors, 3) == [0, 3, 2]
    assert spread_out(np.ones((4, 2)), 3) == [0]


def test_context_is_cut_to_the_width() -> None:
    occurrence = Occurrence(tuple("aaaa bbbb x cccc dddd".split()), 2)
    assert occurrence.in_context() == ("aaaa bbbb", "x", "cccc dddd")
    assert occurrence.in_context(6) == ("… bbbb", "x", "cccc …")


def test_pipelines_give_their_mixes(tmp_path: Any, make_nlp: Any) -> None:  # noqa: F811
    nlp = make_nlp("tagger", mix=[0.5, 0.5, 0.0])
    train(nlp, 3)
    node = next(n for n in nlp.get_pipe("tagger").model.walk() if n.name == "elmo_scalar_mix")
    node.set_param("w", np.array([2.0, 0.0, -1.0], np.float32))
    node.set_param("gamma", np.array([3.0], np.float32))
    nlp.to_disk(tmp_path / "nlp")
    encoder = load_encoder(tmp_path / "nlp")
    assert encoder.views == ["0", "1", "2", "mix", "tagger"]
    layers = encoder.bilm.embed([["a", "cat"]])[0]
    assert np.allclose(encoder.view(layers, "mix"), 0.5 * layers[0] + 0.5 * layers[1], atol=1e-6)
    shares = np.exp([2.0, 0.0, -1.0]) / np.exp([2.0, 0.0, -1.0]).sum()
    expected = 3.0 * np.tensordot(shares, layers, axes=1)
    assert np.allclose(encoder.view(layers, "tagger"), expected, atol=1e-5)
    with pytest.raises(ElmoError) as caught:
        encoder.check_views(["1", "3"])
    assert caught.value.code == "ELMO-E144" and "tagger" in str(caught.value)
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ElmoError) as caught:
        load_encoder(tmp_path / "blank")
    assert caught.value.code == "ELMO-E148"
    with pytest.raises(ElmoError) as caught:
        load_encoder(tmp_path / "nothing")
    assert caught.value.code == "ELMO-E020"
    assert load_encoder("en_mini").views == VIEWS


def test_the_text_is_streamed(encoder: Encoder) -> None:
    """No more than a piece is read ahead of what is embedded."""
    read, embedded_so_far, ahead = 0, 0, []

    class Counting:
        n_layers = encoder.bilm.n_layers

        def embed(self, sentences: Any) -> Any:
            nonlocal embedded_so_far
            ahead.append(read - embedded_so_far)
            embedded_so_far += len(sentences)
            return encoder.bilm.embed(sentences)

    def text() -> Any:
        nonlocal read
        for sentence in TEXT:
            read += 1
            yield sentence

    query = Query({"2": vector(encoder, all_occurrences("cat")[0], "2")})
    nearest(Encoder(Counting()), text(), [query], ["2"], 3)  # type: ignore[arg-type]
    assert embedded_so_far == len(TEXT) and len(ahead) == -(-len(TEXT) // 17)
    assert max(ahead) <= 17
