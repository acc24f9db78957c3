"""Batches of sentences: everything once an epoch, in an order that can be taken up anywhere."""

from typing import Any, Iterator, List, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.training import batches
from spacy_elmo.training.batches import Batch, Position, ahead, make_batch, sentence_batches

from . import tiny

TEXT = tiny.sentences(300)
WORDS = tiny.vocabulary(TEXT, 50)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks and windows in a text of 300 sentences."""
    monkeypatch.setattr(batches, "BLOCK_SENTENCES", 16)
    monkeypatch.setattr(batches, "WINDOW_BLOCKS", 5)


def run(text: List[List[str]] = TEXT, **changes: Any) -> Iterator[Tuple[Batch, Position]]:
    options = {"seed": 1, "batch_tokens": 64, "epochs": 1, **changes}
    return sentence_batches(tiny.ListCorpus(text), WORDS, **options)


def decode(batch: Batch, k: int) -> List[Tuple[List[str], List[int]]]:
    """Inputs as words and targets as ids of every sentence, in reading order."""
    names = ["<S>", "</S>", *batch.words]
    direction = batch.directions[k]
    rows: List[Tuple[List[str], List[int]]] = [
        ([], []) for _ in range(batch.batch_sizes[0] if batch.batch_sizes else 0)
    ]
    start = 0
    for size in batch.batch_sizes:
        for row in range(size):
            rows[row][0].append(names[direction.inputs[start + row]])
            rows[row][1].append(int(direction.targets[start + row]))
        start += size
    assert start == len(direction.inputs) == len(direction.targets)
    return rows


def texts(batch: Batch) -> List[Tuple[str, ...]]:
    return [tuple(inputs[1:]) for inputs, _ in decode(batch, 0)]


def test_an_epoch_has_every_sentence_exactly_once() -> None:
    found = [sentence for batch, _ in run() for sentence in texts(batch)]
    assert sorted(found) == sorted(map(tuple, TEXT))


def test_the_order_follows_from_seed_and_epoch() -> None:
    def order(**changes: Any) -> List[List[Tuple[str, ...]]]:
        return [texts(batch) for batch, _ in run(**changes)]

    first = order()
    assert first == order()
    assert first != order(seed=2)
    two = order(epochs=2)
    assert two[: len(first)] == first
    # Every epoch has an order, and batches, of its own.
    assert two[len(first) :] != first
    assert sorted(sum(two[len(first) :], [])) == sorted(sum(first, []))
    # Not the order of the text: neighbours are apart.
    places = {tuple(sentence): i for i, sentence in enumerate(TEXT)}
    numbers = [places[sentence] for batch in first for sentence in batch]
    near = sum(abs(a - b) < 16 for a, b in zip(numbers, numbers[1:]))
    assert near < len(numbers) / 2


@pytest.mark.parametrize("epochs", [2, None])
def test_any_position_goes_on_exactly(epochs: Any) -> None:
    whole = []
    for item in run(epochs=epochs):
        whole.append(item)
        if len(whole) == 70:  # more than an epoch
            break
    assert whole[-1][1].epoch == 1 and len({p.window for _, p in whole}) > 2
    for number in range(0, 70, 3):
        rest = run(epochs=epochs, position=whole[number][1])
        for (batch, position), _ in zip(whole[number + 1 : number + 4], range(3)):
            again, again_position = next(rest)
            assert again_position == position
            assert decode(again, 0) == decode(batch, 0) and decode(again, 1) == decode(batch, 1)


def test_the_position_at_the_end_has_nothing_left() -> None:
    *_, (_, last) = run()
    assert list(run(position=last)) == []


@settings(max_examples=20, deadline=None, derandomize=True)
@given(batch_tokens=st.integers(2, 120), seed=st.integers(0, 10**6))
def test_batches_keep_their_bound(batch_tokens: int, seed: int) -> None:
    for batch, _ in run(batch_tokens=batch_tokens, seed=seed):
        n = len(batch.directions[0].inputs)
        assert n == batch.n_targets == sum(batch.batch_sizes)
        assert batch.n_tokens == n - batch.batch_sizes[0]
        # A sentence that is longer than the bound stands alone.
        assert n <= batch_tokens or batch.batch_sizes[0] == 1


def test_batches_are_full() -> None:
    sizes = [batch.n_targets for batch, _ in run(batch_tokens=100)]
    # But for the last one of each window nothing more than a sentence is missing.
    longest = max(len(sentence) for sentence in TEXT) + 1
    assert sum(size <= 100 - longest for size in sizes) <= 4


def test_sentences_of_a_batch_have_similar_lengths() -> None:
    spreads = [batch.batch_sizes[0] - batch.batch_sizes[-1] for batch, _ in run()]
    lengths = [len(batch.batch_sizes) for batch, _ in run()]
    # Packed rows end together: the last step of most batches has nearly all of them.
    assert sorted(spreads)[len(spreads) // 2] <= 3
    assert len(set(lengths)) > 5


def test_inputs_and_targets_of_both_directions() -> None:
    sentences = [["the", "cat", "."], ["a", "dog", "sees", "<S>", "no-such-word"], ["moon"]]
    batch = make_batch(sentences, WORDS)
    forward, backward = decode(batch, 0), decode(batch, 1)
    # Longest first; the same row is the same sentence in both.
    for row, number in enumerate((1, 0, 2)):
        sentence = sentences[number]
        ids = WORDS.ids(sentence).tolist()
        assert forward[row] == (["<S>", *sentence], [*ids, 1])
        assert backward[row] == (["</S>", *reversed(sentence)], [*reversed(ids), 0])
    # The text's "<S>" is a word, read by its characters and predicted as unknown.
    assert batch.words.count("<S>") == 1 and forward[0][1][3] == 2
    assert forward[0][1][4] == 2
    assert sorted(batch.words) == sorted({word for s in sentences for word in s})
    wanted = {0, 1, *(i for s in sentences for i in WORDS.ids(s).tolist())}
    assert batch.all_targets.tolist() == sorted(wanted)


def test_places_in_the_global_batch_name_every_prediction_once() -> None:
    sentences = TEXT[:7]
    batch = make_batch(sentences, WORDS)
    forward = [("<S>", *s) for s in sentences]
    backward = [(*s, "</S>") for s in sentences]
    for direction, texts_ in zip(batch.directions, (forward, backward)):
        words = ["<S>", "</S>", *batch.words]
        inputs = [""] * batch.n_targets
        for place, index in zip(direction.flat, direction.inputs):
            inputs[place] = words[index]
        # Sentence by sentence, in reading order of the text.
        assert inputs == [word for text in texts_ for word in text]


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_processes_share_the_global_batch(world_size: int) -> None:
    streams = [run(rank=rank, world_size=world_size, epochs=2) for rank in range(world_size)]
    for whole, position in run(epochs=2):
        parts = [next(stream) for stream in streams]
        assert {p for _, p in parts} == {position}
        together = sorted(s for part, _ in parts for s in texts(part))
        assert together == sorted(texts(whole))
        for k in (0, 1):
            flat = np.concatenate([part.directions[k].flat for part, _ in parts])
            assert sorted(flat) == list(range(whole.n_targets))
            targets = np.empty(whole.n_targets, np.int64)
            expected = targets.copy()
            expected[whole.directions[k].flat] = whole.directions[k].targets
            for part, _ in parts:
                targets[part.directions[k].flat] = part.directions[k].targets
            assert np.array_equal(targets, expected)
        for part, _ in parts:
            assert part.n_targets == whole.n_targets and part.n_tokens == whole.n_tokens
            assert np.array_equal(part.all_targets, whole.all_targets)


def test_a_process_without_a_sentence_gets_an_empty_share() -> None:
    part = make_batch([["the", "cat"]], WORDS, rank=1, world_size=2)
    assert part.batch_sizes == [] and part.words == []
    assert part.n_targets == 3 and part.directions[0].inputs.shape == (0,)


def test_batches_are_made_ahead_in_order_and_errors_come_through() -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)
        raise RuntimeError("while reading")

    found = []
    with pytest.raises(RuntimeError, match="while reading"):
        for number in ahead(numbers()):
            found.append(number)
    assert found == list(range(5))
