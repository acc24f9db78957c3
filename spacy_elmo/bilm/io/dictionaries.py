"""Dictionary files: ``char.dic``, ``word.dic`` and the ``vocabulary.txt`` of a softmax."""

import re
from pathlib import Path
from typing import Dict, List, Sequence, Tuple, Union

from ...errors import ElmoError, Errors
from .sniff import foreign_file
from .weights import ModelFiles

CHARACTERS_NAME = "char.dic"
WORDS_NAME = "word.dic"
CHARACTER_MARKS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
WORD_MARKS = ("<oov>", "<pad>")

#: ELMoForManyLangs strips lines before it splits them, so a symbol that is white space is lost.
#: What remains, an index alone, is taken for this one, the ideographic space.
LOST_SYMBOL = "\u3000"

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPES = {escape[1]: char for char, escape in _ESCAPES.items()}
#: A word in which every backslash begins an escape.
_ESCAPED = re.compile(r"(?:[^\\]|\\[\\nrt])*")


def parse_dictionary(data: bytes, path: Union[str, Path]) -> Dict[str, int]:
    """Read ``symbol<TAB>index`` lines as ELMoForManyLangs does.

    Lines are stripped; a line that has lost its symbol stands for U+3000; of several lines for
    one symbol the last counts.

    :param data: Contents of the file.
    :param path: Named in messages.
    :raises ElmoError: E032 naming the line, E023 if it is not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError as err:
        raise ElmoError(
            Errors.E023.format(path=path, expected="a UTF-8 dictionary", found=err)
        ) from err
    symbols: Dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        parts = line.strip().split("\t")
        if parts == [""]:
            continue
        symbol, index = [LOST_SYMBOL, *parts] if len(parts) == 1 else (parts[0], parts[-1])
        if len(parts) > 2 or not (index.isascii() and index.isdigit()):
            raise ElmoError(
                Errors.E032.format(
                    path=path, line=number, found=line[:80], expected="symbol<TAB>index"
                )
            )
        symbols[symbol] = int(index)
    return symbols


def dump_dictionary(symbols: Dict[str, int]) -> bytes:
    """Write ``symbol<TAB>index`` lines in the order of the indices."""
    lines = sorted(symbols.items(), key=lambda item: item[1])
    text = "".join(f"{symbol}\t{index}\n" for symbol, index in lines)
    return text.encode("utf-8", "surrogatepass")


def check_dictionary(
    symbols: Dict[str, int], marks: Sequence[str], n_rows: int, path: Union[str, Path]
) -> None:
    """Check that a dictionary has its special symbols and fits its table of vectors.

    :param marks: Symbols that must be in it.
    :param n_rows: Rows of the table.
    :raises ElmoError: E033.
    """
    problems = [f"it has no {mark}" for mark in marks if mark not in symbols]
    too_high = [symbol for symbol, index in symbols.items() if index >= n_rows]
    if too_high:
        problems.append(
            f"{len(too_high)} of its {len(symbols)} indices are beyond the {n_rows} rows of the "
            f"weights, the first is that of {too_high[0]!r} ({symbols[too_high[0]]})"
        )
    if problems:
        raise ElmoError(Errors.E033.format(path=path, problems="; ".join(problems)))


def read_dictionaries(folder: Path, files: ModelFiles) -> None:
    """Read the dictionaries of a "codepoint" model from its folder into ``files``.

    :raises ElmoError: E023 for an absent or foreign file, E032, E033.
    """
    cnn = files.config.char_cnn
    for name in (CHARACTERS_NAME, WORDS_NAME):
        needed = name == CHARACTERS_NAME or cnn.word_dim > 0
        try:
            data = (folder / name).read_bytes()
        except OSError as err:
            if needed:
                raise foreign_file(folder / name, "a dictionary", err) from err
            continue
        files.extra_files[name] = data
        if name == CHARACTERS_NAME:
            files.characters = parse_dictionary(data, folder / name)
            check_dictionary(files.characters, CHARACTER_MARKS, cnn.n_characters, folder / name)
        elif needed:
            files.words = parse_dictionary(data, folder / name)
            check_dictionary(files.words, WORD_MARKS, cnn.n_words, folder / name)


def dictionary_files(files: ModelFiles) -> Dict[str, bytes]:
    """The dictionaries of a model as files: those it came with, if they still say the same.

    :raises ElmoError: E033 for dictionaries that are incomplete or cannot be written.
    """
    cnn = files.config.char_cnn
    if cnn.unit != "codepoint":
        return {}
    result: Dict[str, bytes] = {}
    for name, symbols, marks, n_rows in (
        (CHARACTERS_NAME, files.characters or {}, CHARACTER_MARKS, cnn.n_characters),
        (WORDS_NAME, files.words or {}, WORD_MARKS, cnn.n_words),
    ):
        data = files.extra_files.get(name)
        if name == WORDS_NAME and not cnn.word_dim:
            # Without word vectors it only names the outputs of a softmax.
            result.update({} if data is None else {name: data})
            continue
        check_dictionary(symbols, marks, n_rows, name)
        if data is None or parse_dictionary(data, name) != symbols:
            data = dump_dictionary(symbols)
            if parse_dictionary(data, name) != symbols:
                problem = "symbols with white space or control characters cannot be written"
                raise ElmoError(Errors.E033.format(path=name, problems=problem))
        result[name] = data
    return result


def dump_vocabulary(vocabulary: Sequence[Tuple[str, int]]) -> bytes:
    """Write ``word<TAB>count`` lines; control characters and ``\\`` in a word are escaped."""
    table = str.maketrans(_ESCAPES)
    text = "".join(f"{word.translate(table)}\t{count}\n" for word, count in vocabulary)
    return text.encode("utf-8", "surrogatepass")


def read_vocabulary(path: Path) -> List[Tuple[str, int]]:
    """Read what :func:`dump_vocabulary` wrote, or the vocabulary of a run, see :func:`unescape`.

    :raises ElmoError: E032 naming the line, E023 if the file is missing or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError) as err:
        raise ElmoError(
            Errors.E023.format(path=path, expected="the vocabulary of the softmax", found=err)
        ) from err
    words: List[str] = []
    counts: List[int] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        word, tab, count = line.partition("\t")
        if not tab or not (count.isascii() and count.isdigit()):
            raise ElmoError(
                Errors.E032.format(
                    path=path, line=number, found=line[:80], expected="word<TAB>count"
                )
            )
        words.append(word)
        counts.append(int(count))
    return list(zip(unescape(words), counts))


def unescape(words: Sequence[str]) -> List[str]:
    """Give the words of a file of :func:`dump_vocabulary` as they are spelled.

    Other writers, that of a run's vocabulary among them, escape nothing. Where any of the words
    has a backslash that begins no escape, the file is one of theirs and all words stay as they
    are; a file of theirs in which every backslash happens to begin one cannot be told apart.

    :param words: All words of the file.
    """
    if not all(_ESCAPED.fullmatch(word) for word in words):
        return list(words)
    return [
        re.sub(r"\\(.)", lambda match: _UNESCAPES[match[1]], word) if "\\" in word else word
        for word in words
    ]
