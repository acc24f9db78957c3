"""Outputs of a frozen encoder, kept by the texts of a sentence's tokens.

A sentence comes again in every epoch of a training; its vectors do not change while the weights do
not. What is kept is bounded in bytes; the least recently used goes first. A file, shared between
runs, can stand behind the memory.
"""

import hashlib
import os
import sqlite3
import threading
from collections import OrderedDict
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Union

import numpy as np

from ..errors import ElmoError, Errors

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

    max_bytes (int): Bytes of vectors in memory at most; 0 turns the cache off. Only
        `PREDICTION_BYTES` of them are used before `train` is called.
    path (Optional[Path]): File behind the memory, None for none.
    fingerprint (str): Identifies weights and precision; entries of others are not found.
    """

    def __init__(
        self,
        max_bytes: int,
        path: Optional[Union[str, Path]] = None,
        fingerprint: str = "",
    ) -> None:
        self.max_bytes = max_bytes
        self._limit = min(max_bytes, PREDICTION_BYTES)
        self.path = None if path is None else str(path)
        self.fingerprint = fingerprint
        self._entries: "OrderedDict[bytes, np.ndarray]" = OrderedDict()
        self._bytes = self._hits = self._file_hits = self._misses = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._file: Optional[sqlite3.Connection] = None
        self._inherited: Optional[sqlite3.Connection] = None

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all."""
        return self.max_bytes > 0 or self.path is not None

    def train(self) -> None:
        """Use all of the memory that was allowed, since sentences will come again."""
        self._limit = self.max_bytes

    @property
    def statistics(self) -> CacheStatistics:
        """Counters so far."""
        return CacheStatistics(
            self._hits, self._file_hits, self._misses, len(self._entries), self._bytes
        )

    def get(self, tokens: Sequence[str]) -> Optional[np.ndarray]:
        """Layers of a sentence, *(L + 1, n_tokens, width)*, or None; not to be changed.

        :raises ElmoError: E118 if there is a file that cannot be used.
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
            packed = self._read(key, len(tokens))
            if packed is None:
                self._misses += 1
                return None
            self._file_hits += 1
            self._keep(key, packed)
            return _unpack(packed)

    def put(self, tokens: Sequence[str], layers: np.ndarray) -> None:
        """Keep the layers of a sentence.

        :raises ElmoError: E118 if there is a file that cannot be written.
        """
        if not self.enabled:
            return
        if self.path is None and layers.nbytes > 2 * self._limit:
            # More than would fit when packed; not worth a copy.
            return
        key = self._key(tokens)
        packed = _pack(layers)
        with self._guard():
            self._keep(key, packed)
            if self.path is not None:
                header = np.array(packed.shape, np.int64).tobytes()
                with self._connection() as file:
                    file.execute(
                        "INSERT OR REPLACE INTO sentences VALUES (?, ?)",
                        (key, header + packed.tobytes()),
                    )

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
            # A forked process can get the lock closed by a thread that it does not have. And the
            # connection must be neither used nor closed in it, so a reference is kept.
            self._pid, self._lock = os.getpid(), threading.Lock()
            self._inherited, self._file = self._file, None
        return self._lock

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The file, in a transaction that ends with the block."""
        assert self.path is not None
        try:
            if self._file is None:
                self._file = sqlite3.connect(self.path, timeout=60.0, check_same_thread=False)
                # A cache may lose its last entries in a power failure, but must not wait for the
                # disk at each.
                self._file.execute("PRAGMA journal_mode = WAL")
                self._file.execute("PRAGMA synchronous = NORMAL")
                with self._file:
                    self._file.execute(
                        "CREATE TABLE IF NOT EXISTS sentences (key BLOB PRIMARY KEY, layers BLOB)"
                    )
            with self._file:
                yield self._file
        except sqlite3.Error as error:
            raise ElmoError(Errors.E118.format(path=self.path, problem=error)) from error

    def _read(self, key: bytes, n_tokens: int) -> Optional[np.ndarray]:
        if self.path is None:
            return None
        with self._connection() as file:
            row = file.execute("SELECT layers FROM sentences WHERE key = ?", (key,)).fetchone()
        return None if row is None else _from_row(row[0], n_tokens)

    def __getstate__(self) -> Dict[str, Any]:
        # Settings travel, contents do not: a copy in another process begins empty.
        return {
            "max_bytes": self.max_bytes,
            "path": self.path,
            "fingerprint": self.fingerprint,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _from_row(data: Any, n_tokens: int) -> Optional[np.ndarray]:
    """Vectors of a row of the file, None if it is damaged: they are then made again."""
    n_header = 3 * np.dtype(np.int64).itemsize
    if not isinstance(data, bytes) or len(data) < n_header:
        return None
    shape = [int(n) for n in np.frombuffer(data, np.int64, 3)]
    whole = len(data) - n_header == shape[0] * shape[1] * shape[2] * 4
    if min(shape) < 1 or not whole or shape[1] != n_tokens:
        return None
    return np.frombuffer(data, np.float32, offset=n_header).reshape(shape)


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
