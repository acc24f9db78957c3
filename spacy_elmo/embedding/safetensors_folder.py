"""A folder of safetensors files with an index: a tensor for each item, named by its number.

The finished parts of a run are the files of the output, so nothing is copied at the end.
"""

import json
import os
import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from ..errors import ElmoError, Errors
from .sharding import Shard
from .stored import TOKENS_NAME, Manifest, Reader, Stored, from_json

INDEX_NAME = "index.json"


def write_safetensors(
    path: Path,
    manifest: Manifest,
    parts: Sequence[Tuple[Path, int]],
    told: Callable[[float], object],
) -> None:
    """Make a folder of finished parts, which come with the numbers of their items.

    :param told: Told after each part which share of the work is done.
    """
    path.mkdir()
    files = []
    for number, (part, n_items) in enumerate(parts, start=1):
        name = f"embeddings-{number:05d}-of-{len(parts):05d}.safetensors"
        try:
            os.link(part, path / name)
        except OSError:
            # Not all file systems have links.
            shutil.copyfile(part, path / name)
        files.append({"file": name, "n_items": n_items})
        told(number / len(parts))
    index = json.dumps({**manifest, "files": files}, indent=2)
    with open(path / INDEX_NAME, "w", encoding="ascii") as file:
        file.write(index + "\n")
        file.flush()
        os.fsync(file.fileno())


class SafetensorsReader(Reader):
    """Items of such a folder. One file is open at a time.

    :raises ElmoError: E138 if files of the folder are missing.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self._starts = [0]
        for entry in manifest["files"]:
            self._starts.append(self._starts[-1] + entry["n_items"])
            if not (path / entry["file"]).exists():
                problem = f"its file {entry['file']} is missing"
                raise ElmoError(Errors.E138.format(path=path, problem=problem))
        self._number = -1
        self._file: Any = None
        self._lines: Optional[List[str]] = None

    def __len__(self) -> int:
        return self._starts[-1]

    def get(self, position: int) -> Stored:
        """The item at a position from 0."""
        self._open(bisect_right(self._starts, position) - 1)
        index = Shard(*self.manifest["shard"]).item(position)
        vectors = self._file.get_tensor(str(index))
        tokens, text = None, None
        if self.manifest["sentences"]:
            if self._lines is None:
                data = self._file.get_tensor(TOKENS_NAME).tobytes()
                self._lines = data.decode("ascii").splitlines()
            tokens, text = from_json(self._lines[position - self._starts[self._number]])
        return Stored(index, vectors, tokens, text)

    def _open(self, number: int) -> None:
        if number == self._number:
            return
        from safetensors import SafetensorError, safe_open

        path = self.path / self.manifest["files"][number]["file"]
        self.close()
        try:
            self._file = safe_open(str(path), "np")
        except (OSError, SafetensorError) as err:
            raise ElmoError(Errors.E138.format(path=path, problem=err)) from err
        self._number = number

    def close(self) -> None:
        """Close the file that is open."""
        self._file, self._lines, self._number = None, None, -1
