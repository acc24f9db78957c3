"""The prepared corpus: sentences validated and counted once, then read at random from disk.

Training visits sentences in a new random order every epoch and must be able to continue at any
place. So the inputs are read in one pass, before the first step, into a folder of plain files that
are memory-mapped afterwards:

==================  ==============================================================================
``sentences.txt``   UTF-8; a sentence per line, its tokens joined by one space
``offsets.bin``     int64 (little-endian): byte at which each sentence begins, and the size
``lengths.bin``     uint16 (little-endian): tokens of each sentence
``documents.bin``   uint8: 1 where a sentence begins a document
``counts.tsv``      type, tab, count; most frequent first, then by string
``manifest.json``   totals, fingerprint, settings, inputs; written last, so that a folder with a
                    manifest is complete
==================  ==============================================================================
"""

import hashlib
import json
import mmap
import os
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .corpus_writer import (
    DATA_FILES,
    FLAG_DTYPE,
    LENGTH_DTYPE,
    OFFSET_DTYPE,
    CorpusWriter,
    Progress,
)
from .readers import expand_inputs, read_documents

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_MANIFEST_KEYS = ("n_sentences", "n_tokens", "n_types", "fingerprint", "files")
_CUT_RATE_WARNING = 0.10


class PreparedCorpus:
    """A corpus on disk with random access to its sentences. Made by :func:`open_prepared`.

    :param directory:
        The folder that :func:`prepare` wrote.
    :raises ElmoError:
        When a file is missing, truncated, or does not agree with the manifest.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest: Dict[str, Any] = _read_manifest(directory)
        self.n_sentences: int = self.manifest["n_sentences"]
        self.n_tokens: int = self.manifest["n_tokens"]
        self.n_types: int = self.manifest["n_types"]
        #: Hash of the sentences in their order: equal for equal text, cut alike.
        self.fingerprint: str = self.manifest["fingerprint"]
        for name, file in self.manifest["files"].items():
            found = _size(directory / name)
            if found != file["size"]:
                problem = f"{name} has {found:,} bytes, not {file['size']:,}"
                raise _damaged(directory, problem)
        n = self.n_sentences
        self._offsets = _memory_map(directory / "offsets.bin", OFFSET_DTYPE, n + 1)
        self._documents = _memory_map(directory / "documents.bin", FLAG_DTYPE, n)
        #: *Shape:* ``(n_sentences,)``, the number of tokens of each sentence.
        self.lengths: np.ndarray = _memory_map(directory / "lengths.bin", LENGTH_DTYPE, n)
        n_bytes = self.manifest["files"]["sentences.txt"]["size"]
        if self._offsets[0] != 0 or self._offsets[-1] != n_bytes:
            raise _damaged(directory, "offsets.bin does not belong to sentences.txt")
        if int(self.lengths.sum(dtype=np.int64)) != self.n_tokens:
            raise _damaged(directory, "lengths.bin does not add up to the number of tokens")
        with (directory / "sentences.txt").open("rb") as stream:
            # A plain map: its slices are bytes, ready to decode, without a detour by an array.
            self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return self.n_sentences

    def __reduce__(self) -> Tuple[Any, ...]:
        return open_prepared, (self.directory,)

    def sentences(self, indices: Union[np.ndarray, Sequence[int]]) -> List[List[str]]:
        """The tokens of sentences, exactly as they were read.

        :param indices:
            Numbers of the sentences, from 0.

            *Shape:* ``(n,)``
        :returns:
            A list of tokens for each.
        :raises IndexError:
            When an index is not in ``[0, n_sentences)``.
        """
        rows = self._rows(indices)
        starts = self._offsets[rows].tolist()
        ends = self._offsets[rows + 1].tolist()
        text = self._text
        # The last byte of a line is its newline. split() without the space would lose U+00A0.
        return [text[a : b - 1].decode("utf-8").split(" ") for a, b in zip(starts, ends)]

    def starts_document(self, indices: Union[np.ndarray, Sequence[int]]) -> np.ndarray:
        """Whether a document begins with the sentences.

        :param indices:
            Numbers of the sentences, from 0.

            *Shape:* ``(n,)``
        :returns:
            Booleans.

            *Shape:* ``(n,)``
        :raises IndexError:
            When an index is not in ``[0, n_sentences)``.
        """
        return self._documents[self._rows(indices)].astype(bool)

    def counts(self) -> Iterator[Tuple[str, int]]:
        """Types with their counts, the most frequent first, streamed from disk."""
        with (self.directory / "counts.tsv").open("rb") as stream:
            for line in stream:
                word, _, number = line.decode("utf-8").rpartition("\t")
                yield word, int(number)

    def verify(self) -> None:
        """Read all files and compare them with the hashes in the manifest.

        :raises ElmoError:
            When they are not what was prepared.
        """
        for name, file in self.manifest["files"].items():
            if _hash_file(self.directory / name) != file["blake2b"]:
                raise _damaged(self.directory, f"{name} was changed after it was written")

    def _rows(self, indices: Union[np.ndarray, Sequence[int]]) -> np.ndarray:
        rows = np.asarray(indices, dtype=np.int64)
        # The array of offsets has one more row, and NumPy counts negative rows from the end.
        if rows.size and (rows.min() < 0 or rows.max() >= self.n_sentences):
            raise IndexError(f"sentence indices must be in [0, {self.n_sentences})")
        return rows


def prepare(
    inputs: Sequence[Union[str, Path]],
    directory: Union[str, Path],
    *,
    lang: Optional[str] = None,
    model: Optional[str] = None,
    max_sentence_length: int = 128,
    max_types: int = 5_000_000,
    progress: Optional[Progress] = None,
    keep: Optional[Callable[[int], bool]] = None,
) -> PreparedCorpus:
    """Validate the inputs, count their types and write a prepared corpus, in one pass.

    Memory depends on the number of types, not on the size of the corpus. A prepared corpus that is
    in the folder already stays untouched until the new one is complete.

    :param inputs:
        Files and glob patterns, see :func:`.readers.expand_inputs`.
    :param directory:
        Folder to write, created if needed.
    :param lang:
        Language of the blank pipeline that tokenises JSONL.
    :param model:
        Pipeline that tokenises JSONL instead.
    :param max_sentence_length:
        Longer sentences are cut into as few pieces as possible, of about equal length.
    :param max_types:
        When more types are held, rare ones are dropped: those seen once, and if that does not free
        enough, twice and so on. Only then do the counts depend on the order of the text.
    :param progress:
        Called now and then, and at the end, with the numbers of sentences and tokens so far.
    :param keep:
        Tells by the number of a sentence in the input (from 0) whether it is taken; all are
        checked. A sentence that is left out takes no document start with it.
    :returns:
        The prepared corpus, opened.
    :raises ElmoError:
        For a setting out of range, and for anything wrong with the inputs, see
        :func:`.readers.read_documents`. No manifest is written then.
    """
    limit = int(np.iinfo(LENGTH_DTYPE).max)
    if not 1 <= max_sentence_length <= limit:
        raise _bad_setting(
            "max_sentence_length", max_sentence_length, f"a number from 1 to {limit}"
        )
    if max_types < 1:
        raise _bad_setting("max_types", max_types, "a number of at least 1")
    paths = expand_inputs(inputs)
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror})"
        raise _bad_setting("directory", str(directory), expected) from error
    temporary = {name: directory / f"{name}.tmp" for name in (*DATA_FILES, MANIFEST)}
    try:
        writer = CorpusWriter(temporary, max_sentence_length, max_types, progress)
        with writer:
            starts_document = False
            sentences = read_documents(paths, lang=lang, model=model)
            for number, (tokens, starts) in enumerate(sentences):
                starts_document = starts_document or starts
                if keep is None or keep(number):
                    writer.add(tokens, starts_document)
                    starts_document = False
        files = {name: _describe(temporary[name]) for name in DATA_FILES}
        manifest = {
            "format": FORMAT_VERSION,
            **writer.totals(),
            "fingerprint": files["sentences.txt"]["blake2b"],
            "files": files,
            "settings": {
                "lang": lang,
                "model": model,
                "max_sentence_length": max_sentence_length,
                "max_types": max_types,
            },
            "inputs": input_fingerprints(paths),
        }
        temporary[MANIFEST].write_bytes(
            json.dumps(manifest, indent=2, ensure_ascii=True).encode("ascii") + b"\n"
        )
        # Between here and the last line the folder has no manifest and so counts as incomplete.
        (directory / MANIFEST).unlink(missing_ok=True)
        for name, path in temporary.items():
            os.replace(path, directory / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
    _warn(manifest)
    return open_prepared(directory)


def open_prepared(directory: Union[str, Path]) -> PreparedCorpus:
    """Open a prepared corpus without reading it.

    :param directory:
        The folder that :func:`prepare` wrote.
    :raises ElmoError:
        When a file is missing, truncated, or does not agree with the manifest.
    """
    return PreparedCorpus(Path(directory))


def input_fingerprints(paths: Sequence[Union[str, Path]]) -> List[Dict[str, Any]]:
    """Names, sizes and hashes of input files, as they stand in a manifest under ``"inputs"``.

    Times and folders do not enter, so that a copied corpus compares equal.

    :param paths:
        The files.
    :returns:
        For each a dictionary with ``name``, ``size`` and ``blake2b``.
    :raises ElmoError:
        When a file cannot be read.
    """
    return [{"name": Path(path).name, **_describe(Path(path))} for path in paths]


def _read_manifest(directory: Path) -> Dict[str, Any]:
    try:
        manifest = json.loads((directory / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise _damaged(directory, f"there is no {MANIFEST}") from error
    except (OSError, ValueError) as error:
        raise _damaged(directory, f"{MANIFEST} cannot be read ({error})") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise _damaged(directory, f"its format is {version!r}, not {FORMAT_VERSION}")
    missing = [key for key in _MANIFEST_KEYS if key not in manifest]
    missing += [name for name in DATA_FILES if name not in manifest.get("files", {})]
    if missing:
        raise _damaged(directory, f"{MANIFEST} lacks {', '.join(missing)}")
    return manifest


def _memory_map(path: Path, dtype: np.dtype, n: int) -> np.ndarray:
    found, expected = _size(path), n * dtype.itemsize
    if found != expected:
        raise _damaged(path.parent, f"{path.name} has {found:,} bytes, not {expected:,}")
    return np.memmap(path, dtype=dtype, mode="r", shape=(n,))


def _describe(path: Path) -> Dict[str, Any]:
    return {"size": _size(path), "blake2b": _hash_file(path)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ElmoError(Errors.E073.format(path=path, reason=error.strerror)) from error


def _hash_file(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=32)
    try:
        with path.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    except OSError as error:
        raise ElmoError(Errors.E073.format(path=path, reason=error.strerror)) from error
    return digest.hexdigest()


def _damaged(directory: Path, problem: str) -> ElmoError:
    return ElmoError(Errors.E075.format(path=directory, problem=problem))


def _bad_setting(name: str, found: Any, expected: str) -> ElmoError:
    return ElmoError(Errors.E074.format(name=name, found=found, expected=expected))


def _warn(manifest: Dict[str, Any]) -> None:
    settings = manifest["settings"]
    if manifest["n_pruned_types"]:
        text = Warnings.W011.format(
            limit=settings["max_types"],
            n_pruned=manifest["n_pruned_types"],
            threshold=manifest["prune_threshold"],
        )
        warnings.warn(text, ElmoWarning, stacklevel=3)
    rate = manifest["n_cut_sentences"] / manifest["n_input_sentences"]
    if rate > _CUT_RATE_WARNING:
        text = Warnings.W012.format(rate=100 * rate, limit=settings["max_sentence_length"])
        warnings.warn(text, ElmoWarning, stacklevel=3)
