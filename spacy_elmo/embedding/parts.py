"""Finished parts of an output: safetensors files with an array for each item."""

import os
from pathlib import Path
from typing import Dict, Iterator, List

import numpy as np

from .items import Item
from .journal import Journal
from .stored import TOKENS_NAME, Stored, from_json, to_json

#: So many bytes of vectors, or so many items, end a part.
PART_BYTES = 128 * 2**20
PART_ITEMS = 16384
#: Bounds of its tokens, so that a part is neither lost in no time nor lasts for an hour.
PART_TOKENS = (4096, 131072)


def default_part_tokens(bytes_per_token: int) -> int:
    """Tokens of a part that has about `PART_BYTES`."""
    low, high = PART_TOKENS
    return max(low, min(high, PART_BYTES // bytes_per_token))


class Part:
    """A part that is being filled.

    :param with_sentences: Whether tokens and texts are stored.
    """

    def __init__(self, with_sentences: bool) -> None:
        self.with_sentences = with_sentences
        self._arrays: Dict[str, np.ndarray] = {}
        self._lines: List[str] = []
        self._n_tokens = 0

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, item: Item, vectors: np.ndarray) -> None:
        """Take the next item."""
        self._arrays[str(item.index)] = vectors
        self._n_tokens += len(item.tokens)
        if self.with_sentences:
            self._lines.append(to_json(item.tokens, item.text) + "\n")

    def write(self, journal: Journal) -> "Part":
        """Write the part, make sure of it, and note it; gives an empty one to go on with."""
        from safetensors.numpy import save

        arrays = dict(self._arrays)
        if self.with_sentences:
            text = "".join(self._lines).encode("ascii")
            arrays[TOKENS_NAME] = np.frombuffer(text, np.uint8)
        name = f"part-{len(journal.parts):06d}.safetensors"
        temporary = journal.folder / f"{name}.tmp"
        # Written here, since the library hides what the system says when the disk is full.
        data = save(arrays)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, journal.folder / name)
        facts = {"n_items": len(self), "n_tokens": self._n_tokens}
        journal.add({"file": name, "bytes": len(data), **facts})
        return Part(self.with_sentences)


def read_part(path: Path) -> Iterator[Stored]:
    """Items of a part, in order."""
    from safetensors import safe_open

    with safe_open(str(path), "np") as file:
        names = set(file.keys())
        lines: List[str] = []
        if TOKENS_NAME in names:
            names.remove(TOKENS_NAME)
            lines = file.get_tensor(TOKENS_NAME).tobytes().decode("ascii").splitlines()
        for position, index in enumerate(sorted(map(int, names))):
            tokens, text = from_json(lines[position]) if lines else (None, None)
            yield Stored(index, file.get_tensor(str(index)), tokens, text)
