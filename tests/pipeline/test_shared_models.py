"""Pipelines that read the same files share their weights, and do not disturb each other."""

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy

from spacy_elmo.bilm import BiLM

from .conftest import train

TEXT = "The bank lends money."


def vectors(nlp: Any, text: str = TEXT) -> np.ndarray:
    return nlp(text)._.elmo_layers


@pytest.fixture()
def saved(tmp_path: Path, weights: str) -> Path:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": weights})
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_two_pipelines_from_one_folder_have_one_model(saved: Path, precision: str) -> None:
    config = {"components.elmo.model.precision": precision}
    first, second = (spacy.load(saved, config=config) for _ in range(2))
    np.testing.assert_array_equal(vectors(first), vectors(second))
    ours, theirs = (nlp.get_pipe("elmo").bilm for nlp in (first, second))
    assert ours is theirs
    # And the weights that were laid out for inference, too.
    assert ours.engine(precision) is theirs.engine(precision)


def test_files_that_changed_are_read_again(saved: Path, tmp_path: Path, weights: str) -> None:
    first = spacy.load(saved)
    before = vectors(first)
    model = BiLM.load(weights)
    model.forward_lstm[0].bias.data.add_(1.0)
    model.save(saved / "elmo" / "weights")
    second = spacy.load(saved)
    assert np.abs(vectors(second) - before).max() > 1e-3
    # The one that is loaded keeps what it has.
    np.testing.assert_array_equal(vectors(first), before)
    shutil.rmtree(saved)
    np.testing.assert_array_equal(vectors(first, TEXT), before)


def test_training_one_leaves_the_other_alone(make_nlp: Any) -> None:
    trained, other = make_nlp("tagger", trainable=True), make_nlp()
    before = vectors(other)
    np.testing.assert_array_equal(
        before, trained.get_pipe("elmo").predict([trained.make_doc(TEXT)])[0]
    )
    assert trained.get_pipe("elmo").bilm is other.get_pipe("elmo").bilm
    train(trained, 3)
    after = trained.get_pipe("elmo").predict([trained.make_doc(TEXT)])[0]
    assert np.abs(after - before).max() > 1e-4
    other.get_pipe("elmo").model.shims[0].cache.clear()
    np.testing.assert_array_equal(vectors(other), before)
    assert not any(p.requires_grad for p in other.get_pipe("elmo").bilm.parameters())


def _engine_is_there(nlp: Any, queue: Any) -> None:
    queue.put(bool(nlp.get_pipe("elmo").bilm._engines))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("is_new", [False, True])
def test_forked_workers_find_weights_laid_out(saved: Path, is_new: bool) -> None:
    # Else each of them would do it for itself, in memory of its own.
    nlp = spacy.blank("en")
    if is_new:
        # Not used yet, so that it has loaded nothing so far.
        nlp.add_pipe("elmo", config={"weights": str(saved / "elmo" / "weights")})
    else:
        nlp = spacy.load(saved)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_engine_is_there, args=(nlp, queue))
    process.start()
    assert queue.get(timeout=60)
    process.join()
