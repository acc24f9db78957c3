"""Give back the memory of weights that are not needed for a while."""

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import Optional

from safetensors import safe_open
from torch import nn

from .safetensors_file import write_safetensors

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


def move_to_file(module: nn.Module) -> None:
    """Let parameters live in a file without a name, which ends with them, instead of in memory.

    Those that come from a file already are left alone, and everything if there is no room on the
    disk or the system cannot do it.
    """
    if not sys.platform.startswith("linux"):
        return
    ranges = _mapped_ranges()
    anonymous = {
        name: p.data
        for name, p in module.named_parameters()
        if p.device.type == "cpu" and not any(a <= p.data_ptr() < b for a, b in ranges)
    }
    if not anonymous:
        return
    try:
        with tempfile.TemporaryDirectory(prefix="spacy-elmo-") as folder:
            path = Path(folder) / "weights.safetensors"
            write_safetensors(path, anonymous)
            with safe_open(path, framework="pt") as file:
                mapped = {name: file.get_tensor(name) for name in anonymous}
    except OSError:
        return
    for name, parameter in module.named_parameters():
        if name in mapped:
            parameter.data = mapped[name]


def _mapped_ranges() -> "list[tuple[int, int]]":
    """Addresses of this process that come from files."""
    ranges = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            addresses, _, _, _, inode, *_ = line.split(maxsplit=5)
            if inode != "0":
                start, _, stop = addresses.partition("-")
                ranges.append((int(start, 16), int(stop, 16)))
    return ranges


def _madvise() -> Optional["ctypes._NamedFuncPointer"]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).madvise
    except (OSError, AttributeError):  # another C library
        return None
