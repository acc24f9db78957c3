"""A data set of a few sentences."""

from pathlib import Path
from typing import Sequence

import pytest

SENTENCES = (
    "Ann/B-person Lee/I-person lives/O in/O Rome/B-location ./O",
    "Rome/B-location is/O old/O ./O",
    "I/O met/O Ann/B-person ./O",
)


def write_wnut(folder: Path, sentences: Sequence[str]) -> Path:
    """Write sentences as all parts of WNUT-17, in a folder as the benchmarks expect it."""
    target = folder / "data" / "ner_wnut17"
    target.mkdir(parents=True)
    columns = "\n\n".join(s.replace(" ", "\n").replace("/", "\t") for s in sentences)
    for part in ("train", "dev", "test"):
        (target / f"{part}.iob").write_text(columns + "\n", encoding="utf-8")
    return target.parent


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data's folder."""
    return write_wnut(tmp_path, SENTENCES)
