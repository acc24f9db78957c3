"""The file behind the cache: vectors of sentences in SQLite, shared between runs and processes.

Only a training makes the file and writes into it, and there a file that cannot be used is an error.
In prediction it is read where it can be and done without where it cannot: a trained pipeline has to
run on machines that never saw the file, and must not write down the texts of its users.
"""

import sqlite3
import warnings
from pathlib import Path
from typing import List, Optional, Union

import numpy as np

from ..errors import ElmoError, ElmoWarning, Errors, Warnings

_TABLE = "CREATE TABLE IF NOT EXISTS sentences (key BLOB PRIMARY KEY, layers BLOB)"
_READ = "SELECT layers FROM sentences WHERE key = ?"
_WRITE = "INSERT OR REPLACE INTO sentences VALUES (?, ?)"
#: Seconds to wait for other processes. A training can wait; a service had better compute.
_PATIENCE = {True: 60.0, False: 1.0}
#: Pages that a row can take beside its bytes: what is left over, and the tree's own.
_SPARE_PAGES = 4


class CacheFile:
    """Arrays of sentences by a key. To be called by one thread at a time.

    path (Union[str, Path]): The file.
    max_bytes (int): Bytes that the file may grow to, 0 for no limit.
    """

    def __init__(self, path: Union[str, Path], max_bytes: int = 0) -> None:
        self.path = str(path)
        self.max_bytes = max_bytes
        self._writes = self._given_up = self._full = False
        self._connection: Optional[sqlite3.Connection] = None
        self._inherited: List[sqlite3.Connection] = []

    @property
    def writes(self) -> bool:
        """Whether the file may be made and written."""
        return self._writes

    @writes.setter
    def writes(self, value: bool) -> None:
        if value != self._writes:
            self._close()
            self._writes, self._given_up, self._full = value, False, False

    def read(self, key: bytes, n_tokens: int) -> Optional[np.ndarray]:
        """The array of a sentence of so many tokens, None if there is none that is whole.

        :raises ElmoError: E118 if the file cannot be used but is to be written.
        """
        if self._given_up:
            return None
        try:
            row = self._open().execute(_READ, (key,)).fetchone()
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            return None
        return None if row is None else _from_row(row[0], n_tokens)

    def write(self, key: bytes, array: np.ndarray) -> None:
        """Keep an array, if the file may be written and has room.

        :raises ElmoError: E118 if it cannot be written.
        """
        if not self._writes or self._full:
            return
        row = _to_row(array)
        try:
            connection = self._open()
            if not self._has_room(connection, len(row)):
                self._full = True
                text = Warnings.W181.format(path=self.path, limit=self.max_bytes / 2**20)
                warnings.warn(text, ElmoWarning, stacklevel=2)
                return
            with connection:
                connection.execute(_WRITE, (key, row))
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _has_room(self, connection: sqlite3.Connection, n_bytes: int) -> bool:
        if not self.max_bytes:
            return True
        # Two numbers of the file's head; other processes' rows are counted too.
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        return bool((n_pages + _SPARE_PAGES) * page + n_bytes <= self.max_bytes)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        path = Path(self.path).absolute()
        if not self._writes and not path.exists():
            raise FileNotFoundError("there is no such file")
        opened = sqlite3.connect(
            f"{path.as_uri()}?mode={'rwc' if self._writes else 'ro'}",
            uri=True,
            timeout=_PATIENCE[self._writes],
            # Threads take turns, see SentenceCache.
            check_same_thread=False,
        )
        try:
            if self._writes:
                # A cache may lose its last entries in a power failure, but must not wait for the
                # disk at each.
                opened.execute("PRAGMA journal_mode = WAL")
                opened.execute("PRAGMA synchronous = NORMAL")
                with opened:
                    opened.execute(_TABLE)
        except sqlite3.Error:
            opened.close()
            raise
        self._connection = opened
        return opened

    def _fail(self, problem: Exception) -> None:
        if self._writes:
            raise ElmoError(Errors.E118.format(path=self.path, problem=problem)) from problem
        self._close()
        self._given_up = True
        text = Warnings.W180.format(path=self.path, problem=problem)
        warnings.warn(text, ElmoWarning, stacklevel=2)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def leave_to_parent(self) -> None:
        """In a forked process: open the file anew, when it is needed."""
        # The parent's connection must be neither used nor closed here, so a reference is kept.
        if self._connection is not None:
            self._inherited.append(self._connection)
            self._connection = None


def _to_row(array: np.ndarray) -> bytes:
    return np.array(array.shape, np.int64).tobytes() + array.tobytes()


def _from_row(data: object, n_tokens: int) -> Optional[np.ndarray]:
    """The array of a row of the file, None if it is damaged: it is then made again."""
    n_header = 3 * np.dtype(np.int64).itemsize
    if not isinstance(data, bytes) or len(data) < n_header:
        return None
    shape = [int(n) for n in np.frombuffer(data, np.int64, 3)]
    whole = len(data) - n_header == shape[0] * shape[1] * shape[2] * 4
    if min(shape) < 1 or not whole or shape[1] != n_tokens:
        return None
    return np.frombuffer(data, np.float32, offset=n_header).reshape(shape)
