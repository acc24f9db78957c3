"""Keep freed memory in the process during training.

A step allocates and frees the same large buffers again and again. By default glibc maps each of
them anew, and the kernel clears every page of it: about a tenth of a step's time.
"""

import ctypes
import sys

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed; gives whether that worked. Elsewhere it does nothing."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    values = (
        (_M_MMAP_THRESHOLD, _LARGEST),
        (_M_TRIM_THRESHOLD, _LARGEST),
        (_M_TOP_PAD, 64 * 2**20),
    )
    return all(mallopt(parameter, value) == 1 for parameter, value in values)
