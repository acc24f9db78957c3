"""Words to character ids, a whole list at once.

Byte models have a fixed table: 0-255 are UTF-8 bytes, then the marks below. Ids are rows of the
model's ``char_embedding``; there is no id for masked positions, since none are ever fed.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

BOS_CHARACTER = 256
EOS_CHARACTER = 257
WORD_BEGIN = 258
WORD_END = 259
PAD_CHARACTER = 260
#: Entries of the dictionaries of ELMoForManyLangs that stand for no text.
DICTIONARY_MARKS = frozenset(("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"))


class CharacterIds(NamedTuple):
    """Characters of a list of words, the two sentence boundaries first.

    :param ids: Rows of the character table, padded with the pad character up to the longest
        word. *Shape:* ``(2 + n_words, max(lengths))``
    :param lengths: Characters of each word, its two markers included. *Shape:*
        ``(2 + n_words,)``
    :param words: Rows of the table of word vectors, only where the model has one. *Shape:*
        ``(2 + n_words,)``
    """

    ids: np.ndarray
    lengths: np.ndarray
    words: Optional[np.ndarray] = None


class ByteCharacters:
    """The fixed byte alphabet of bilm-tf and of our own models.

    :param max_characters: Positions of a word, both word markers included. The first
        ``max_characters - 2`` bytes of a longer word are kept, even if that cuts a character.
    """

    def __init__(self, max_characters: int = 50) -> None:
        self.max_characters = max_characters

    def encode(self, words: Sequence[str]) -> CharacterIds:
        """Give the characters of the boundaries ``<S>``, ``</S>`` and then of ``words``.

        Text is never taken for a boundary: a word ``"<S>"`` is three bytes. Lone surrogates
        have no UTF-8 form and vanish, as in the original implementation.
        """
        limit = self.max_characters - 2
        encoded = [word.encode("utf-8", "ignore")[:limit] for word in words]
        lengths = np.fromiter((len(b) for b in encoded), np.int64, len(encoded))
        return _assemble(np.frombuffer(b"".join(encoded), np.uint8), lengths)


def _assemble(values: np.ndarray, lengths: np.ndarray) -> CharacterIds:
    n = len(lengths)
    ids = np.full((n + 2, int(lengths.max(initial=1)) + 2), PAD_CHARACTER, np.int64)
    ids[:, 0] = WORD_BEGIN
    ids[0, 1], ids[1, 1] = BOS_CHARACTER, EOS_CHARACTER
    ids[:2, 2] = WORD_END
    rows = np.repeat(np.arange(2, n + 2), lengths)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids[rows, 1 + np.arange(len(values)) - starts] = values
    ids[np.arange(2, n + 2), lengths + 1] = WORD_END
    return CharacterIds(ids, np.concatenate(([3, 3], lengths + 2)))


class DictionaryCharacters:
    """The alphabet of an ELMoForManyLangs model: code points and words with ids of its own.

    The first position of a word carries the id of ``<eow>`` and the last that of ``<bow>``.
    They are swapped on purpose: the published models were trained so.

    :param characters: Character dictionary, with ``<oov>``, ``<pad>``, ``<bow>``, ``<eow>``,
        and ``<bos>``, ``<eos>`` as the one character of each boundary.
    :param words: Word dictionary, or None for a model without word vectors.
    :param max_characters: Positions of a word, both markers included; counts code points.
    """

    def __init__(
        self,
        characters: Dict[str, int],
        words: Optional[Dict[str, int]],
        max_characters: int = 50,
    ) -> None:
        self.max_characters = max_characters
        self._characters = characters
        self._words = words

    def encode(self, words: Sequence[str]) -> CharacterIds:
        """Give the characters and word ids of ``<bos>``, ``<eos>`` and then of ``words``.

        Text is never taken for a boundary: a word ``"<bos>"`` is five code points and unknown.
        """
        table, limit = self._characters, self.max_characters - 2
        unknown, pad = table["<oov>"], table["<pad>"]
        boundaries = [[table.get(mark, unknown)] for mark in ("<bos>", "<eos>")]
        inner: List[List[int]] = boundaries + [
            [table.get(ch, unknown) for ch in word[:limit]] for word in words
        ]
        lengths = np.array([len(chars) + 2 for chars in inner], np.int64)
        ids = np.full((len(inner), int(lengths.max())), pad, np.int64)
        for row, chars in enumerate(inner):
            ids[row, 0] = table["<eow>"]
            ids[row, 1 : 1 + len(chars)] = chars
            ids[row, 1 + len(chars)] = table["<bow>"]
        word_ids = None
        if self._words is not None:
            oov = self._words["<oov>"]
            known = [self._words.get(mark, oov) for mark in ("<bos>", "<eos>")]
            known += [oov if w in DICTIONARY_MARKS else self._words.get(w, oov) for w in words]
            word_ids = np.array(known, np.int64)
        return CharacterIds(ids, lengths, word_ids)
