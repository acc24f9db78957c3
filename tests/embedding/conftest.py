"""The small model, made once."""

import pytest

from spacy_elmo.bilm import BiLM

from . import corpus


@pytest.fixture(scope="session")
def bilm() -> BiLM:
    return corpus.model()
