"""Outputs of a frozen encoder, kept by the texts of a sentence's tokens.

A sentence comes again in every epoch of a training; its vectors do not change while the weights do
not. What is kept is bounded in bytes; the least recently used goes first. A file, shared between
runs, can stand behind the memory.
"""

import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence, Union

import numpy as np

from .cache_file import CacheFile

#: Bytes that are kept as long as nothing is trained: texts that are processed once do not come
#: again, and memory should not grow with their number.
PREDICTION_BYTES = 16 << 20


class CacheStatistics(NamedTuple):
    """What a cache did so far.

    hits (int): Sentences found in memory.
    file_hits (int): Sentences found in the file.
    misses (int): Sentences that had to be encoded.
    entries (int): Sentences in memory.
    n_bytes (int): Bytes of their vectors.
    """

    hits: int
    file_hits: int
    misses: int
    entries: int
    n_bytes: int


class SentenceCache:
    """Layers of sentences, layer 0 once (it is the same vector twice).

    max_bytes (int): Bytes of vectors in memory at most; 0 for none. Only `PREDICTION_BYTES` of
        them are used before `train` is called.
    path (Optional[Path]): File behind the memory, None for none. Before `train` is called, it is
        read if it is there, and never written.
    max_file_bytes (int): Bytes that the file may grow to, 0 for no limit.
    fingerprint (str): Identifies weights and precision; entries of others are not found.
    """

    def __init__(
        self,
        max_bytes: int,
        path: Optional[Union[str, Path]] = None,
        max_file_bytes: int = 0,
        fingerprint: str = "",
    ) -> None:
        self.max_bytes = max_bytes
        self._limit = min(max_bytes, PREDICTION_BYTES)
        self.fingerprint = fingerprint
        self._entries: "OrderedDict[bytes, np.ndarray]" = OrderedDict()
        self._bytes = self._hits = self._file_hits = self._misses = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._file = None if path is None else CacheFile(path, max_file_bytes)
        self._trains = False

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all."""
        return self.max_bytes > 0 or self._file is not None

    @property
    def has_file(self) -> bool:
        """Whether a file stands behind the memory."""
        return self._file is not None

    @property
    def trains(self) -> bool:
        """Whether this is a training: see `train`."""
        return self._trains

    def train(self, on: bool = True) -> None:
        """Begin a training, or end it: sentences will come again.

        All of the memory that was allowed is then used, and the file is made and written.
        """
        if on == self._trains:
            return
        with self._guard():
            self._trains = on
            self._limit = self.max_bytes if on else min(self.max_bytes, PREDICTION_BYTES)
            self._drop_oldest()
            if self._file is not None:
                self._file.writes = on

    def copy(self) -> "SentenceCache":
        """An empty cache of the same settings, outside of training."""
        file = self._file
        if file is None:
            return SentenceCache(self.max_bytes)
        return SentenceCache(self.max_bytes, file.path, file.max_bytes)

    @property
    def statistics(self) -> CacheStatistics:
        """Counters so far."""
        return CacheStatistics(
            self._hits, self._file_hits, self._misses, len(self._entries), self._bytes
        )

    def get(self, tokens: Sequence[str]) -> Optional[np.ndarray]:
        """Layers of a sentence, *(L + 1, n_tokens, width)*, or None; not to be changed.

        :raises ElmoError: E118 if there is a file that cannot be used, in a training.
        """
        if not self.enabled:
            return None
        key = self._key(tokens)
        with self._guard():
            packed = self._entries.get(key)
            if packed is not None:
                self._entries.move_to_end(key)
                self._hits += 1
                return _unpack(packed)
            packed = None if self._file is None else self._file.read(key, len(tokens))
            if packed is None:
                self._misses += 1
                return None
            self._file_hits += 1
            self._keep(key, packed)
            return _unpack(packed)

    def put(self, tokens: Sequence[str], layers: np.ndarray) -> None:
        """Keep the layers of a sentence.

        :raises ElmoError: E118 if there is a file that cannot be written, in a training.
        """
        writes = self._file is not None and self._trains
        if not writes and layers.nbytes > 2 * self._limit:
            # Nowhere to go, or more than would fit when packed; not worth a copy.
            return
        key = self._key(tokens)
        packed = _pack(layers)
        with self._guard():
            self._keep(key, packed)
            if self._file is not None:
                self._file.write(key, packed)

    def clear(self) -> None:
        """Forget what is in memory; the counters stay."""
        with self._guard():
            self._entries.clear()
            self._bytes = 0

    def _keep(self, key: bytes, packed: np.ndarray) -> None:
        if packed.nbytes > self._limit:
            return
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old.nbytes
        self._entries[key] = packed
        self._bytes += packed.nbytes
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._bytes > self._limit:
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= dropped.nbytes

    def _key(self, tokens: Sequence[str]) -> bytes:
        # Number and lengths come first, so that no two token lists look alike.
        digest = hashlib.blake2b(self.fingerprint.encode(), digest_size=16)
        lengths = [len(tokens), *map(len, tokens)]
        digest.update(np.array(lengths, "<i8").tobytes())
        digest.update("".join(tokens).encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _guard(self) -> threading.Lock:
        """The lock of this process: services call one pipeline from several threads."""
        if self._pid != os.getpid():
            # A forked process can get the lock closed by a thread that it does not have.
            self._pid, self._lock = os.getpid(), threading.Lock()
            if self._file is not None:
                self._file.leave_to_parent()
        return self._lock

    def __getstate__(self) -> Dict[str, Any]:
        # Settings travel, contents do not: a copy in another process begins empty.
        return {
            "max_bytes": self.max_bytes,
            "path": None if self._file is None else self._file.path,
            "max_file_bytes": 0 if self._file is None else self._file.max_bytes,
            "fingerprint": self.fingerprint,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _pack(layers: np.ndarray) -> np.ndarray:
    """Half of layer 0 and the others, as *(2L + 1, n_tokens, width / 2)*."""
    n_layers, n_tokens, width = layers.shape
    half = width // 2
    halves = layers.reshape(n_layers, n_tokens, 2, half).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(halves.reshape(2 * n_layers, n_tokens, half)[1:])


def _unpack(packed: np.ndarray) -> np.ndarray:
    halves = np.concatenate((packed[:1], packed))
    n, n_tokens, half = halves.shape
    pairs = halves.reshape(n // 2, 2, n_tokens, half).transpose(0, 2, 1, 3)
    return pairs.reshape(n // 2, n_tokens, 2 * half)
