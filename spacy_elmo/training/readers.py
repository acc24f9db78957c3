"""Sentences from training files: text, compressed text, JSONL and DocBin, streamed.

Everything that can be wrong with a file is reported with its name and, where it has lines, the
line, so that a corpus can be validated before any training step. Files are read as bytes and
decoded here, which makes the result independent of the locale.
"""

import glob
import gzip
import io
import lzma
import os
import re
import zlib
from itertools import count
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
)

from ..errors import ElmoError, Errors

if TYPE_CHECKING:
    from .spacy_reader import Pipeline

UTF8_BOM = b"\xef\xbb\xbf"

# A longer line is no sentence but a file without line ends; the first number also bounds what
# is held in memory, so that such a file is found out before it is read whole.
MAX_LINE_BYTES = {"text": 2**24, "jsonl": 2**28}
MAX_LINE_CHARACTERS = 1_000_000
MAX_LINE_TOKENS = 50_000

# Extensions that look like input but would be misread as text.
_NOT_TEXT = {
    ".json": "JSON: write one JSON object per line and name the file .jsonl",
    ".ndjson": "JSONL: name the file .jsonl",
    ".conllu": "CoNLL-U: convert it with 'spacy convert' to .spacy",
    ".conll": "CoNLL: convert it with 'spacy convert' to .spacy",
    ".iob": "IOB: convert it with 'spacy convert' to .spacy",
    ".xml": "XML: extract the text first",
    ".html": "HTML: extract the text first",
    ".pdf": "PDF: extract the text first",
    ".parquet": "Parquet: export the text as .jsonl",
    ".zip": "a zip archive: unpack it",
    ".tar": "a tar archive: unpack it",
    ".tgz": "a tar archive: unpack it",
    ".bz2": "bzip2: recompress it as .gz or .xz",
    ".zst": "Zstandard: recompress it as .gz or .xz",
    ".hdf5": "HDF5: this is no text",
    ".safetensors": "model weights: this is no text",
}

# NUL stands with ASCII whitespace because no file of ours may contain it.
_NO_TOKEN = " \t\n\r\x0b\x0c\0"
_INNER_SPACE = re.compile(f"[{_NO_TOKEN}]+")


class Sentence(NamedTuple):
    """A tokenised sentence and whether a new document begins with it."""

    tokens: List[str]
    starts_document: bool


def expand_inputs(inputs: Sequence[Union[str, Path]]) -> List[Path]:
    """Resolve file names and glob patterns to files.

    A name that exists is taken literally even if it contains ``[``, ``*`` or ``?``. Patterns may
    use ``**``. The matches of one pattern are sorted; a file that is named twice is kept once, at
    its first place.

    :param inputs:
        Paths and glob patterns.
    :returns:
        The files.
    :raises ElmoError:
        When there is no input, a path does not exist, a pattern matches no file, a path is a
        directory, or the extension is of a format that cannot be read.
    """
    if isinstance(inputs, (str, Path)):
        inputs = [inputs]
    files: List[Path] = []
    for entry in inputs:
        path = Path(entry)
        if os.path.isdir(path):
            raise ElmoError(Errors.E061.format(path=path))
        if os.path.exists(path):
            files.append(path)
            continue
        matches = sorted(map(Path, filter(os.path.isfile, glob.glob(str(entry), recursive=True))))
        if not matches:
            raise ElmoError(Errors.E060.format(path=entry, cwd=Path.cwd()))
        files.extend(matches)
    if not files:
        raise ElmoError(Errors.E063)
    unique: Dict[Path, Path] = {}
    for path in files:
        input_format(path)
        unique.setdefault(path.resolve(), path)
    return list(unique.values())


def input_format(path: Path) -> str:
    """``"text"``, ``"jsonl"`` or ``"docbin"``, judged by the extension.

    :param path:
        The file. A final ``.gz`` or ``.xz`` is looked through.
    :raises ElmoError:
        When the extension belongs to a format that cannot be read, or the path is a pipe or device.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        # The inputs are read twice, the second time for their fingerprint.
        raise ElmoError(Errors.E062.format(path=path, what="no regular file: save it to one"))
    compressed = path.suffix.lower() in (".gz", ".xz")
    suffix = (Path(path.stem) if compressed else path).suffix.lower()
    if suffix == ".jsonl":
        return "jsonl"
    if suffix == ".spacy":
        if compressed:
            raise ElmoError(
                Errors.E062.format(path=path, what="a compressed DocBin: unpack it to .spacy")
            )
        return "docbin"
    if suffix in _NOT_TEXT:
        raise ElmoError(Errors.E062.format(path=path, what=_NOT_TEXT[suffix]))
    return "text"


def read_documents(
    paths: Sequence[Union[str, Path]],
    *,
    lang: Optional[str] = None,
    model: Optional[str] = None,
) -> Iterator[Sentence]:
    """Stream the sentences of files, with memory independent of their size.

    ==================  =======================================================================
    extension           content
    ==================  =======================================================================
    ``.jsonl``          an object a line. ``{"text": ...}`` is tokenised and split to sentences
                        by the pipeline; ``{"tokens": [...]}`` is split to sentences by the
                        pipeline, or is one sentence if there is none. An object is a document.
                        Boundaries are the model's where it sets any, else the Sentencizer's.
    ``.spacy``          a DocBin, loaded whole. Its own sentence boundaries are used where it
                        has them, else those of spaCy's Sentencizer.
    anything else       text: a pre-tokenised sentence a line, a blank line between documents.
    ==================  =======================================================================

    Text and JSONL may be compressed (``.gz``, ``.xz``). Every file begins a new document.

    Lines of text are split at ASCII whitespace alone, so that U+00A0 and its like may be part of
    a token. Tokens of the other formats lose ASCII whitespace and NUL at their ends, and what is
    left inside becomes U+00A0, so that no token contains any; tokens of nothing but whitespace (of
    any kind) are dropped.

    :param paths:
        The files, see :func:`expand_inputs`.
    :param lang:
        Code of the language whose blank pipeline tokenises JSONL.
    :param model:
        Name or path of the spaCy pipeline that tokenises JSONL instead.
    :returns:
        The sentences, none of them empty.
    :raises ElmoError:
        While iterating, at the first thing that is wrong with a file: it cannot be read or
        decompressed, is not UTF-8, contains a NUL character, an overlong line or invalid JSON, or
        has no token in it at all.
    """
    if lang is not None and model is not None:
        raise ElmoError(
            Errors.E070.format(
                name=f"language {lang!r} and model {model!r}",
                reason="only one of the two can tokenise the text",
            )
        )
    return _read_all([Path(path) for path in paths], lang, model)


def _read_all(paths: List[Path], lang: Optional[str], model: Optional[str]) -> Iterator[Sentence]:
    pipeline: Optional["Pipeline"] = None
    for path in paths:
        kind = input_format(path)
        if kind == "text":
            sentences = _read_text(path)
        else:
            # Imported here because the trainer works on plain text without spaCy.
            from . import spacy_reader

            if kind == "docbin":
                sentences = spacy_reader.read_docbin(path)
            else:
                if pipeline is None and (lang or model):
                    pipeline = spacy_reader.Pipeline(lang, model)
                sentences = spacy_reader.read_jsonl(path, pipeline)
        empty = True
        for sentence in sentences:
            empty = False
            yield sentence
        if empty:
            raise ElmoError(Errors.E067.format(path=path))


def _read_text(path: Path) -> Iterator[Sentence]:
    starts = True
    for number, line in read_lines(path, MAX_LINE_BYTES["text"]):
        # Splitting the bytes splits at ASCII whitespace only, and is faster than a pattern.
        joined = b" ".join(line.split())
        if not joined:
            starts = True
            continue
        tokens = decode(joined, line, path, number).split(" ")
        if len(line) > MAX_LINE_CHARACTERS and len(tokens) > MAX_LINE_TOKENS:
            n_characters = len(line.decode("utf-8"))
            if n_characters > MAX_LINE_CHARACTERS:
                raise ElmoError(
                    Errors.E072.format(
                        path=path,
                        line=number,
                        found=f"{n_characters:,} characters and {len(tokens):,} tokens",
                    )
                )
        yield Sentence(tokens, starts)
        starts = False


def read_lines(path: Path, max_bytes: int) -> Iterator[Tuple[int, bytes]]:
    """Stream the raw lines of a file, decompressed, with their numbers from 1.

    :param path:
        The file.
    :param max_bytes:
        Length from which on a line is an error.
    :raises ElmoError:
        While iterating: the file cannot be read or decompressed, has an overlong line, or a line
        with a NUL character, which is never text but UTF-16 or binary data.
    """
    line = b""
    try:
        with _open(path) as stream:
            for number in count(1):
                line = stream.readline(max_bytes)
                if not line:
                    return
                if number == 1 and line.startswith(UTF8_BOM):
                    line = line[len(UTF8_BOM) :]
                if b"\0" in line:
                    raise ElmoError(Errors.E065.format(path=path, line=number))
                if len(line) == max_bytes and not line.endswith(b"\n"):
                    raise ElmoError(
                        Errors.E072.format(
                            path=path, line=number, found=f"more than {max_bytes:,} bytes"
                        )
                    )
                yield number, line
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ElmoError(Errors.E066.format(path=path, reason=error)) from error
    except OSError as error:
        raise ElmoError(Errors.E073.format(path=path, reason=error.strerror or error)) from error


def decode(data: bytes, line: bytes, path: Path, number: int) -> str:
    """Decode UTF-8, or say where it is none.

    :param data:
        What to decode: the line, or the line with its whitespace normalised.
    :param line:
        The line as it stands in the file; the offset in the message refers to it.
    :param path:
        File of the line.
    :param number:
        Number of the line.
    :raises ElmoError:
        When the line is not valid UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ElmoError(
                Errors.E064.format(
                    path=path,
                    line=number,
                    offset=error.start + 1,
                    byte=f"0x{line[error.start]:02x}",
                )
            ) from error
        raise


def clean_token(token: str) -> str:
    """A token without ASCII whitespace and NUL: stripped, and U+00A0 in place of what is inside.

    :param token:
        Any string.
    :returns:
        The token, ``""`` if it was nothing but whitespace of any kind.
    """
    if not token or token.isspace():
        return ""
    return _INNER_SPACE.sub("\u00a0", token.strip(_NO_TOKEN))


def _open(path: Path) -> BinaryIO:
    # The readline of the decompressing files is written in Python; that of the buffer is not.
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(BinaryIO, io.BufferedReader(cast(Any, gzip.GzipFile(path, "rb")), 2**18))
    if suffix == ".xz":
        return cast(BinaryIO, io.BufferedReader(cast(Any, lzma.LZMAFile(path, "rb")), 2**18))
    return path.open("rb")
