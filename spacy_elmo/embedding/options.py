"""Settings of a run, and what it is about to do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ..errors import ElmoError, Errors
from .forecast import Counts, Forecast
from .selection import Selection
from .sharding import Shard

DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class EmbedOptions:
    """What is written, and how the work is cut. The vectors depend on the first four alone.

    :param selection: What is kept of the layers.
    :param dtype: "float32", or "float16" (half the size; 3 decimal digits).
    :param lang: Language whose tokenizer cuts raw text.
    :param model: spaCy pipeline that cuts raw text instead.
    :param segmenter: How raw text and docs are cut to sentences, see `Tokenizer`.
    :param shard: The share of the corpus that is embedded.
    :param format: Output format; by the output's name if not given.
    :param compress: gzip (HDF5, npz) or zstd (Parquet).
    :param forget_sentences: Leave tokens and texts out.
    :param batch_size: Items that are encoded together.
    :param batch_tokens: Tokens that are encoded at a time; bounds memory.
    :param part_tokens: Tokens after which what is done is safe; 0 for about 128 MiB.
    :param overwrite: Replace what was written, or half written, before.
    :raises ElmoError: E035, E094 for values that are none of these.
    """

    selection: Selection = field(default_factory=Selection)
    dtype: str = "float32"
    lang: Optional[str] = None
    model: Optional[str] = None
    segmenter: str = "punct"
    shard: Shard = field(default_factory=Shard)
    format: Optional[str] = None
    compress: bool = False
    forget_sentences: bool = False
    batch_size: int = 512
    batch_tokens: int = 4096
    part_tokens: int = 0
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            expected = ", ".join(DTYPES)
            raise ElmoError(Errors.E035.format(name="dtype", found=self.dtype, expected=expected))
        for name, least in (("batch_size", 1), ("batch_tokens", 1), ("part_tokens", 0)):
            value = getattr(self, name)
            if value < least:
                expected = f"{least} or more"
                raise ElmoError(Errors.E094.format(name=name, found=value, expected=expected))


@dataclass(frozen=True)
class Progress:
    """How far a run is. The first report of each phase comes before its work.

    :param phase: "count", "embed" and "assemble", one after the other; a phase that an earlier run
        has finished does not come again.
    :param done: Lines (or docs) that are counted, tokens that are embedded, those of an earlier run
        included, or lines that are copied to their places.
    :param total: Where `done` ends; None when counting, since it is not known.
    """

    phase: str
    done: int
    total: Optional[int]


@dataclass(frozen=True)
class Plan:
    """What a run is about to do.

    :param output: Its file or folder.
    :param format: The format of it.
    :param counts: Size of the (shard of the) input.
    :param forecast: Bytes that it takes.
    :param items_done: Items that an earlier run has finished.
    :param tokens_done: Their tokens.
    """

    output: Path
    format: str
    counts: Counts
    forecast: Forecast
    items_done: int
    tokens_done: int
