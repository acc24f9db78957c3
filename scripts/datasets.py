"""The data sets of project.yml: which files they have, and how these are read."""

import lzma
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_elmo.errors import ElmoError, Errors

SPLITS = ("train", "dev", "test")
#: Task → file of each split.
FilesT = Dict[str, Tuple[str, str, str]]

_AMBIGUOUS = ("ambiguous-train.iob", "ambiguous-dev.iob", "ambiguous-test.iob")
DATA_SETS: Dict[str, FilesT] = {
    "ambiguous": {"ner": _AMBIGUOUS, "tagger": _AMBIGUOUS},
    "wnut17": {
        "ner": ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    },
    "ewt": {
        "ner": ("en_ewt-ud-train.iob2", "en_ewt-ud-dev.iob2", "en_ewt-ud-test.iob2"),
        "tagger": ("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"),
    },
    "conll2003": {"ner": ("eng.train", "eng.testa", "eng.testb")},
}


class Columns(NamedTuple):
    """Where a format has what; a token a line, a blank line between sentences.

    word (int): Column of the token.
    tag (Optional[int]): Column of its part of speech.
    entity (Optional[int]): Column of its IOB tag.
    numbered (bool): Whether the first column counts the tokens. Lines that begin with # are
        comments then; in other formats # is a token.
    separator (Optional[str]): Between columns; None for any white space.
    """

    word: int
    tag: Optional[int] = None
    entity: Optional[int] = None
    numbered: bool = False
    separator: Optional[str] = "\t"


#: By file suffix.
FORMATS = {
    ".conllu": Columns(word=1, tag=4, numbered=True),
    ".iob2": Columns(word=1, entity=2, numbered=True),
    ".conll": Columns(word=0, entity=1),
    ".annotated": Columns(word=0, entity=1),
    ".train": Columns(word=0, tag=1, entity=3, separator=None),
    ".testa": Columns(word=0, tag=1, entity=3, separator=None),
    ".testb": Columns(word=0, tag=1, entity=3, separator=None),
}
#: Labels of a file that are no part of the released data (UNER's OTH, and tags without a type).
_DROPPED = ("OTH", "O")


class Sentence(NamedTuple):
    """A sentence with what its file says of each token; empty lists for what it does not say."""

    words: List[str]
    tags: List[str]
    entities: List[str]


def files_of(data: str) -> FilesT:
    """Files of a data set.

    :raises ElmoError: E122 if there is no such data set.
    """
    if data not in DATA_SETS:
        raise ElmoError(Errors.E122.format(found=data, allowed=", ".join(DATA_SETS)))
    return DATA_SETS[data]


def find(name: str, source: Path) -> Path:
    """A file in a folder or the folders in it, plain or with .xz behind its name.

    :raises ElmoError: E120 if it is not there.
    """
    for wanted in (name, f"{name}.xz"):
        found = sorted(path for path in source.rglob(wanted) if path.is_file())
        if found:
            return found[0]
    raise ElmoError(Errors.E120.format(name=name, source=source))


def read_bytes(path: Path) -> bytes:
    """What a file holds, unpacked."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def read_sentences(data: bytes, name: str) -> Iterator[Sentence]:
    """Sentences of a file.

    data (bytes): What is in it, UTF-8.
    name (str): Its name, whose suffix says the format.
    :raises ElmoError: E032 for a line that the format does not have.
    """
    lines = data.decode("utf-8").split("\n")
    if name.endswith(".iob"):
        yield from _read_bars(lines, name)
    else:
        yield from _read_columns(lines, name, FORMATS[Path(name).suffix])


def _read_bars(lines: List[str], name: str) -> Iterator[Sentence]:
    """A sentence a line, tokens as word|part of speech|entity."""
    for number, line in enumerate(lines, 1):
        tokens = [token.split("|") for token in line.split()]
        if any(len(token) != 3 for token in tokens):
            raise _malformed(name, number, line, "tokens as word|part of speech|entity")
        if tokens:
            words, tags, entities = (list(column) for column in zip(*tokens))
            yield Sentence(words, tags, _iob2(entities))


def _read_columns(lines: List[str], name: str, columns: Columns) -> Iterator[Sentence]:
    wanted = [columns.word, columns.tag, columns.entity]
    n_columns = 1 + max(column for column in wanted if column is not None)
    rows: List[List[str]] = []
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip():
            if rows:
                yield _sentence(rows, columns)
            rows = []
            continue
        if line.startswith("-DOCSTART-") or (columns.numbered and line.startswith("#")):
            continue
        row = line.rstrip("\r").split(columns.separator)
        if len(row) < n_columns:
            raise _malformed(name, number, line, f"at least {n_columns} columns")
        # Ranges and empty nodes of CoNLL-U are no tokens.
        if not columns.numbered or row[0].isdigit():
            rows.append(row)


def _sentence(rows: List[List[str]], columns: Columns) -> Sentence:
    tags = [row[columns.tag] for row in rows] if columns.tag is not None else []
    entities: List[str] = []
    if columns.entity is not None:
        entities = _iob2([row[columns.entity] for row in rows])
    return Sentence([row[columns.word] for row in rows], tags, entities)


def _iob2(entities: List[str]) -> List[str]:
    """IOB or IOB2 to IOB2, without the labels that are dropped."""
    result: List[str] = []
    before = "O"
    for entity in entities:
        label = entity[2:]
        if entity == "O" or label in _DROPPED:
            entity = "O"
        elif entity.startswith("I-") and before[2:] != label:
            entity = f"B-{label}"
        result.append(entity)
        before = entity
    return result


def _malformed(name: str, line: int, found: str, expected: str) -> ElmoError:
    return ElmoError(Errors.E032.format(path=name, line=line, found=found[:60], expected=expected))


def to_doc(vocab: Vocab, sentence: Sentence) -> Doc:
    """A doc of one sentence.

    Its tokens are the file's: it is not known where spaces are, so spaCy keeps it from
    tokenising the text again, and scores compare with those of others.
    """
    return Doc(
        vocab,
        words=sentence.words,
        tags=sentence.tags or None,
        ents=sentence.entities or None,
        sent_starts=[i == 0 for i in range(len(sentence.words))],
    )
