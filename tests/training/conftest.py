"""A tiny text, and training on it."""

from pathlib import Path
from typing import Any

import pytest

from spacy_elmo.training.pretrain import pretrain

from . import tiny

TEXT = tiny.sentences(200)
HELD = tiny.sentences(25, seed=7)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The text; the held-out one lies beside it."""
    tiny.write_text(tmp_path / "held.txt", HELD)
    return tiny.write_text(tmp_path / "in.txt", TEXT)


def train(source: Path, output: Path, config: Any = None, **options: Any) -> Path:
    """Train with one thread; gives the folder of the run."""
    options = {"heldout": [source.parent / "held.txt"], "threads": 1, **options}
    pretrain([source], output, config or tiny.config(), **options)
    return output
