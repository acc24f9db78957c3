"""What the C library does with freed memory: keep it in training, give it back in inference.

Only glibc is told anything; elsewhere nothing happens.
"""

import ctypes
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
#: Seconds between two attempts, in multiples of what the last one took.
_PAUSE = 100.0


@lru_cache(maxsize=None)
def _c_function(name: str) -> Optional[Any]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # another C library
        return None


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
        self._not_before = 0.0
        self._lock = threading.Lock()

    def count(self, n_bytes: int, ends: bool) -> None:
        """Results of so many bytes were made; give memory back if that is enough of them."""
        malloc_trim = _c_function("malloc_trim")
        if not self.is_wanted or malloc_trim is None:
            return
        with self._lock:
            self._bytes += n_bytes
            start = monotonic()
            due = self._bytes >= RETURN_EVERY and start >= self._not_before
            if due or (ends and self._bytes >= RETURN_LAST):
                # The latest results are still there.
                self._bytes = n_bytes
                malloc_trim(0)
                end = monotonic()
                self._not_before = end + _PAUSE * (end - start)


_returner = _Returner()


def return_freed_memory(n_bytes: int, *, ends: bool = False) -> None:
    """Let the process not grow with the results that it makes, and frees later.

    Results of few bytes and of many come and go in turns with what other code allocates. glibc
    keeps the pages in between, so that a process that embeds for hours takes a quarter more than
    it needs. This gives them back, after each 32 MiB of results and in at most 1 % of the time.

    :param n_bytes: Of the results that were just made.
    :param ends: No more will come for a while, so that less is enough.
    """
    _returner.count(n_bytes, ends)
