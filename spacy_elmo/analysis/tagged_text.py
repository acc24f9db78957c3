"""Sentences with a label on some tokens, from tab-separated files: senses and parts of speech."""

from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from ..errors import ElmoError, Errors
from ..training.readers import decode, read_lines

_MAX_LINE_BYTES = 2**20
#: Columns of CoNLL-U (universaldependencies.org/format.html), counted from 0.
CONLLU_COLUMNS = {"upos": 3, "xpos": 4, "deprel": 7}
_SUFFIXES = ("", ".xz", ".gz")


class TaggedSentence(NamedTuple):
    """A sentence and its labels.

    :param tokens: The tokens.
    :param labels: A label for each token, None where it has none.
    """

    tokens: List[str]
    labels: List[Optional[str]]


def read_senses(path: Union[str, Path]) -> List[TaggedSentence]:
    """Read sense-tagged sentences: number, token, tag, sense, and what else; ``_`` for no sense.

    A blank line ends a sentence, lines with ``#`` in front are comments; ``.xz`` and ``.gz`` are
    unpacked. A sense without a letter behind its last dot (``p.??``: the annotators could not
    tell) counts as none.

    :raises ElmoError: E146 for a line of another form, E147 if no token has a sense, and what
        reading raises.
    """
    sentences = [
        TaggedSentence(
            [row[1] for row in rows],
            [row[3] if any(map(str.isalpha, row[3].rpartition(".")[2])) else None for row in rows],
        )
        for rows in _tables(Path(path), 4, "at least 4 columns (number, token, tag, sense)")
    ]
    return _checked(path, sentences, "token with a sense")


def read_conllu(path: Union[str, Path], column: str = "upos") -> List[TaggedSentence]:
    """Read the words and one column of a CoNLL-U file; multi-word ranges and empty nodes are no
    words.

    :param column: "upos", "xpos" or "deprel".
    :raises ElmoError: E144 for another column, E146 for a line of another form, E147 if no word
        has a label, and what reading raises.
    """
    if column not in CONLLU_COLUMNS:
        expected = "one of " + ", ".join(CONLLU_COLUMNS)
        raise ElmoError(Errors.E144.format(name="column", found=column, expected=expected))
    index = CONLLU_COLUMNS[column]
    sentences = []
    for rows in _tables(Path(path), 10, "10 columns (CoNLL-U)"):
        words = [row for row in rows if row[0].isdigit()]
        if words:
            labels = [None if row[index] == "_" else row[index] for row in words]
            sentences.append(TaggedSentence([row[1] for row in words], labels))
    return _checked(path, sentences, f"word with a label in the column {column}")


def _tables(path: Path, n_columns: int, expected: str) -> Iterator[List[List[str]]]:
    """Rows of each sentence."""
    rows: List[List[str]] = []
    for number, raw in read_lines(path, _MAX_LINE_BYTES):
        line = decode(raw, raw, path, number).rstrip("\r\n")
        if not line.strip():
            if rows:
                yield rows
            rows = []
        # A token may be the number sign: comments have no tab.
        elif not (line.startswith("#") and "\t" not in line):
            row = line.split("\t")
            if len(row) < n_columns or not row[1]:
                found = f"{len(row)} columns" if row[0] or len(row) > 1 else "an empty line"
                if len(row) >= n_columns:
                    found = "an empty token"
                raise ElmoError(
                    Errors.E146.format(path=path, line=number, found=found, expected=expected)
                )
            rows.append(row)
    if rows:
        yield rows


def _checked(
    path: Union[str, Path], sentences: List[TaggedSentence], what: str
) -> List[TaggedSentence]:
    if not any(label is not None for s in sentences for label in s.labels):
        raise ElmoError(Errors.E147.format(path=path, what=what))
    return sentences


def find_parts(
    folder: Union[str, Path], suffix: str, parts: Sequence[str]
) -> Dict[str, Optional[Path]]:
    """Files of a data set in a folder: ``train.tsv``, ``…-ud-train.conllu.xz`` and the like.

    :param suffix: ".tsv" or ".conllu", also compressed.
    :param parts: Names that the files end in before the suffix.
    :returns: The file of each part, None where there is none.
    :raises ElmoError: E022 if several files could be one part.
    """
    found: Dict[str, Optional[Path]] = {}
    for part in parts:
        names = [part + suffix + packed for packed in _SUFFIXES]
        files = [
            path
            for path in sorted(Path(folder).iterdir())
            if path.name in names or path.name.endswith(tuple(f"-{name}" for name in names))
        ]
        if len(files) > 1:
            listed = ", ".join(path.name for path in files)
            raise ElmoError(Errors.E022.format(path=folder, what=f"{part} part", found=listed))
        found[part] = files[0] if files else None
    return found
