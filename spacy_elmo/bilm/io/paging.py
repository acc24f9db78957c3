"""Give back the memory of weights that are not needed for a while."""

import ctypes
import sys
from typing import Optional

from torch import nn

# Value of <linux/mman.h>, since Linux 5.4. Unlike MADV_DONTNEED it loses nothing: what cannot be
# read again from its file stays.
_MADV_PAGEOUT = 21
_PAGE = 4096


def page_out(module: nn.Module) -> None:
    """Let the kernel take the pages of parameters that are mapped from a file.

    They come back from the file by themselves when they are used. Weights that are not mapped
    stay where they are, and so does everything on systems other than Linux.
    """
    madvise = _madvise()
    if madvise is None:
        return
    for parameter in module.parameters():
        if parameter.device.type != "cpu":
            continue
        start = -(-parameter.data_ptr() // _PAGE) * _PAGE
        stop = (parameter.data_ptr() + parameter.nbytes) // _PAGE * _PAGE
        if stop > start:
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _MADV_PAGEOUT)


def _madvise() -> Optional["ctypes._NamedFuncPointer"]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).madvise
    except (OSError, AttributeError):  # another C library
        return None
