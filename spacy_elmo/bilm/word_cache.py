"""Vectors of words seen lately, so that the char CNN sees a frequent word once."""

import threading
from collections import OrderedDict
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor


class WordCache:
    """A bounded table of word vectors; the least recently used word makes room.

    :param width: Width of a vector.
    :param max_bytes: Bytes of vectors at most.
    """

    def __init__(self, width: int, max_bytes: int) -> None:
        self._capacity = max(0, max_bytes // (4 * width))
        self._table = torch.empty(0, width, dtype=torch.float32, device="cpu")
        self._slots: "OrderedDict[str, int]" = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, words: Sequence[str], out: Tensor) -> List[int]:
        """Copy the vectors of known words into the same rows of `out`.

        :param words: Distinct words.
        :param out: *Shape:* ``(n_words, width)``
        :returns: Rows of the words that are not known.
        """
        known: List[int] = []
        slots: List[int] = []
        missing: List[int] = []
        with self._lock:
            find, move = self._slots.get, self._slots.move_to_end
            for row, word in enumerate(words):
                slot = find(word)
                if slot is None:
                    missing.append(row)
                else:
                    move(word)
                    known.append(row)
                    slots.append(slot)
            if known:
                out[_rows(known)] = self._table[_rows(slots)]
        return missing

    def put(self, words: Sequence[str], vectors: Tensor) -> None:
        """Keep vectors of words that were not known. *Shape:* ``(n_words, width)``."""
        words = words[-self._capacity :] if self._capacity else []
        if not words:
            return
        vectors = vectors[-len(words) :]
        with self._lock:
            slots = [self._slot(word) for word in words]
            self._grow()
            self._table[_rows(slots)] = vectors

    def _slot(self, word: str) -> int:
        # Another thread may have put the same word meanwhile.
        slot: Optional[int] = self._slots.pop(word, None)
        if slot is None:
            if len(self._slots) < self._capacity:
                slot = len(self._slots)
            else:
                oldest: Tuple[str, int] = self._slots.popitem(last=False)
                slot = oldest[1]
        self._slots[word] = slot
        return slot

    def _grow(self) -> None:
        """Make room for what the words need, by doubling, so that few words take little."""
        rows = len(self._table)
        if len(self._slots) <= rows:
            return
        wanted = min(self._capacity, max(len(self._slots), 2 * rows, 256))
        table = self._table.new_empty(wanted, self._table.shape[1])
        table[:rows] = self._table
        self._table = table


def _rows(numbers: List[int]) -> Tensor:
    # Whatever torch's default device is, the table lies on the CPU.
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")
