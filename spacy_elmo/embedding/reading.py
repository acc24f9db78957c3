"""Embeddings of a corpus, read back: lazily, in every format, and all shards as one."""

import glob
import itertools
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

import numpy as np

from ..errors import ElmoError, Errors
from .formats import open_reader
from .sharding import NAME, Shard
from .stored import Manifest, Reader

PathT = Union[str, Path]


@dataclass(frozen=True, eq=False)
class EmbeddedSentence:
    """An item of a corpus with its vectors.

    index (int): Number of its line (or doc) in the corpus, from 0.
    tokens (Optional[List[str]]): One for each row; None if tokens are not stored.
    vectors (ndarray): float32 or float16. *(L + 1, n_tokens, width)* if all layers are kept, layer
        0 first, else *(n_tokens, width)*.
    """

    index: int
    tokens: Optional[List[str]]
    vectors: np.ndarray


class Embeddings(Sequence[EmbeddedSentence]):
    """A sequence of sentences with vectors, which are read when they are asked for.

    Made by `read_embeddings`. Item i is line i of the corpus, blank lines included; in a single
    shard it is the shard's i-th line, and the item's `index` says which of the corpus. A sentence's
    text instead of a number finds its last line (HDF5 with `sentence_to_index` only). Can be
    pickled, and closes its files at the end of a with block.

    :param readers: Of all shards in order, or of a single one.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = list(readers)
        self._single = len(self._readers) == 1
        #: Facts: "selection", "dtype", "n_layers", "width", "model"; those of a file of other
        #: origin are few.
        self.manifest: Manifest = self._readers[0].manifest
        self._length = sum(map(len, self._readers))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        """A sentence by its number or text, or a list of them by a slice.

        :raises IndexError: If there is no such number.
        :raises KeyError: If there is no such text.
        :raises ElmoError: E138 if sentences cannot be found by their text, or a file is damaged.
        """
        if isinstance(key, str):
            return self._by_text(key)
        if isinstance(key, slice):
            return [self._get(i) for i in range(*key.indices(len(self)))]
        number = int(key.__index__())
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {key} of {len(self)}")
        return self._get(number)

    def __iter__(self) -> Iterator[EmbeddedSentence]:
        return (self._get(i) for i in range(len(self)))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return any(reader.find(key.strip()) is not None for reader in self._readers)
        return super().__contains__(key)

    def _get(self, number: int) -> EmbeddedSentence:
        n = len(self._readers)
        found = self._readers[number % n].get(number // n)
        return EmbeddedSentence(found.index, found.tokens, found.vectors)

    def _by_text(self, text: str) -> EmbeddedSentence:
        indices = [index for r in self._readers if (index := r.find(text.strip())) is not None]
        if not indices:
            raise KeyError(text)
        shard = Shard(*self.manifest["shard"])
        # Shards take turns, so that the last line of all is the last of one of them.
        return self._get(max(indices) // shard.n if self._single else max(indices))

    def close(self) -> None:
        """Close all files."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> "Embeddings":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __reduce__(self) -> Tuple[Any, ...]:
        # Open files do not travel to other processes; their names do.
        return read_embeddings, ([str(reader.path) for reader in self._readers],)

    def __repr__(self) -> str:
        return f"Embeddings({str(self._readers[0].path)!r}, {len(self):,} sentences)"


def read_embeddings(path: Union[PathT, Sequence[PathT]]) -> Embeddings:
    """Open what `spacy elmo embed` or `allennlp elmo` wrote; nothing is read before it is needed.

    :param path: A file or folder of any format, the name OUTPUT of an output whose shards
        OUTPUT-00001-of-0000n lie beside each other, a pattern, or a list of all shards. A single
        shard is opened if it is named itself.
    :returns: Sentences with vectors, by their number.
    :raises ElmoError: E138 if there is no such file or it is something else, E139 if shards are
        missing or do not belong together, E028 or E137 if a package is missing.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    files = list(itertools.chain.from_iterable(_resolve(Path(p)) for p in paths))
    if not files:
        raise ElmoError(Errors.E138.format(path=path, problem="the list of files is empty"))
    readers: List[Reader] = []
    try:
        for file in files:
            readers.append(open_reader(file))
        if len(readers) > 1:
            readers = _in_order(readers, files)
    except BaseException:
        for reader in readers:
            reader.close()
        raise
    return Embeddings(readers)


def _resolve(path: Path) -> List[Path]:
    if path.exists():
        return [path]
    found: List[Path] = []
    if path.parent.is_dir() and path.name:
        for other in path.parent.iterdir():
            match = NAME.fullmatch(other.stem)
            if match and match["stem"] == path.stem and other.suffix == path.suffix:
                found.append(other)
    found.sort()
    found = found or [Path(p) for p in sorted(glob.glob(str(path)))]
    if not found:
        problem = "there is no such file, nor shards of it"
        raise ElmoError(Errors.E138.format(path=path, problem=problem))
    return found


def _in_order(readers: Sequence[Reader], files: Sequence[Path]) -> List[Reader]:
    """Readers of a set of shards by number, after a check that it is one."""
    by_number: Dict[int, Reader] = {}
    first = readers[0].manifest
    n = first["shard"][1]
    problem = ""
    for reader, file in zip(readers, files):
        manifest = reader.manifest
        number = manifest["shard"][0]
        for name in ("shard", "n_total", "selection", "dtype", "width", "n_layers", "model"):
            mine, other = manifest.get(name), first.get(name)
            if name == "shard":
                mine, other = manifest["shard"][1], n
            if mine != other:
                problem = f"{file.name} differs from {files[0].name} in {name} ({mine} and {other})"
        if number in by_number:
            problem = f"shard {number} of {n} is there twice"
        by_number[number] = reader
    missing = sorted(set(range(1, n + 1)) - set(by_number))
    if not problem and missing:
        problem = f"of {n} shards these are missing: {', '.join(map(str, missing[:20]))}"
    if problem:
        raise ElmoError(Errors.E139.format(path=files[0].parent, problem=problem))
    return [by_number[number] for number in range(1, n + 1)]
