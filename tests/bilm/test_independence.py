"""The promise: a sentence's vectors depend on that sentence alone."""

import copy
from dataclasses import replace
from typing import Any, List

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM, BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.lm import init_bilm

TOLERANCE = 1e-5
CONFIG = BiLMConfig(CharCNNConfig(((1, 4), (2, 8), (3, 12)), embedding_dim=4), LSTMConfig(24, 12))
SENTENCES = [
    [f"{'ä' * (i % 3)}w{(7 * i + j * j) % 29}" for j in range((5 * i) % 17)] for i in range(50)
]


def make(initial_state: str, seed: int = 0) -> BiLM:
    model = BiLM(replace(CONFIG, initial_state=initial_state)).eval()
    init_bilm(model, model.config, torch.Generator().manual_seed(seed))
    return model


def assert_close(found: List[np.ndarray], expected: List[np.ndarray]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


def assert_equal(found: List[np.ndarray], expected: List[np.ndarray]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_different(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() > 100 * TOLERANCE


@pytest.fixture(scope="module", params=["zero", "primed"])
def model(request: Any) -> BiLM:
    return make(request.param)


@pytest.fixture(scope="module")
def alone(model: BiLM) -> List[np.ndarray]:
    """Vectors of each sentence from a call of its own."""
    return [model.embed([sentence])[0] for sentence in SENTENCES]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.permutations(range(50)), st.integers(0, 50), st.integers(1, 400), st.booleans())
def test_order_batches_and_company_do_not_matter(
    model: BiLM,
    alone: List[np.ndarray],
    order: List[int],
    n: int,
    batch_tokens: int,
    boundaries: bool,
) -> None:
    chosen = order[:n]
    batch = [SENTENCES[i] for i in chosen]
    found = model.embed(batch, batch_tokens=batch_tokens, boundaries=boundaries)
    if boundaries:
        found = [array[:, 1:-1] for array in found]
    assert_close(found, [alone[i] for i in chosen])


def test_repeating_a_call_gives_the_same_bits(model: BiLM) -> None:
    first = model.embed(SENTENCES)
    model.embed([["something", "else"]])
    model.train()
    assert_equal(model.embed(SENTENCES), first)
    model.eval()
    assert_equal(model.embed(SENTENCES), first)
    other = copy.deepcopy(model)
    assert_equal(other.embed(SENTENCES), first)


def test_duplicates_agree_within_a_call(model: BiLM) -> None:
    found = model.embed([SENTENCES[3], SENTENCES[5], SENTENCES[3]])
    assert_close([found[0]], [found[2]])


def test_a_new_model_agrees_whatever_was_embedded_first(model: BiLM) -> None:
    expected = model.embed(SENTENCES[:5])
    other = make(model.config.initial_state)
    other.embed(SENTENCES[20:30])
    assert_equal(other.embed(SENTENCES[:5]), expected)


# -- initial states --------------------------------------------------------------------------


def test_the_three_initial_states_differ() -> None:
    sentence = SENTENCES[3]
    zero, primed, carry = (make(kind) for kind in ("zero", "primed", "carry"))
    first = {"zero": zero.embed([sentence])[0], "primed": primed.embed([sentence])[0]}
    # Carried states start from zeros.
    np.testing.assert_allclose(carry.embed([sentence])[0], first["zero"], rtol=0, atol=TOLERANCE)
    assert_different(carry.embed([sentence])[0], first["zero"])
    assert_different(first["primed"], first["zero"])
    # The token layer has no state.
    np.testing.assert_array_equal(first["primed"][0], first["zero"][0])


def test_priming_is_reading_empty_sentences() -> None:
    """The primed state is what a carrying model has after reading nothing a few times."""
    carry = make("carry")
    for _ in range(4):
        carry.embed([[]])
    sentence = SENTENCES[4]
    assert_close(make("primed").embed([sentence]), carry.embed([sentence]))


def test_the_primed_state_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("primed")
    encoded: List[List[str]] = []
    original = model.characters.encode

    def encode(words: List[str]) -> Any:
        encoded.append(list(words))
        return original(words)

    monkeypatch.setattr(model.characters, "encode", encode)
    for _ in range(3):
        model.embed([["a"]])
    # The state and the boundaries are made without words; the word itself is cached.
    assert encoded.count([]) == 2 and encoded.count(["a"]) == 1


@pytest.mark.parametrize("mode", [True, False])
def test_the_primed_state_follows_the_weights(mode: bool) -> None:
    """A step of an optimiser or new weights make a new state, in either mode."""
    model = make("primed").train(mode)
    model.embed([["a"]])
    other = make("primed", seed=1)
    expected = other.embed([["a"]])
    with torch.no_grad():
        for mine, new in zip(model.parameters(), other.parameters()):
            mine.copy_(new)
    assert_equal(model.embed([["a"]]), expected)
    model([["a"]]).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.1)
    fresh = make("primed")
    fresh.load_state_dict(model.state_dict())
    assert_equal(model.eval().embed([["a"]]), fresh.embed([["a"]]))
    # Changes behind the back of torch have to be told.
    model.get_parameter("backward_lstm.0.bias").data.add_(1.0)
    model.reset_states()
    fresh.load_state_dict(model.state_dict())
    assert_equal(model.embed([["a"]]), fresh.embed([["a"]]))


@pytest.mark.parametrize("kind", ["primed", "carry"])
def test_states_do_not_hinder_conversion_or_storage(kind: str) -> None:
    model = make(kind)
    expected = model.embed([["a", "b"]])[0]
    assert set(model.state_dict()) == set(make("zero").state_dict())
    found = model.double().embed([["a", "b"]])[0]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_primed_states_made_for_inference_serve_training() -> None:
    model = make("primed")
    with torch.inference_mode():
        model.embed([["a"]])
    model([["a"]]).sum().backward()


def test_carried_states_follow_the_rows() -> None:
    """Rows of a later, smaller batch go on from their own; the others wait."""
    model, a, b, c = make("carry"), ["a", "x"], ["b"], ["c", "y", "z"]
    separate = [make("carry") for _ in range(3)]
    expected = [
        [separate[0].embed([s])[0] for s in (a, b, b)],
        [separate[1].embed([s])[0] for s in (c, a)],
        [separate[2].embed([s])[0] for s in (c,)],
    ]
    assert_close(model.embed([a, c]), [expected[0][0], expected[1][0]])
    assert_close(model.embed([b]), [expected[0][1]])
    # The shortest first: rows are those of the caller, not of the packed batch.
    assert_close(model.embed([b, a, c]), [expected[0][2], expected[1][1], expected[2][0]])


def test_reset_states_starts_from_zeros_again() -> None:
    model = make("carry")
    first = model.embed([["a"], ["b", "c"]])
    second = model.embed([["a"], ["b", "c"]])
    assert_different(second[0], first[0])
    model.reset_states()
    assert_equal(model.embed([["a"], ["b", "c"]]), first)
