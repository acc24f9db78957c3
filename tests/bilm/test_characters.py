"""Words to character ids."""

from typing import List

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm.characters import ByteCharacters, CharacterIds, DictionaryCharacters

from .writers import CHARACTERS, WORDS

BEGIN, END, PAD = 258, 259, 260


def row(encoded: CharacterIds, index: int) -> List[int]:
    """One word's ids without the padding, which is checked."""
    length = int(encoded.lengths[index])
    assert (encoded.ids[index, length:] == PAD).all()
    return encoded.ids[index, :length].tolist()


@pytest.mark.parametrize(
    "word, expected",
    [
        ("a", [97]),
        ("é", [0xC3, 0xA9]),
        ("e\u0301", [101, 0xCC, 0x81]),
        ("中", [0xE4, 0xB8, 0xAD]),
        ("🙂", [0xF0, 0x9F, 0x99, 0x82]),
        ("\u00a0", [0xC2, 0xA0]),
        ("\x00", [0]),
        ("<S>", list(b"<S>")),
        ("</S>", list(b"</S>")),
        ("", []),
        ("\ud800", []),
        ("a\udfffb", list(b"ab")),
    ],
)
def test_words_are_their_utf8_bytes_between_marks(word: str, expected: List[int]) -> None:
    encoded = ByteCharacters().encode(["longer than the others", word])
    assert row(encoded, 3) == [BEGIN, *expected, END]


@pytest.mark.parametrize("words", [[], [""], ["word"]])
def test_boundaries_come_first(words: List[str]) -> None:
    encoded = ByteCharacters().encode(words)
    assert row(encoded, 0) == [BEGIN, 256, END]
    assert row(encoded, 1) == [BEGIN, 257, END]
    assert len(encoded.ids) == len(encoded.lengths) == len(words) + 2


def test_long_words_are_cut_in_bytes_even_inside_a_character() -> None:
    encoded = ByteCharacters(50).encode(["a" * 48, "a" * 49, "a" + "Ж" * 24, "a" + "Ж" * 23])
    assert row(encoded, 2) == row(encoded, 3) == [BEGIN, *[97] * 48, END]
    assert row(encoded, 4) == [BEGIN, 97, *list("Ж".encode()) * 23, 0xD0, END]
    assert row(encoded, 5) == [BEGIN, 97, *list("Ж".encode()) * 23, END]
    assert encoded.ids.shape == (6, 50)


def test_the_smallest_limit_leaves_one_byte() -> None:
    encoded = ByteCharacters(3).encode(["é", ""])
    assert [row(encoded, i) for i in (2, 3)] == [[BEGIN, 0xC3, END], [BEGIN, END]]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(), max_size=12), max_size=6), st.integers(3, 12))
def test_a_list_is_encoded_as_its_words_are_alone(words: List[str], limit: int) -> None:
    characters = ByteCharacters(limit)
    together = characters.encode(words)
    assert together.ids.shape[1] == together.lengths.max() <= limit
    for i, word in enumerate(words):
        assert row(together, i + 2) == row(characters.encode([word]), 2)


@pytest.fixture
def dictionary() -> DictionaryCharacters:
    return DictionaryCharacters(
        {c: i for i, c in enumerate(CHARACTERS)}, {w: i for i, w in enumerate(WORDS)}, 6
    )


def ids(*symbols: str) -> List[int]:
    return [CHARACTERS.index(symbol) for symbol in symbols]


def test_dictionary_models_have_their_marks_swapped(dictionary: DictionaryCharacters) -> None:
    encoded = dictionary.encode(["aé", "中z", "", "a\u3000"])
    pad = CHARACTERS.index("<pad>")
    expected = [
        ids("<eow>", "<bos>", "<bow>"),
        ids("<eow>", "<eos>", "<bow>"),
        ids("<eow>", "a", "é", "<bow>"),
        ids("<eow>", "中", "<oov>", "<bow>"),
        ids("<eow>", "<bow>"),
        ids("<eow>", "a", "\u3000", "<bow>"),
    ]
    for found, length, chars in zip(encoded.ids, encoded.lengths, expected, strict=True):
        assert found[:length].tolist() == chars
        assert (found[length:] == pad).all()


def test_dictionary_models_cut_code_points(dictionary: DictionaryCharacters) -> None:
    encoded = dictionary.encode(["中a中a中b"])
    assert encoded.ids[2].tolist() == ids("<eow>", "中", "a", "中", "a", "<bow>")


def test_words_of_dictionary_models_are_looked_up_uncut(dictionary: DictionaryCharacters) -> None:
    encoded = dictionary.encode(["the", "Zürich", "zürich"])
    expected = [WORDS.index(w) for w in ("<bos>", "<eos>", "the", "Zürich", "<oov>")]
    assert encoded.words is not None and encoded.words.tolist() == expected


def test_marks_in_text_are_text(dictionary: DictionaryCharacters) -> None:
    """Neither the word vector of a boundary nor its character is within reach of text."""
    encoded = dictionary.encode(["<bos>", "<eos>", "<oov>", "<pad>"])
    assert encoded.words is not None
    assert (encoded.words[2:] == WORDS.index("<oov>")).all()
    for mark in ("<bos>", "<eos>"):
        assert CHARACTERS.index(mark) not in encoded.ids[2:]


def test_models_without_word_vectors_have_no_word_ids() -> None:
    table = {c: i for i, c in enumerate(CHARACTERS)}
    encoded = DictionaryCharacters(table, None, 6).encode(["a"])
    assert encoded.words is None
    np.testing.assert_array_equal(encoded.lengths, [3, 3, 3])
