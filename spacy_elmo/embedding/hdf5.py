"""HDF5 as AllenNLP's command `elmo` writes it, with more in attributes that it does not look at.

A dataset for each line, named by the line's number from 0, and `sentence_to_index`: a JSON object
from sentences to numbers (as strings), in which duplicates map to the last line.
"""

import json
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .forecast import show_bytes
from .sharding import Shard
from .sink import Sink
from .stored import FORMAT_NAME, Manifest, Reader, Source, Stored, from_json, to_json

MAP_NAME = "sentence_to_index"
#: What its tutorial, and files of older versions, name it.
MAP_NAMES = (MAP_NAME, "sentence_indices")
#: The map is one string of JSON, so it has to fit in memory.
MAP_LIMIT = 512 * 2**20
TOKENS_ATTRIBUTE = "tokens"


def write_hdf5(path: Path, manifest: Manifest, source: Source, compress: bool) -> None:
    """Write a file.

    :raises ElmoError: E028 if h5py is missing.
    """
    h5py = import_h5py(path)
    sink = Sink(path)
    try:
        with h5py.File(sink, "w") as file:
            _write(file, h5py.special_dtype(vlen=str), manifest, source, compress, sink.check)
        sink.check()
    finally:
        sink.close()


def _write(
    file: Any,
    string: Any,
    manifest: Manifest,
    source: Source,
    compress: bool,
    check: Callable[[], None],
) -> None:
    file.attrs[FORMAT_NAME] = json.dumps(manifest)
    sentences: Optional[Dict[str, str]] = {} if manifest["sentences"] else None
    if sentences is not None and manifest["text_bytes"] > MAP_LIMIT:
        found, limit = show_bytes(manifest["text_bytes"]), show_bytes(MAP_LIMIT)
        warnings.warn(ElmoWarning(Warnings.W131.format(found=found, limit=limit)), stacklevel=2)
        sentences = None
    for item in source():
        # HDF5 has no chunks, and so no compression, for nothing.
        filters: Dict[str, Any] = {}
        if compress and item.vectors.size:
            filters = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
        dataset = file.create_dataset(str(item.index), data=item.vectors, **filters)
        if item.tokens is not None and item.text is not None:
            dataset.attrs[TOKENS_ATTRIBUTE] = to_json(item.tokens, item.text)
            if sentences is not None:
                sentences[item.text] = str(item.index)
        check()
    if sentences is not None:
        dataset = file.create_dataset(MAP_NAME, (1,), dtype=string)
        dataset[0] = json.dumps(sentences)


class Hdf5Reader(Reader):
    """Items of such a file, also of one that AllenNLP or bilm-tf has written.

    :raises ElmoError: E028 if h5py is missing, E138 if the file is something else.
    """

    def __init__(self, path: Path) -> None:
        h5py = import_h5py(path)
        self.path = path
        try:
            self._file = h5py.File(path, "r")
        except OSError as err:
            raise ElmoError(Errors.E138.format(path=path, problem=err)) from err
        self._map: Optional[Dict[str, str]] = None
        if FORMAT_NAME in self._file.attrs:
            self.manifest: Manifest = json.loads(self._file.attrs[FORMAT_NAME])
        else:
            self.manifest = self._foreign()

    def _foreign(self) -> Manifest:
        names = [name for name in self._file.keys() if name not in MAP_NAMES]
        n = len(names)
        if not n or not {str(i) for i in range(n)} <= set(names):
            found = ", ".join(names[:5]) or "none"
            problem = f"its datasets are not named 0 to {n - 1} (found: {found})"
            self.close()
            raise ElmoError(Errors.E138.format(path=self.path, problem=problem))
        return {"n_items": n, "n_total": n, "shard": [1, 1]}

    def __len__(self) -> int:
        n: int = self.manifest["n_items"]
        return n

    def get(self, position: int) -> Stored:
        """The item at a position from 0."""
        index = Shard(*self.manifest["shard"]).item(position)
        dataset = self._file[str(index)]
        found = dataset.attrs.get(TOKENS_ATTRIBUTE)
        tokens, text = (None, None) if found is None else from_json(found)
        return Stored(index, dataset[()], tokens, text)

    def find(self, text: str) -> Optional[int]:
        """Index of a sentence, None if it is not there.

        :raises ElmoError: E138 if the file has no map of the sentences.
        """
        if self._map is None:
            name = next((name for name in MAP_NAMES if name in self._file), None)
            if name is None:
                return super().find(text)
            self._map = json.loads(self._file[name][0])
        assert self._map is not None
        number = self._map.get(text)
        return None if number is None else int(number)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def import_h5py(path: Path) -> Any:
    """h5py, or a coded error."""
    try:
        import h5py
    except ImportError as err:
        raise ElmoError(Errors.E028.format(path=path, problem=err)) from err
    return h5py
