"""Packed streams: the text without gaps, in pieces, and taken up at any place."""

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.errors import ElmoError
from spacy_elmo.training import streams
from spacy_elmo.training.batches import Batch
from spacy_elmo.training.streams import StreamPosition, stream_batches

from . import tiny

TEXT = tiny.sentences(150)
WORDS = tiny.vocabulary(TEXT, 50)
STEPS = 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_SENTENCES", 8)


def run(text: List[List[str]] = TEXT, **changes: Any) -> Iterator[Tuple[Batch, StreamPosition]]:
    options = {"seed": 1, "batch_tokens": 6 * STEPS, "steps": STEPS, "epochs": 1, **changes}
    return stream_batches(tiny.ListCorpus(text), WORDS, **options)


def rows(batch: Batch, k: int) -> List[Tuple[List[str], List[int]]]:
    """Inputs as words ("" for boundaries) and targets of each row."""
    n_rows, n_steps = batch.batch_sizes[0], len(batch.batch_sizes)
    boundary = {0: "", 1: ""}
    names = {**boundary, **{i + 2: word for i, word in enumerate(batch.words)}}
    inputs = batch.directions[k].inputs.reshape(n_steps, n_rows).T
    targets = batch.directions[k].targets.reshape(n_steps, n_rows).T
    assert set(batch.directions[k].inputs[batch.directions[k].inputs < 2]) <= {k}
    return [([names[i] for i in row], row_t.tolist()) for row, row_t in zip(inputs, targets)]


def joined(items: List[Batch], k: int) -> List[Tuple[List[str], List[int]]]:
    """The pieces of each row end to end."""
    result: List[Tuple[List[str], List[int]]] = []
    for batch in items:
        for row, (inputs, targets) in enumerate(rows(batch, k)):
            if len(result) <= row:
                result.append(([], []))
            result[row][0].extend(inputs)
            result[row][1].extend(targets)
    return result


def test_pieces_of_a_row_are_the_text_without_gaps() -> None:
    batches = [batch for batch, _ in run()]
    by_words = {tuple(sentence) for sentence in TEXT}
    seen: List[Tuple[str, ...]] = []
    for (read, targets), (back, back_targets) in zip(joined(batches, 0), joined(batches, 1)):
        # Sentences that are whole in the row; the last one may be cut.
        starts = [i for i, word in enumerate(read) if word == ""]
        assert starts[0] == 0
        # Both directions stand in the same sentence.
        assert starts == [i for i, word in enumerate(back) if word == ""]
        for start, stop in zip(starts, starts[1:]):
            sentence = read[start + 1 : stop]
            assert tuple(sentence) in by_words
            ids = WORDS.ids(sentence).tolist()
            assert targets[start:stop] == [*ids, 1]
            assert back[start + 1 : stop] == sentence[::-1]
            assert back_targets[start:stop] == [*reversed(ids), 0]
            seen.append(tuple(sentence))
        # The last, cut sentence goes on as its text does.
        tail = read[starts[-1] + 1 :]
        assert any(list(s[: len(tail)]) == tail for s in by_words)
    every: Dict[Tuple[str, ...], int] = {}
    for s in map(tuple, TEXT):
        every[s] = every.get(s, 0) + 1
    assert all(seen.count(s) <= n for s, n in every.items())


def test_an_epoch_leaves_hardly_more_than_a_piece_of_each_row_out() -> None:
    n = sum(len(sentence) + 1 for sentence in TEXT)
    longest = max(len(sentence) + 1 for sentence in TEXT)
    for n_rows in (1, 3, 6, 20):
        used = sum(batch.n_targets for batch, _ in run(batch_tokens=n_rows * STEPS))
        assert n - n_rows * (STEPS + 2 * longest) <= used <= n
    assert n - used > 0


def test_batches_have_their_rows_and_counts() -> None:
    for batch, position in run(batch_tokens=30):  # seven rows and a rest
        assert batch.batch_sizes == [7] * STEPS and batch.n_targets == 28
        ends = [int((d.targets == 1 - k).sum()) for k, d in enumerate(batch.directions)]
        assert batch.n_tokens == 28 - ends[0] and ends[0] == ends[1]
        assert len(position.sentence) == len(position.offset) == 7


def test_the_order_follows_from_the_seed_and_epochs_differ() -> None:
    def order(**changes: Any) -> List[Any]:
        return [rows(batch, 0) for batch, _ in run(**changes)]

    first = order()
    assert first == order() and first != order(seed=2)
    two = order(epochs=2)
    assert two[: len(first)] == first and two[len(first)] != first[0]
    # A new epoch begins with the begin of a sentence in every row.
    assert all(inputs[0] == "" for inputs, _ in two[len(first)])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(number=st.integers(0, 60), steps=st.sampled_from([1, 4, 7]))
def test_any_position_goes_on_exactly(number: int, steps: int) -> None:
    options: Dict[str, Any] = {"steps": steps, "batch_tokens": 6 * steps, "epochs": None}
    whole = run(**options)
    for _ in range(number + 1):
        _, position = next(whole)
    # As it comes back from a JSON file.
    position = StreamPosition(position.epoch, tuple(position.sentence), tuple(position.offset))
    rest = run(position=position, **options)
    for _ in range(4):
        (a, a_position), (b, b_position) = next(whole), next(rest)
        assert a_position == b_position
        assert rows(a, 0) == rows(b, 0) and rows(a, 1) == rows(b, 1)


def test_the_position_at_the_end_has_nothing_left() -> None:
    *_, (_, last) = run()
    assert list(run(position=last)) == []


@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_share_the_rows(world_size: int) -> None:
    parts = [run(rank=rank, world_size=world_size) for rank in range(world_size)]
    for whole, position in run():
        shares = [next(part) for part in parts]
        for k in (0, 1):
            expected = rows(whole, k)
            for rank, (share, share_position) in enumerate(shares):
                assert rows(share, k) == expected[rank::world_size]
                assert share_position == position
                assert share.n_targets == whole.n_targets
            flat = np.concatenate([share.directions[k].flat for share, _ in shares])
            assert sorted(flat) == list(range(whole.n_targets))


@pytest.mark.parametrize("epochs", [3, None])
def test_a_text_too_short_for_one_batch_is_an_error(epochs: Any) -> None:
    with pytest.raises(ElmoError, match="ELMO-E080.* 9 predictions .* 6 rows of 4 steps"):
        next(run([["a", "b"]] * 3, epochs=epochs))
