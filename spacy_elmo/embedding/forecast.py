"""How much there is to do, and how much space it takes, before the first sentence is encoded."""

import shutil
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Tuple

from ..errors import ElmoWarning, Warnings
from .items import BATCH, Item


@dataclass
class Counts:
    """Size of an input, or of a shard of it.

    :param n_total: Lines or docs of the whole input.
    :param n_items: Those of the shard.
    :param n_tokens: Their tokens.
    :param text_bytes: UTF-8 bytes of their texts.
    """

    n_total: int = 0
    n_items: int = 0
    n_tokens: int = 0
    text_bytes: int = 0

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def count(items: Iterable[Item], told: Callable[[int], object] = lambda n: None) -> Counts:
    """Count items, which are read to their end.

    :param told: Told now and then of the number so far, and at the end.
    """
    counts = Counts()
    for item in items:
        # A call for each would take longer than the counting.
        if counts.n_items % BATCH == 0:
            told(counts.n_items)
        counts.n_items += 1
        counts.n_tokens += len(item.tokens)
        counts.text_bytes += len(item.text.encode("utf-8", "surrogatepass"))
    told(counts.n_items)
    return counts


@dataclass(frozen=True)
class Forecast:
    """Bytes of an output without compression.

    :param output: The output itself.
    :param while_running: What is on the disk at most, finished parts included.
    """

    output: int
    while_running: int

    def check_room(self, folder: Path, present: int = 0) -> None:
        """Warn if the disk has not so much room.

        :param folder: Where the output goes; it, or a folder above it, exists.
        :param present: Bytes of it that are there already.
        """
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        needed = self.while_running - present
        if needed > free:
            text = Warnings.W130.format(
                path=folder, needed=show_bytes(needed), free=show_bytes(free)
            )
            warnings.warn(ElmoWarning(text), stacklevel=2)


#: Bytes that the formats add for an item at most, measured: names, shapes, offsets.
ITEM_OVERHEAD = {"hdf5": 800, "npz": 350, "safetensors": 100, "parquet": 20}
#: Bytes that Parquet adds for each vector, since lists of lists have levels.
PARQUET_VECTOR_OVERHEAD = 12


def forecast(
    counts: Counts,
    bytes_per_token: int,
    vectors_per_token: int,
    format: str,
    with_sentences: bool,
    in_place: bool,
) -> Forecast:
    """Forecast an output's size.

    :param bytes_per_token: Of its vectors.
    :param vectors_per_token: How many these are.
    :param with_sentences: Whether tokens and texts are stored too.
    :param in_place: Whether finished parts become the output rather than being copied into it.
    """

    def size(overhead: int) -> int:
        text = 2 * counts.text_bytes if with_sentences else 0
        return counts.n_tokens * bytes_per_token + text + counts.n_items * overhead

    output = size(ITEM_OVERHEAD[format])
    if format == "parquet":
        output += counts.n_tokens * vectors_per_token * PARQUET_VECTOR_OVERHEAD
    parts = size(ITEM_OVERHEAD["safetensors"])
    return Forecast(output, output if in_place else output + parts)


def show_bytes(n: float) -> str:
    """A size as people read it."""
    steps: Iterable[Tuple[str, int]] = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))
    for unit, exponent in steps:
        if n >= 2**exponent:
            return f"{n / 2**exponent:.1f} {unit}"
    return f"{n:.0f} bytes"
