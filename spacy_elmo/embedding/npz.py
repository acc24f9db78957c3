"""NumPy's .npz: an array for each item, named by its number; `numpy.load` reads it.

Two members are no arrays but text: the manifest, and the tokens, a line of JSON for each item.
"""

import json
import zipfile
import zlib
from pathlib import Path
from typing import List, Optional

import numpy as np

from ..errors import ElmoError, Errors
from .sharding import Shard
from .stored import FORMAT_NAME, TOKENS_NAME, Manifest, Reader, Source, Stored, from_json, to_json

MANIFEST_NAME = f"{FORMAT_NAME}.json"
#: The same in every file, so that the same input gives the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)


def write_npz(path: Path, manifest: Manifest, source: Source, compress: bool) -> None:
    """Write a file."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED

    def member(name: str) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name, DATE)
        info.compress_type = method
        return info

    with zipfile.ZipFile(path, "w", method) as archive:
        for item in source():
            name = f"{item.index}.npy"
            big = item.vectors.nbytes > 2**30
            with archive.open(member(name), "w", force_zip64=big) as stream:
                np.lib.format.write_array(stream, item.vectors, allow_pickle=False)
        if manifest["sentences"]:
            with archive.open(member(TOKENS_NAME), "w", force_zip64=True) as stream:
                for item in source():
                    assert item.tokens is not None and item.text is not None
                    stream.write((to_json(item.tokens, item.text) + "\n").encode("ascii"))
        archive.writestr(member(MANIFEST_NAME), json.dumps(manifest))


class NpzReader(Reader):
    """Items of such a file.

    :raises ElmoError: E138 if the file is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: Optional[List[bytes]] = None
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as err:
            raise ElmoError(Errors.E138.format(path=path, problem=err)) from err
        try:
            self.manifest: Manifest = json.loads(self._archive.read(MANIFEST_NAME))
        except KeyError as err:
            self.close()
            problem = f"it has no {MANIFEST_NAME}"
            raise ElmoError(Errors.E138.format(path=path, problem=problem)) from err

    def __len__(self) -> int:
        n: int = self.manifest["n_items"]
        return n

    def get(self, position: int) -> Stored:
        """The item at a position from 0."""
        index = Shard(*self.manifest["shard"]).item(position)
        try:
            with self._archive.open(f"{index}.npy") as stream:
                vectors = np.lib.format.read_array(stream, allow_pickle=False)
        except (zipfile.BadZipFile, zlib.error, EOFError) as err:
            raise ElmoError(Errors.E138.format(path=self.path, problem=err)) from err
        tokens, text = None, None
        if self.manifest["sentences"]:
            if self._lines is None:
                self._lines = self._archive.read(TOKENS_NAME).splitlines()
            tokens, text = from_json(self._lines[position].decode("ascii"))
        return Stored(index, vectors, tokens, text)

    def close(self) -> None:
        """Close the file."""
        self._archive.close()
