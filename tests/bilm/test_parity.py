"""Vectors that the original implementations computed, met within 1e-5."""

import json
from typing import Dict, List

import numpy as np
import pytest

from spacy_elmo.bilm import BiLM

from ..util import shared
from .writers import read_hdf5

TOLERANCE = 1e-5


def load(initial_state: str) -> BiLM:
    folder = shared("fixtures", "bilm-tiny")
    return BiLM.load(
        folder / "options.json", folder / "lm_weights.hdf5", initial_state=initial_state
    )


@pytest.fixture(scope="module")
def streams() -> List[List[List[str]]]:
    """Three streams of ten sentences."""
    text = shared("fixtures", "bilm-tiny", "sentences.json").read_text(encoding="utf-8")
    return [[sentence.split() for sentence in stream] for stream in json.loads(text)]


@pytest.fixture(scope="module")
def original() -> List[Dict[str, np.ndarray]]:
    """The top layer from bilm-tf, by stream and sentence, (2, n_tokens, P)."""
    folder = shared("fixtures", "bilm-tiny")
    return [read_hdf5(folder / f"lm_embeddings_{k}.hdf5") for k in range(3)]


def assert_top_layer(found: np.ndarray, expected: np.ndarray) -> None:
    both = np.concatenate(list(expected), axis=1)
    np.testing.assert_allclose(found[-1], both, rtol=0, atol=TOLERANCE)


def test_carried_states_meet_the_tensorflow_implementation(
    streams: List[List[List[str]]], original: List[Dict[str, np.ndarray]]
) -> None:
    model = load("carry")
    for i in range(10):
        batch = [stream[i] for stream in streams]
        for k, found in enumerate(model.embed(batch)):
            assert_top_layer(found, original[k][str(i)])


def test_the_first_sentences_start_from_zeros(
    streams: List[List[List[str]]], original: List[Dict[str, np.ndarray]]
) -> None:
    for k, found in enumerate(load("zero").embed([stream[0] for stream in streams])):
        assert_top_layer(found, original[k]["0"])


def test_the_primed_state_is_nearer_to_carried_states_than_zeros_are(
    streams: List[List[List[str]]], original: List[Dict[str, np.ndarray]]
) -> None:
    batch = [stream[i] for stream in streams for i in range(1, 10)]
    expected = [
        np.concatenate(list(original[k][str(i)]), axis=1) for k in range(3) for i in range(1, 10)
    ]

    def distance(initial_state: str) -> float:
        found = load(initial_state).embed(batch)
        gaps = [np.abs(ours[-1] - theirs).mean() for ours, theirs in zip(found, expected)]
        return float(np.mean(gaps))

    assert distance("primed") < 0.5 * distance("zero")


def test_all_layers_meet_allennlp_alone_and_in_any_batch() -> None:
    folder = shared("fixtures", "allennlp-reference")
    text = (folder / "bilm-tiny-stateless.json").read_text(encoding="utf-8")
    sentences = json.loads(text)
    model = load("zero")
    alone = [model.embed([sentence])[0] for sentence in sentences]
    batches = [model.embed(sentences, batch_tokens=n) for n in (10_000, 100, 1)]
    with np.load(folder / "bilm-tiny-stateless.npz") as expected:
        assert len(expected.files) == len(sentences)
        for i in range(len(sentences)):
            for found in (alone, *batches):
                np.testing.assert_allclose(
                    found[i], expected[str(i)], rtol=0, atol=TOLERANCE, err_msg=str(i)
                )
