"""The output vocabulary of the language model: the words that the softmax can predict.

The input side needs none, since words are read by their characters. The order is canonical (the
most frequent first, equal counts by string) and does not depend on the order of the text or of a
file, so that the same words always give the same model. A log-uniform sampler may rely on it.
"""

import warnings
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from ..bilm.io.atomic import replace_file
from ..bilm.io.dictionaries import unescape
from ..bilm.io.native import VOCABULARY_NAME, WEIGHTS_NAME
from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .readers import read_lines

BOS = "<S>"
EOS = "</S>"
UNK = "<UNK>"
SPECIALS = (BOS, EOS, UNK)
BOS_ID, EOS_ID, UNK_ID = range(3)

# bilm-tf writes this line in some of its files; it is no word.
_MAXTERMID = "!!!MAXTERMID"
_MAX_LINE_BYTES = 2**24
_ASCII_SPACE = " \t\n\r\x0b\x0c"
_OOV_RATE_WARNING = 0.20


class Vocabulary:
    """Words with consecutive ids, after the entries ``<S>`` 0, ``</S>`` 1 and ``<UNK>`` 2.

    The three stand for the boundaries that the model itself adds and for all other words. A token
    of the text that is spelled like one of them is just a word that is not in the vocabulary: it
    has the id of ``<UNK>``, and cannot put a sentence boundary where there is none.

    :param counts:
        Counts of the words, in any order. Entries named like a special entry count as unknown.
    :param special_counts:
        Counts of ``<S>``, ``</S>`` and ``<UNK>``.
    :raises ElmoError:
        When there is no word.
    """

    def __init__(
        self, counts: Dict[str, int], special_counts: Tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        ranked = sorted(
            (item for item in counts.items() if item[0] not in SPECIALS),
            key=lambda item: (-item[1], item[0]),
        )
        if not ranked:
            raise ElmoError(Errors.E077.format(problem="no word was given"))
        literal = sum(counts.get(word, 0) for word in SPECIALS)
        bos, eos, unk = special_counts
        #: Every entry, its index being its id.
        self.words: List[str] = [*SPECIALS, *(word for word, _ in ranked)]
        #: *Shape:* ``(len(self),)``, int64. All zero where nothing was counted.
        self.counts: np.ndarray = np.array(
            [bos, eos, unk + literal, *(count for _, count in ranked)], dtype=np.int64
        )
        self._ids: Dict[str, int] = {word: i for i, (word, _) in enumerate(ranked, len(SPECIALS))}

    @classmethod
    def from_counts(
        cls,
        counts: Iterable[Tuple[str, int]],
        max_size: Optional[int] = None,
        min_count: int = 1,
        *,
        n_sentences: int = 0,
        n_tokens: Optional[int] = None,
    ) -> "Vocabulary":
        """Keep the most frequent words.

        :param counts:
            Types and their counts, in any order; a type that comes twice is added up.
        :param max_size:
            Number of entries at most, the three special ones among them. ``None``: no limit.
        :param min_count:
            Count from which on a word is kept.
        :param n_sentences:
            The count of ``<S>`` and ``</S>``.
        :param n_tokens:
            Tokens of the text, if the counts are incomplete; what is missing counts as unknown.
        :raises ElmoError:
            When no word would be kept.
        """
        totals = _add_up(counts)
        kept = [w for w, count in totals.items() if count >= min_count and w not in SPECIALS]
        kept.sort(key=lambda word: (-totals[word], word))
        if max_size is not None:
            del kept[max(0, max_size - len(SPECIALS)) :]
        if not kept:
            found = f"{len(totals):,} types, min_count {min_count}, max_size {max_size}"
            raise ElmoError(Errors.E077.format(problem=found))
        return cls._counted(kept, totals, n_sentences, n_tokens)

    def with_counts(
        self,
        counts: Iterable[Tuple[str, int]],
        *,
        n_sentences: int = 0,
        n_tokens: Optional[int] = None,
    ) -> "Vocabulary":
        """The same words, counted in another text and ordered accordingly.

        For a vocabulary without counts, or for one made from other text. **Ids change**, so a
        softmax that exists already does not fit the result.

        :param counts:
            Types and their counts, in any order.
        :param n_sentences:
            The count of ``<S>`` and ``</S>``.
        :param n_tokens:
            Tokens of the text, if the counts are incomplete.
        """
        words = self.words[len(SPECIALS) :]
        return self._counted(words, _add_up(counts), n_sentences, n_tokens)

    @classmethod
    def _counted(
        cls, words: List[str], totals: Dict[str, int], n_sentences: int, n_tokens: Optional[int]
    ) -> "Vocabulary":
        kept = {word: totals.get(word, 0) for word in words}
        n_all = max(sum(totals.values()), n_tokens or 0)
        return cls(kept, (n_sentences, n_sentences, n_all - sum(kept.values())))

    @property
    def has_counts(self) -> bool:
        """Whether the words were counted: false for a file without counts."""
        return bool(self.counts[len(SPECIALS) :].any())

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        """Whether a token of this spelling has an id of its own; never for the special entries."""
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.words == other.words and bool(np.array_equal(self.counts, other.counts))

    __hash__ = None  # type: ignore[assignment]

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Ids of tokens, that of ``<UNK>`` for those not in the vocabulary.

        :param tokens:
            Tokens of the text, without boundaries.
        :returns:
            The ids, int64.

            *Shape:* ``(len(tokens),)``
        """
        return np.fromiter(map(self._ids.get, tokens, repeat(UNK_ID)), np.int64, len(tokens))

    def save(self, path: Union[str, Path]) -> None:
        """Write ``word``, tab, count per line in order of the ids, UTF-8, replacing atomically.

        :param path:
            The file.
        :raises ElmoError:
            When a word contains ASCII whitespace or NUL, which a line could not give back.
        """
        path = Path(path)
        lines = []
        for word, count in zip(self.words, self.counts.tolist()):
            # Bytes split at ASCII whitespace alone; other whitespace may be part of a word.
            if word.encode("utf-8").split() != [word.encode("utf-8")] or "\0" in word:
                problem = f"the word {word!r} is empty or contains whitespace or NUL"
                raise ElmoError(Errors.E076.format(path=path, problem=problem))
            lines.append(f"{word}\t{count}\n")
        with replace_file(path) as temporary:
            temporary.write_bytes("".join(lines).encode("utf-8"))

    @classmethod
    def load(cls, path: Union[str, Path]) -> "Vocabulary":
        """Read a file of :meth:`save` or of bilm-tf, plain or compressed (``.gz``, ``.xz``).

        Or the vocabulary of a native model, whose words are escaped: a ``vocabulary.txt`` that
        lies beside the model's weights.

        A bilm-tf file has a token per line and no counts; the words then stand in order of their
        strings, see :meth:`with_counts`. The order of lines never matters, duplicates are one
        entry (the highest count), blank lines are skipped, ``!!!MAXTERMID`` likewise, and the
        special entries may stand anywhere or be absent.

        :param path:
            The file.
        :raises ElmoError:
            When the file is empty, not UTF-8, or its lines are of different kinds.
        """
        path = Path(path)
        entries: List[Tuple[int, str, int]] = []
        counted: Optional[bool] = None
        for number, raw in read_lines(path, _MAX_LINE_BYTES):
            word, count = _parse_line(path, number, raw)
            if word is None:
                continue
            if counted is None:
                counted = count is not None
            if counted != (count is not None):
                raise _bad_line(path, number, "has no count" if counted else "has a count")
            entries.append((number, word, count or 0))
        if path.name == VOCABULARY_NAME and (path.parent / WEIGHTS_NAME).is_file():
            entries = _unescaped(path, entries)
        counts: Dict[str, int] = {}
        for _, word, count in entries:
            counts[word] = max(counts.get(word, 0), count)
        bos, eos, unk = (counts.pop(word, 0) for word in SPECIALS)
        if not counts:
            raise ElmoError(Errors.E076.format(path=path, problem="it has no words"))
        return cls(counts, (bos, eos, unk))


@dataclass(frozen=True)
class CoverageReport:
    """How much of a text a vocabulary and a character limit cover.

    :param n_tokens:
        Running tokens.
    :param n_types:
        Different tokens.
    :param n_vocabulary:
        Entries of the vocabulary, special ones included.
    :param n_oov_tokens:
        Running tokens that are not in the vocabulary.
    :param n_long_types:
        Types of which the encoder does not read the end.
    :param n_long_tokens:
        Running tokens of these types.
    :param max_bytes:
        UTF-8 bytes of a token that the encoder reads.
    """

    n_tokens: int
    n_types: int
    n_vocabulary: int
    n_oov_tokens: int
    n_long_types: int
    n_long_tokens: int
    max_bytes: int

    @property
    def oov_rate(self) -> float:
        """Share of the running tokens that are not in the vocabulary, from 0 to 1."""
        return self.n_oov_tokens / self.n_tokens if self.n_tokens else 0.0

    def text(self) -> str:
        """The report for people, several lines."""
        long_rate = self.n_long_tokens / self.n_tokens if self.n_tokens else 0.0
        rows = {
            "Tokens": f"{self.n_tokens:,} ({self.n_types:,} types)",
            "Vocabulary": f"{self.n_vocabulary:,} entries",
            "Out of vocabulary": f"{self.n_oov_tokens:,} tokens ({self.oov_rate:.2%})",
            f"Longer than {self.max_bytes} bytes": f"{self.n_long_types:,} types, "
            f"{self.n_long_tokens:,} tokens ({long_rate:.4%}); only their beginning is read",
        }
        return "\n".join(f"{name:<24}{value}" for name, value in rows.items())


def coverage(
    counts: Iterable[Tuple[str, int]],
    vocabulary: Vocabulary,
    max_characters: int,
    *,
    n_tokens: Optional[int] = None,
) -> CoverageReport:
    """Compare the types of a text with a vocabulary and with the encoder's character limit.

    Warns when more than 20 % of the tokens are out of vocabulary.

    :param counts:
        Types and their counts, each type once.
    :param vocabulary:
        The vocabulary.
    :param max_characters:
        The encoder's ``max_characters_per_token``; two of them are the word's markers.
    :param n_tokens:
        Tokens of the text, if the counts are incomplete; what is missing counts as unknown.
    """
    max_bytes = max_characters - 2
    n_counted = n_types = n_oov = n_long_types = n_long = 0
    for word, count in counts:
        n_counted += count
        n_types += 1
        if word not in vocabulary:
            n_oov += count
        # A character has at most 4 bytes: most words need not be encoded to be judged.
        if len(word) * 4 > max_bytes and len(word.encode("utf-8", "ignore")) > max_bytes:
            n_long_types += 1
            n_long += count
    missing = max(0, (n_tokens or 0) - n_counted)
    report = CoverageReport(
        n_counted + missing,
        n_types,
        len(vocabulary),
        n_oov + missing,
        n_long_types,
        n_long,
        max_bytes,
    )
    if report.oov_rate > _OOV_RATE_WARNING:
        text = Warnings.W010.format(rate=100 * report.oov_rate)
        warnings.warn(text, ElmoWarning, stacklevel=2)
    return report


def _add_up(counts: Iterable[Tuple[str, int]]) -> Dict[str, int]:
    totals: Dict[str, int] = {}
    for word, count in counts:
        totals[word] = totals.get(word, 0) + count
    return totals


def _parse_line(path: Path, number: int, raw: bytes) -> Tuple[Optional[str], Optional[int]]:
    try:
        line = raw.decode("utf-8").strip(_ASCII_SPACE)
    except UnicodeDecodeError as error:
        raise _bad_line(path, number, "is not UTF-8") from error
    word, tab, digits = line.rpartition("\t")
    if not tab:
        word = line
    elif not (digits.isascii() and digits.isdigit()):
        raise _bad_line(path, number, f"has {digits[:40]!r} after the tab, which is no count")
    word = word.strip(_ASCII_SPACE)
    if not word or (not tab and word == _MAXTERMID):
        return None, None
    _check_word(path, number, word)
    return word, int(digits) if tab else None


def _unescaped(path: Path, entries: List[Tuple[int, str, int]]) -> List[Tuple[int, str, int]]:
    """Entries (line, word, count) of a native model with the words as they are spelled."""
    result = []
    for (number, _, count), word in zip(entries, unescape([word for _, word, _ in entries])):
        _check_word(path, number, word)
        result.append((number, word, count))
    return result


def _check_word(path: Path, number: int, word: str) -> None:
    if len(word.encode("utf-8").split()) != 1:
        raise _bad_line(path, number, f"has whitespace inside the word {word[:40]!r}")


def _bad_line(path: Path, number: int, problem: str) -> ElmoError:
    return ElmoError(Errors.E076.format(path=path, problem=f"line {number} {problem}"))
