"""The vocabulary: canonical order, special entries, files, coverage."""

import gzip
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.io.detect import BUILTIN_FOLDER
from spacy_elmo.errors import ElmoError, ElmoWarning
from spacy_elmo.training.vocabulary import BOS, EOS, SPECIALS, UNK, UNK_ID, Vocabulary, coverage

from . import tiny

COUNTS = [("b", 3), ("a", 3), ("ж", 7), ("rare", 1), ("c", 2)]
WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\x0b\x0c\0"), min_size=1
)


def test_ids_are_by_count_then_string_after_the_special_entries():
    vocabulary = Vocabulary.from_counts(COUNTS, n_sentences=4)
    assert vocabulary.words == [BOS, EOS, UNK, "ж", "a", "b", "c", "rare"]
    assert vocabulary.counts.tolist() == [4, 4, 0, 7, 3, 3, 2, 1]
    assert vocabulary.counts.dtype == np.int64
    ids = vocabulary.ids(["b", "ж", "new", "a"])
    assert ids.tolist() == [5, 3, UNK_ID, 4] and ids.dtype == np.int64
    assert vocabulary.ids([]).shape == (0,)
    assert "a" in vocabulary and "new" not in vocabulary
    assert len(vocabulary) == 8


def test_limits_send_the_rest_to_unknown():
    vocabulary = Vocabulary.from_counts(COUNTS, max_size=6, min_count=2)
    assert vocabulary.words == [*SPECIALS, "ж", "a", "b"]
    assert vocabulary.counts[UNK_ID] == 3
    vocabulary = Vocabulary.from_counts(COUNTS, min_count=3, n_tokens=100)
    assert vocabulary.words == [*SPECIALS, "ж", "a", "b"]
    assert vocabulary.counts[UNK_ID] == 100 - 13


@pytest.mark.parametrize("limits", [{"max_size": 3}, {"max_size": -1}, {"min_count": 9}])
def test_a_vocabulary_without_words_is_a_coded_error(limits):
    with pytest.raises(ElmoError, match="ELMO-E077"):
        Vocabulary.from_counts(COUNTS, **limits)
    with pytest.raises(ElmoError, match="ELMO-E077"):
        Vocabulary.from_counts([(BOS, 3)])


def test_literal_special_tokens_of_the_text_are_unknown_words():
    vocabulary = Vocabulary.from_counts([*COUNTS, (BOS, 50), (EOS, 60), (UNK, 70)], n_sentences=4)
    assert vocabulary.words == Vocabulary.from_counts(COUNTS).words
    assert vocabulary.counts[:3].tolist() == [4, 4, 180]
    assert vocabulary.ids(list(SPECIALS)).tolist() == [UNK_ID] * 3
    assert not any(special in vocabulary for special in SPECIALS)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    counts=st.dictionaries(WORDS, st.integers(1, 4), min_size=1, max_size=20),
    seed=st.integers(0, 99),
)
def test_order_of_counts_and_of_file_lines_is_irrelevant(tmp_path_factory, counts, seed):
    items = [*counts.items(), ("fixed", 5)]
    vocabulary = Vocabulary.from_counts(items, max_size=12, n_sentences=3)
    random.Random(seed).shuffle(items)
    assert Vocabulary.from_counts(items, max_size=12, n_sentences=3) == vocabulary

    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    lines = path.read_bytes().decode("utf-8").split("\n")[:-1]
    random.Random(seed).shuffle(lines)
    # A leading line keeps U+FEFF at the start of a word from being a byte order mark.
    path.write_bytes("\n".join(["", *lines]).encode("utf-8"))
    assert Vocabulary.load(path) == vocabulary


def test_saved_file_is_plain_text(tmp_path):
    Vocabulary.from_counts([("ж", 2), ("a", 1)], n_sentences=1).save(tmp_path / "vocab.txt")
    expected = "<S>\t1\n</S>\t1\n<UNK>\t0\nж\t2\na\t1\n"
    assert (tmp_path / "vocab.txt").read_bytes() == expected.encode("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


@pytest.mark.parametrize("word", ["a b", "a\tb", "a\n", "", "\0"])
def test_words_that_a_line_cannot_hold_are_refused_and_the_file_kept(tmp_path, word):
    path = tmp_path / "vocab.txt"
    path.write_text("old")
    with pytest.raises(ElmoError, match="ELMO-E076"):
        Vocabulary.from_counts([("a", 1), (word, 1)]).save(path)
    assert path.read_text() == "old"


def test_bilm_tf_files_are_read_in_any_order(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\ufeff<S>\r\nthe\r\n</S>\n  of \n!!!MAXTERMID\n\nthe\nÄ\n<UNK>\n".encode())
    vocabulary = Vocabulary.load(path)
    assert vocabulary.words == [*SPECIALS, "of", "the", "Ä"]
    assert not vocabulary.has_counts and not vocabulary.counts.any()
    other = tmp_path / "vocab.txt.gz"
    other.write_bytes(gzip.compress("Ä\nthe\nof\n".encode()))
    assert Vocabulary.load(other) == vocabulary


#: As they stand in texts on programs; each has what is an escape in the file of a model.
BACKSLASHES = ["\\", "C:\\temp", "\\\\", "\\n", "a\\", "\\\\server\\new"]


@pytest.mark.parametrize("words", [BACKSLASHES, *([word] for word in BACKSLASHES)], ids=len)
def test_words_with_backslashes_are_those_of_the_model_or_run_they_come_from(tmp_path, words):
    vocabulary = Vocabulary.from_counts([(word, 3) for word in [*words, "ж"]], n_sentences=2)
    tiny.model(vocabulary).save(tmp_path / "model")
    assert Vocabulary.load(tmp_path / "model" / "vocabulary.txt") == vocabulary
    (tmp_path / "run").mkdir()
    vocabulary.save(tmp_path / "run" / "vocabulary.txt")
    assert Vocabulary.load(tmp_path / "run" / "vocabulary.txt") == vocabulary
    # Beside the model, but not its own.
    vocabulary.save(tmp_path / "model" / "mine.txt")
    assert Vocabulary.load(tmp_path / "model" / "mine.txt") == vocabulary


def test_a_word_of_a_model_that_a_run_cannot_hold_is_a_coded_error(tmp_path):
    vocabulary = Vocabulary.from_counts([("a", 1), ("b", 1)])
    model = tiny.model(vocabulary)
    model.vocabulary[4] = ("b\tc", 1)
    model.save(tmp_path / "model")
    with pytest.raises(ElmoError, match="ELMO-E076.*line 5 has whitespace inside the word"):
        Vocabulary.load(tmp_path / "model" / "vocabulary.txt")


def test_the_builtin_vocabulary_is_that_of_the_model():
    model = BiLM.load("en_mini", softmax=True)
    vocabulary = Vocabulary.load(BUILTIN_FOLDER / "en_mini" / "vocabulary.txt")
    assert list(zip(vocabulary.words, vocabulary.counts.tolist())) == model.vocabulary


def test_recounting_gives_the_order_of_a_counted_vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\nc\nunseen\n")
    vocabulary = Vocabulary.load(path).with_counts(COUNTS, n_sentences=2)
    assert vocabulary.words == [*SPECIALS, "a", "b", "c", "unseen"]
    assert vocabulary.counts.tolist() == [2, 2, 8, 3, 3, 2, 0]
    assert vocabulary.has_counts


def test_counted_duplicates_are_one_entry(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("a\t1\nb\t2\na\t5\n")
    assert Vocabulary.load(path).counts.tolist() == [0, 0, 0, 5, 2]


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"", "no words"),
        (b"<S>\n</S>\n<UNK>\n\n", "no words"),
        (b"fine\nB\xe4r\n", "line 2 is not UTF-8"),
        (b"a\t1\nb\n", "line 2 has no count"),
        (b"a\nb\t1\n", "line 2 has a count"),
        (b"a\tmany\n", "line 1 has 'many'"),
        (b"a\t-1\n", "line 1 has '-1'"),
        (b"the 220\n", "line 1 has whitespace"),
    ],
)
def test_unusable_files_are_coded_errors(tmp_path, content, problem):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ElmoError, match=f"ELMO-E076.*vocab.txt.*{problem}"):
        Vocabulary.load(path)


def test_a_missing_file_is_a_coded_error(tmp_path):
    with pytest.raises(ElmoError, match="ELMO-E073.*none.txt"):
        Vocabulary.load(tmp_path / "none.txt")


def test_coverage_counts_unknown_and_long_words():
    long_ascii, long_cyrillic, fits = "x" * 11, "ж" * 6, "ж" * 5
    counts = [("a", 90), (long_ascii, 4), (long_cyrillic, 3), (fits, 2), (BOS, 1)]
    vocabulary = Vocabulary.from_counts(counts, max_size=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = coverage(counts, vocabulary, max_characters=12)
    assert (report.n_tokens, report.n_types, report.n_vocabulary) == (100, 5, 6)
    assert (report.n_oov_tokens, report.oov_rate) == (3, 0.03)
    assert (report.n_long_types, report.n_long_tokens) == (2, 7)
    text = report.text()
    for part in ("100", "3.00%", "10 bytes", "2 types", "7 tokens"):
        assert part in text
    assert len(text.splitlines()) == 4


def test_coverage_warns_about_many_unknown_words():
    vocabulary = Vocabulary.from_counts([("a", 79)])
    with pytest.warns(ElmoWarning, match="ELMO-W010.* 21.0 %"):
        report = coverage([("a", 79), ("b", 11)], vocabulary, 50, n_tokens=100)
    assert report.n_oov_tokens == 21
