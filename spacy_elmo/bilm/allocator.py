"""What the C library does with freed memory: keep it in training, give it back in inference.

Only glibc is told anything; elsewhere nothing happens.
"""

import ctypes
import os
import sys
import threading
from functools import lru_cache
from time import monotonic
from typing import Any, Optional

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = 2**31 - 1
#: Bytes of results between two attempts to give memory back.
RETURN_EVERY = 32 << 20
#: And what is enough when no more results will come.
RETURN_LAST = 4 << 20
#: Seconds between two attempts, in multiples of what the last one took: while results are made,
#: and at the end of a stream.
_PAUSE, _LAST_PAUSE = 100.0, 30.0


@lru_cache(maxsize=None)
def _c_function(name: str) -> Optional[Any]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # another C library
        return None
    function.argtypes = {"mallopt": [ctypes.c_int] * 2, "malloc_trim": [ctypes.c_size_t]}[name]
    return function


def keep_freed_memory() -> bool:
    """Keep what is freed in the process from now on; gives whether that worked.

    A training step allocates and frees the same large buffers again and again. By default glibc
    maps each of them anew, and the kernel clears every page of it: about a tenth of a step's time.
    """
    mallopt = _c_function("mallopt")
    if mallopt is None:
        return False
    _returner.is_wanted = False
    values = (
        (_M_MMAP_THRESHOLD, _LARGEST),
        (_M_TRIM_THRESHOLD, _LARGEST),
        (_M_TOP_PAD, 64 * 2**20),
    )
    return all(mallopt(parameter, value) == 1 for parameter, value in values)


class _Returner:
    """Gives freed memory back now and then."""

    def __init__(self) -> None:
        self.is_wanted = True
        self._bytes = 0
        self._ended = self._took = 0.0
        self.forget_lock()

    def forget_lock(self) -> None:
        """Have a lock that nobody holds."""
        self._lock = threading.Lock()

    def count(self, n_bytes: int, ends: bool) -> None:
        """Results of so many bytes were made; give memory back if that is enough of them."""
        malloc_trim = _c_function("malloc_trim")
        # While another thread does it, its turn is this one's too.
        if not self.is_wanted or malloc_trim is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._bytes += n_bytes
            enough, pause = (RETURN_LAST, _LAST_PAUSE) if ends else (RETURN_EVERY, _PAUSE)
            start = monotonic()
            if self._bytes >= enough and start - self._ended >= pause * self._took:
                # The latest results are still there.
                self._bytes = n_bytes
                malloc_trim(0)
                self._ended = monotonic()
                self._took = self._ended - start
        finally:
            self._lock.release()


_returner = _Returner()
if hasattr(os, "register_at_fork"):
    # Another thread may hold the lock when a process is forked off.
    os.register_at_fork(after_in_child=lambda: _returner.forget_lock())


def return_freed_memory(n_bytes: int, *, ends: bool = False) -> None:
    """Let the process not grow with the results that it makes, and frees later.

    Results of few bytes and of many come and go in turns with what other code allocates. glibc
    keeps the pages in between, so that a process that embeds for hours takes a quarter more than
    it needs. This gives them back after each 32 MiB of results, in at most 1 % of the time; at the
    end of streams, however short they are, in at most 3 %.

    :param n_bytes: Of the results that were just made.
    :param ends: No more will come for a while, so that less is enough.
    """
    _returner.count(n_bytes, ends)
