"""A data set of a few sentences."""

from pathlib import Path

import pytest

SENTENCES = (
    "Ann/B-person Lee/I-person lives/O in/O Rome/B-location ./O",
    "Rome/B-location is/O old/O ./O",
    "I/O met/O Ann/B-person ./O",
    "We/O went/O home/O ./O",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as the benchmarks expect it, with WNUT-17 in it."""
    folder = tmp_path / "data" / "ner_wnut17"
    folder.mkdir(parents=True)
    columns = "\n\n".join(s.replace(" ", "\n").replace("/", "\t") for s in SENTENCES)
    for part in ("train", "dev", "test"):
        (folder / f"{part}.iob").write_text(columns + "\n", encoding="utf-8")
    return folder.parent
