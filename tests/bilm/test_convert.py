"""Conversion between formats: exact there and back, for all shapes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.io import convert, read_model, write_model
from spacy_elmo.errors import ElmoError

from ..util import shared
from .models import make
from .writers import bilm_arrays, read_hdf5, write_bilm_folder, write_many_langs_folder


@st.composite
def options(draw: st.DrawFn) -> Dict[str, Any]:
    size = st.integers(1, 6)
    lstm: Dict[str, Any] = {
        "dim": draw(size),
        "projection_dim": draw(size),
        "use_skip_connections": draw(st.booleans()),
    }
    for name, values in (
        ("n_layers", st.integers(1, 3)),
        ("cell_clip", st.sampled_from([3, 0.5, None])),
        ("proj_clip", st.sampled_from([3, 2.5, None])),
    ):
        if draw(st.booleans()):
            lstm[name] = draw(values)
    filters = st.lists(st.tuples(st.integers(1, 7), size).map(list), min_size=1, max_size=4)
    cnn: Dict[str, Any] = {
        "embedding": {"dim": draw(size)},
        "filters": draw(filters),
        "max_characters_per_token": draw(st.integers(7, 60)),
        "activation": draw(st.sampled_from(["relu", "tanh"])),
    }
    if draw(st.booleans()):
        cnn["n_characters"] = draw(st.sampled_from([261, 262]))
    if draw(st.booleans()):
        cnn["n_highway"] = draw(st.sampled_from([0, 1, 2, None]))
    training = draw(st.sampled_from([{}, {"bidirectional": True, "all_clip_norm_val": 10.0}]))
    return {**training, "lstm": lstm, "char_cnn": cnn}


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(options(), st.integers(0, 1000))
def test_bilm_to_native_and_back(
    tmp_path_factory: pytest.TempPathFactory, options: Dict[str, Any], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("convert")
    arrays = bilm_arrays(options, seed)
    # Not numbers like others, but they must survive as well.
    arrays["char_embed"][0, 0] = np.float32("nan")
    arrays["char_embed"][1, 0] = np.float32("-0")
    write_bilm_folder(folder / "a", options, arrays)
    convert(folder / "a", folder / "b")
    convert(folder / "b", folder / "c", "bilm")
    assert json.loads((folder / "c" / "options.json").read_text()) == options
    written = read_hdf5(folder / "c" / "model.hdf5")
    assert {name: array.tobytes() for name, array in written.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }


def test_public_fixture_there_and_back(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm-tiny")
    convert(source / "options.json", tmp_path / "b", weights=source / "lm_weights.hdf5")
    convert(tmp_path / "b", tmp_path / "c", "bilm")
    before, after = (
        read_hdf5(path) for path in (source / "lm_weights.hdf5", tmp_path / "c" / "model.hdf5")
    )
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    options = [json.loads((p / "options.json").read_text()) for p in (source, tmp_path / "c")]
    assert options[0] == options[1]


def test_many_langs_to_native_and_back(tmp_path: Path) -> None:
    source = write_many_langs_folder(tmp_path / "a")
    convert(source, tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c", "many-langs")
    for name in ("token_embedder.pkl", "encoder.pkl"):
        before, after = (
            torch.load(tmp_path / folder / name, weights_only=True) for folder in ("a", "c")
        )
        assert before.keys() == after.keys()
        assert all(before[key].numpy().tobytes() == after[key].numpy().tobytes() for key in before)
    files = read_model(tmp_path / "c")
    assert files.words == read_model(source).words


def test_native_stays_exact_in_a_second_round(tmp_path: Path) -> None:
    source = write_bilm_folder(tmp_path / "a")
    convert(source, tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c")
    for name in ("config.json", "model.safetensors", "README.md"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_dtype_belongs_to_the_native_format(tmp_path: Path) -> None:
    source = write_bilm_folder(tmp_path / "a")
    convert(source, tmp_path / "b", dtype="float16")
    sizes = [
        (path / name).stat().st_size
        for path, name in ((source, "model.hdf5"), (tmp_path / "b", "model.safetensors"))
    ]
    assert sizes[1] < sizes[0]
    for dtype in ("float16", "int8"):
        with pytest.raises(ElmoError, match=rf"E035.*dtype is '{dtype}'.*float32"):
            convert(source, tmp_path / "c", "bilm", dtype=dtype)
    convert(source, tmp_path / "c", "bilm", dtype="float32")


def test_wrong_direction_and_unknown_formats(tmp_path: Path) -> None:
    byte, codepoint = (
        write(tmp_path / name)
        for name, write in (("a", write_bilm_folder), ("b", write_many_langs_folder))
    )
    with pytest.raises(ElmoError, match="E029.*'many-langs'.*bytes"):
        convert(byte, tmp_path / "x", "many-langs")
    with pytest.raises(ElmoError, match="E029.*'bilm'.*codepoint.*word vectors.*forget bias"):
        convert(codepoint, tmp_path / "x", "bilm")
    with pytest.raises(ElmoError, match="E035.*'onnx'.*native, bilm, many-langs"):
        write_model(read_model(byte), tmp_path / "x", "onnx")
    assert not (tmp_path / "x").exists()


def test_softmax_survives_native_to_native(tmp_path: Path) -> None:
    files = read_model(write_bilm_folder(tmp_path / "a"))
    files.tensors.update({"softmax.weight": torch.randn(3, 4), "softmax.bias": torch.randn(3)})
    files.vocabulary = [("<S>", 5), ("</S>", 5), ("<UNK>", 1)]
    write_model(files, tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c", softmax_dtype="int8")
    read = read_model(tmp_path / "c", softmax=True)
    assert read.vocabulary == files.vocabulary
    torch.testing.assert_close(
        read.tensors["softmax.weight"], files.tensors["softmax.weight"], atol=0.02, rtol=0
    )
    name = "forward_lstm.0.bias"
    assert torch.equal(read.tensors[name], files.tensors[name])


@pytest.mark.parametrize("state", ["zero", "primed"])
def test_hdf5_keeps_the_state_that_sentences_start_in(tmp_path: Path, state: str) -> None:
    files = make()
    files.config = replace(files.config, initial_state=state)
    write_model(files, tmp_path / "hdf5", format="bilm")
    assert read_model(tmp_path / "hdf5").config.initial_state == state
    sentence = [["été", "b"]]
    expected = BiLM.from_files(files).embed(sentence)[0]
    np.testing.assert_array_equal(BiLM.load(tmp_path / "hdf5").embed(sentence)[0], expected)


#: What says how sentences begin, and who writes it.
FOREIGN: Dict[str, Any] = {
    "bilm": ("options.json", write_bilm_folder),
    "many-langs": ("config.json", write_many_langs_folder),
}


def imported(folder: Path, format: str, state: str) -> Tuple[Path, Path]:
    """A foreign model that names its initial state; its folder and the file where it does."""
    name, write = FOREIGN[format]
    path = write(folder) / name
    values = json.loads(path.read_text(encoding="utf-8"))
    if "config_path" in values:
        values["config_path"] = "arch.json"
    if state != "primed":
        values["spacy_elmo"] = {"initial_state": state}
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return folder, path


@pytest.mark.parametrize("format", FOREIGN)
@pytest.mark.parametrize("before", ["primed", "zero", "carry"])
@pytest.mark.parametrize("after", ["primed", "zero", "carry"])
def test_the_initial_state_survives_there_and_back(
    tmp_path: Path, format: str, before: str, after: str
) -> None:
    folder, source = imported(tmp_path / "source", format, before)
    assert BiLM.load(folder).config.initial_state == before
    BiLM.load(folder, initial_state=after).save(tmp_path / "out", format=format)
    assert BiLM.load(tmp_path / "out").config.initial_state == after
    written = tmp_path / "out" / source.name
    if before == after:
        assert written.read_bytes() == source.read_bytes()
    else:
        values, old = (json.loads(p.read_text(encoding="utf-8")) for p in (written, source))
        # A program that knows nothing of the section finds what it found before.
        own = [file.pop("spacy_elmo", None) for file in (values, old)]
        assert values == old and (own[0] is None) == (after == "primed")


def test_a_wrong_initial_state_is_named(tmp_path: Path) -> None:
    for format, (name, _) in FOREIGN.items():
        folder, _ = imported(tmp_path / format, format, "warm")
        shown = f"{name}.*spacy_elmo.initial_state is 'warm', expected one of zero, primed"
        with pytest.raises(ElmoError, match=f"E025.*{shown}"):
            read_model(folder)
