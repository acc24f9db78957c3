"""The encoder against the numpy reference, over random shapes, words and sentences."""

import copy
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM, ElmoError

from .reference import bilm_layers, many_langs_layers
from .writers import (
    ARCHITECTURE,
    CHARACTERS,
    OPTIONS,
    WORDS,
    Arrays,
    bilm_arrays,
    many_langs_states,
    write_bilm_folder,
    write_many_langs_folder,
)

FLOAT32, FLOAT64 = 1e-5, 1e-10

#: Words that are easily got wrong: nothing, marks as text, lone surrogates, combining marks,
#: scripts of two to four bytes a character, a no-break space, more than any limit.
HARD_WORDS = [
    "", "<S>", "</S>", "<UNK>", "<bos>", "<eos>", "<oov>", "\ud800", "a\udfffb", "e\u0301\u0323",
    "\u00a0", "naïve", "Москва", "שלום", "مرحبا", "हिन्दी", "中文", "日本語テキスト", "한국어",
    "🙂", "👩‍👩‍👧", "a" * 70, "\x00", "the", "中" * 30,
]  # fmt: skip
words = st.one_of(st.sampled_from(HARD_WORDS), st.text(st.characters(), max_size=9))
sentences = st.lists(st.lists(words, max_size=5), min_size=1, max_size=3)
filters = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4)
clips = st.sampled_from([None, 0.1, 0.5, 3])


@st.composite
def options(draw: Any) -> Dict[str, Any]:
    """Options of a small model; widths are often equal, so that there is no projection."""
    shape = draw(filters)
    n_filters = sum(n for _, n in shape)
    p = draw(st.one_of(st.just(n_filters), st.integers(1, 5)))
    lstm: Dict[str, Any] = {
        "dim": draw(st.one_of(st.just(p), st.integers(1, 6))),
        "projection_dim": p,
        "n_layers": draw(st.integers(1, 3)),
        "use_skip_connections": draw(st.booleans()),
    }
    for name in ("cell_clip", "proj_clip"):
        clip = draw(clips)
        if clip is not None:
            lstm[name] = clip
    least = max(3, *(width for width, _ in shape))
    cnn: Dict[str, Any] = {
        "embedding": {"dim": draw(st.integers(1, 3))},
        "filters": [list(pair) for pair in shape],
        "n_characters": draw(st.sampled_from([261, 262])),
        "max_characters_per_token": draw(st.integers(least, 14)),
        "activation": draw(st.sampled_from(["relu", "tanh"])),
    }
    n_highway = draw(st.integers(0, 3))
    if n_highway or draw(st.booleans()):
        cnn["n_highway"] = n_highway
    return {"char_cnn": cnn, "lstm": lstm}


def random_arrays(options: Dict[str, Any], seed: int) -> Arrays:
    """Weights that give vectors of ordinary size, and gates that are not all open or shut."""
    arrays = bilm_arrays(options, seed)
    return {name: array * np.float32(0.4) for name, array in arrays.items()}


def load_bilm(options: Dict[str, Any], arrays: Arrays) -> BiLM:
    with tempfile.TemporaryDirectory() as folder:
        write_bilm_folder(Path(folder), options, arrays)
        return BiLM.load(folder, initial_state="zero")


def assert_close(model: BiLM, batch: List[List[str]], expected: List[np.ndarray]) -> None:
    for precision, tolerance in ((torch.float32, FLOAT32), (torch.float64, FLOAT64)):
        found = model.to(precision).embed(batch, boundaries=True)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(options(), sentences, st.integers(0, 99))
@example(OPTIONS, [HARD_WORDS, ["the"], []], 1)
def test_bilm_equals_the_reference(
    options: Dict[str, Any], batch: List[List[str]], seed: int
) -> None:
    arrays = random_arrays(options, seed)
    expected = [bilm_layers(options, arrays, sentence) for sentence in batch]
    assert_close(load_bilm(options, arrays), batch, expected)


@pytest.mark.parametrize("name", ["cell_clip", "proj_clip"])
def test_clips_fire_inside_the_recurrence(name: str) -> None:
    """Each clip alone changes the result, and ours changes as the reference does."""
    batch = [["a", "bb", "ccc", "dddd"], ["e", "f"]]
    results = []
    for clip in (0.2, None):
        options = copy.deepcopy(OPTIONS)
        for other in ("cell_clip", "proj_clip"):
            del options["lstm"][other]
        if clip is not None:
            options["lstm"][name] = clip
        arrays = random_arrays(options, 3)
        results.append([bilm_layers(options, arrays, sentence) for sentence in batch])
        assert_close(load_bilm(options, arrays), batch, results[-1])
    clipped, free = (np.concatenate(r, axis=1) for r in results)
    assert np.abs(clipped - free).max() > 0.1
    if name == "proj_clip":
        assert (np.abs(clipped[1]) == 0.2).mean() > 0.1
        assert np.abs(free[1]).max() > 0.2


@st.composite
def architectures(draw: Any) -> Dict[str, Any]:
    architecture = copy.deepcopy(ARCHITECTURE)
    encoder, embedder = architecture["encoder"], architecture["token_embedder"]
    shape = draw(filters)
    encoder["projection_dim"] = draw(st.integers(1, 5))
    encoder["dim"] = draw(st.one_of(st.just(encoder["projection_dim"]), st.integers(1, 6)))
    encoder["n_layers"] = draw(st.integers(1, 3))
    encoder["cell_clip"], encoder["proj_clip"] = draw(st.sampled_from([(3, 3), (0.2, 0.1)]))
    embedder["filters"] = [list(pair) for pair in shape]
    embedder["activation"] = draw(st.sampled_from(["relu", "tanh"]))
    embedder["n_highway"] = draw(st.integers(0, 2))
    embedder["word_dim"] = draw(st.integers(0, 4))
    least = max(3, *(width for width, _ in shape))
    embedder["max_characters_per_token"] = draw(st.integers(least, 12))
    return architecture


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    architectures(),
    st.lists(st.lists(st.one_of(words, st.sampled_from(WORDS)), max_size=5), max_size=3),
)
@example(ARCHITECTURE, [HARD_WORDS, ["the", "Zürich", "中文", "aé\u3000b", "éb" * 9], []])
def test_many_langs_equals_the_reference(
    architecture: Dict[str, Any], batch: List[List[str]]
) -> None:
    # A literal mark is text for us, which the reference (as the original) does not know.
    marks = [w for w in WORDS if w.startswith("<")]
    known = {w: i for i, w in enumerate(WORDS)}
    token, encoder = many_langs_states(architecture, len(CHARACTERS), len(WORDS))
    token, encoder = ({n: t * 0.4 for n, t in part.items()} for part in (token, encoder))
    state = {name: tensor.numpy() for name, tensor in {**token, **encoder}.items()}
    characters = {c: i for i, c in enumerate(CHARACTERS)}
    with tempfile.TemporaryDirectory() as folder:
        write_many_langs_folder(Path(folder), architecture)
        torch.save(token, Path(folder, "token_embedder.pkl"))
        torch.save(encoder, Path(folder, "encoder.pkl"))
        model = BiLM.load(folder, initial_state="zero")
    plain = [[word for word in sentence if word not in marks] for sentence in batch]
    expected = [many_langs_layers(architecture, state, characters, known, s) for s in plain]
    assert_close(model, plain, expected)


# -- what goes in and what comes out ---------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> BiLM:
    return load_bilm(OPTIONS, random_arrays(OPTIONS, 0))


@pytest.mark.parametrize(
    "bad, code, text",
    [
        (["The", "bank"], "ELMO-E001", r"embed\(\[tokens\]\)"),
        ("The bank", "ELMO-E001", r"embed\(\[text\.split\(\)\]\)"),
        (["The bank"], "ELMO-E001", "'The bank'"),
        ([["The"], "bank"], "ELMO-E001", "item 1"),
        (b"The bank", "ELMO-E001", "bytes"),
        ([b"The", b"bank"], "ELMO-E001", "bytes b'The'"),
        ([["The"], 7], "ELMO-E001", "int 7"),
        ([["The", "bank"], ["a", b"b"]], "ELMO-E002", r"token 1 of sentence 1 is bytes b'b'"),
        ([[None]], "ELMO-E002", "NoneType"),
        ([[["a"]]], "ELMO-E002", "list"),
        (None, "ELMO-E003", "NoneType"),
        ((s for s in [["a"]]), "ELMO-E003", r"list\(sentences\)"),
    ],
)
@pytest.mark.parametrize("call", ["embed", "forward"])
def test_input_that_is_no_list_of_sentences_is_refused(
    model: BiLM, call: str, bad: Any, code: str, text: str
) -> None:
    with pytest.raises(ElmoError, match=text) as caught:
        getattr(model, call)(bad)
    assert caught.value.code == code


def test_shapes_and_layout_of_the_result(model: BiLM) -> None:
    batch = [["a", "b", "c"], [], ["d"]]
    found = model.embed(batch)
    assert [array.shape for array in found] == [(3, 3, 8), (3, 0, 8), (3, 1, 8)]
    assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in found)
    assert model.embed([]) == []
    assert [array.shape for array in model.embed([[]])] == [(3, 0, 8)]
    assert (model.width, model.n_layers) == (8, 3)
    with_boundaries = model.embed(batch, boundaries=True)
    assert [array.shape[1] for array in with_boundaries] == [5, 2, 3]
    for inner, outer in zip(found, with_boundaries):
        np.testing.assert_allclose(inner, outer[:, 1:-1], rtol=0, atol=1e-5)
    # The token layer is doubled.
    np.testing.assert_array_equal(found[0][0, :, :4], found[0][0, :, 4:])
    # Sentences may be tuples, and their tokens subclasses of str.
    again = model.embed(((np.str_("a"), "b", "c"), (), ("d",)))
    np.testing.assert_array_equal(again[0], found[0])


def test_forward_gives_what_embed_gives_in_one_tensor(model: BiLM) -> None:
    batch = [["a"], ["b", "c", "a"], []]
    flat = model(batch).detach().numpy()
    found = np.concatenate(model.embed(batch, boundaries=True), axis=1)
    np.testing.assert_allclose(flat, found, rtol=0, atol=FLOAT32)
    assert model([]).shape == (3, 0, 8)


def test_embedding_builds_no_graph_and_forward_does(model: BiLM) -> None:
    assert model([["a"]]).requires_grad
    with torch.inference_mode():
        inference = model.embed([["a"]])
    np.testing.assert_array_equal(inference[0], model.embed([["a"]])[0])
