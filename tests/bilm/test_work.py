"""The engine does no more work than it has to, and does it on the threads that it may use."""

import multiprocessing
import os
import threading
from typing import Any, List, Set

import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm import char_cnn_inference as cnn_module
from spacy_elmo.bilm import engine as engine_module

SENTENCES = [["a", "word"] * 20, ["a"], ["a", "longer", "word", "here"], []]


@pytest.fixture(scope="module")
def model() -> BiLM:
    model = BiLM.load("en_mini")
    model.engine()  # Runs each layer once, to know the states behind a boundary.
    return model


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """Rows and thread of each run of a layer."""
    seen: List[Any] = []
    original = engine_module._Layer.run

    def run(self: Any, x: torch.Tensor, sizes: Any, state: Any) -> Any:
        seen.append((len(x), threading.get_ident(), torch.get_num_threads()))
        return original(self, x, sizes, state)

    monkeypatch.setattr(engine_module._Layer, "run", run)
    return seen


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_nothing_is_computed_for_padding_and_boundaries(model: BiLM, runs: List[Any]) -> None:
    model.engine().embed(SENTENCES)
    n_layers, n_directions = 2, 2
    assert sum(rows for rows, _, _ in runs) == sum(map(len, SENTENCES)) * n_layers * n_directions


@pytest.mark.usefixtures("two_threads")
def test_directions_run_on_two_threads(model: BiLM, runs: List[Any]) -> None:
    model.engine().embed(SENTENCES)
    threads: Set[int] = {thread for _, thread, _ in runs}
    assert len(threads) == 2 and threading.get_ident() in threads
    assert {number for _, _, number in runs} == {1}


def test_a_word_goes_through_the_char_cnn_once(
    model: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: List[str] = []
    original = model.characters.encode
    engine = model.engine()
    engine.forget_words()
    monkeypatch.setattr(
        model.characters, "encode", lambda words: encoded.extend(words) or original(words)
    )
    engine.embed([*SENTENCES, *SENTENCES])
    assert sorted(encoded) == ["a", "here", "longer", "word"]


def test_short_words_are_not_padded_to_the_longest_that_may_be(
    model: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: List[Any] = []
    original = cnn_module.CharCNNInference._convolve

    def convolve(self: Any, chunk: Any) -> torch.Tensor:
        shapes.append((chunk.ids.shape[0], chunk.n_positions))
        return original(self, chunk)

    monkeypatch.setattr(cnn_module.CharCNNInference, "_convolve", convolve)
    engine = model.engine()
    engine.forget_words()
    engine.embed([["four", "char", "word"]])
    # Four letters, the markers of beginning and end, and what the widest filter sees behind them.
    assert shapes == [(6 + model.config.char_cnn.max_width, 7)]


def _in_child(model: BiLM, queue: Any) -> None:
    seen: List[int] = []
    original = engine_module._Layer.run

    def run(self: Any, *args: Any) -> Any:
        seen.append(torch.get_num_threads())
        return original(self, *args)

    engine_module._Layer.run = run  # type: ignore[method-assign]
    model.engine().embed(SENTENCES)
    queue.put((seen, threading.active_count()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.usefixtures("two_threads")
def test_workers_compute_with_one_thread(model: BiLM) -> None:
    """As many processes as cores with two threads each would be in each other's way."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(model, queue))
    process.start()
    seen, n_threads = queue.get(timeout=60)
    process.join()
    # A layer of each direction after the other; the queue's own thread may not have begun.
    assert seen == [1] * 4 and n_threads <= 2
