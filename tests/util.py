"""Helpers that tests share."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shared(*parts: str) -> Path:
    """Path of parity data or corpora that are not part of the project.

    Looked for in ``$SPACY_ELMO_SHARED``, else in ``shared`` beside the project's folder. Where
    it is absent (a user's machine) the test is skipped with the reason.
    """
    base = Path(os.environ.get("SPACY_ELMO_SHARED", ROOT.parent / "shared"))
    path = base.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"test data not found: {'/'.join(parts)} (set SPACY_ELMO_SHARED)")
    return path
