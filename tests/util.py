"""Helpers that tests share."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]


def missing(reason: str) -> NoReturn:
    """Skip a test that cannot run here; where nothing may be missing (`.ci/run`), fail it."""
    if os.environ.get("SPACY_ELMO_TEST_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


def shared(*parts: str) -> Path:
    """Path of parity data or corpora that are not part of the project.

    Looked for in ``$SPACY_ELMO_SHARED``, else in ``shared`` beside the project's folder. Where
    it is absent (a user's machine) the test is skipped with the reason; see :func:`missing`.
    """
    base = Path(os.environ.get("SPACY_ELMO_SHARED", ROOT.parent / "shared"))
    path = base.joinpath(*parts)
    if not path.exists():
        missing(f"test data not found: {'/'.join(parts)} (set SPACY_ELMO_SHARED)")
    return path
