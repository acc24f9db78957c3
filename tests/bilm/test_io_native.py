"""The native folder: exact, self-describing, mapped into memory, replaced as a whole."""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import PRESETS, BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.io import (
    count_parameters,
    expected_shapes,
    read_model,
    read_native,
    write_native,
)
from spacy_elmo.errors import ElmoError

from .models import SMALL, VOCABULARY, make
from .writers import CHARACTERS, WORDS


@st.composite
def configs(draw: st.DrawFn) -> BiLMConfig:
    size = st.integers(1, 5)
    unit = draw(st.sampled_from(["byte", "codepoint"]))
    word_dim = draw(st.sampled_from([0, 2])) if unit == "codepoint" else 0
    clip = st.sampled_from([None, 0.1, 3.0])
    cnn = CharCNNConfig(
        filters=tuple(draw(st.lists(st.tuples(size, size), min_size=1, max_size=3))),
        embedding_dim=draw(size),
        max_characters=draw(st.integers(5, 60)),
        n_highway=draw(st.integers(0, 2)),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        unit=unit,
        n_characters=261 if unit == "byte" else len(CHARACTERS),
        n_words=len(WORDS) if word_dim else 0,
        word_dim=word_dim,
        always_project=draw(st.booleans()),
    )
    lstm = LSTMConfig(
        draw(size),
        draw(size),
        draw(st.integers(1, 3)),
        draw(clip),
        draw(clip),
        draw(st.booleans()),
        draw(st.sampled_from([0.0, 1.0])),
        draw(st.booleans()),
    )
    state = draw(st.sampled_from(["zero", "primed", "carry"]))
    meta = draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2))
    return BiLMConfig(cnn, lstm, state, meta)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(configs(), st.booleans())
def test_round_trip_is_exact(
    tmp_path_factory: pytest.TempPathFactory, config: BiLMConfig, softmax: bool
) -> None:
    path = tmp_path_factory.mktemp("native") / "model"
    files = make(config, softmax)
    write_native(files, path)
    read = read_model(path, softmax=True)
    assert read.config == config
    assert (read.vocabulary, read.characters, read.words) == (
        files.vocabulary,
        files.characters,
        files.words,
    )
    assert read.tensors.keys() == files.tensors.keys()
    for name, tensor in files.tensors.items():
        assert torch.equal(read.tensors[name], tensor), name


def test_config_file_describes_itself(tmp_path: Path) -> None:
    write_native(make(), tmp_path / "m")
    data = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))
    assert (data["format"], data["format_version"]) == ("spacy-elmo", 1)
    assert BiLMConfig.from_dict(data) == SMALL


def test_shapes_of_the_published_models() -> None:
    totals = {name: sum(count_parameters(c).values()) for name, c in PRESETS.items()}
    assert totals["small"] == 13_593_296
    assert totals["medium"] == 28_027_728
    assert totals["original"] == 93_600_848


# -- memory -----------------------------------------------------------------------------------


def mapped_ranges(name: str) -> List[Tuple[int, int]]:
    """Address ranges of this process that are mapped from a file of this name."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(name):
            start, stop = line.split()[0].split("-")
            ranges.append((int(start, 16), int(stop, 16)))
    return ranges


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    cnn = CharCNNConfig(((1, 16), (3, 16)), embedding_dim=16, n_highway=1)
    write_native(make(BiLMConfig(cnn, LSTMConfig(32, 16))), tmp_path / "m")
    tensors = read_native(tmp_path / "m").tensors
    ranges = mapped_ranges("m/model.safetensors")
    for name, tensor in tensors.items():
        assert any(start <= tensor.data_ptr() < stop for start, stop in ranges), name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_loaded_model_computes_from_the_mapped_file(tmp_path: Path) -> None:
    # Sizes of whole cache lines, else a tensor is copied to be aligned.
    cnn = CharCNNConfig(((1, 16), (3, 16)), embedding_dim=16, n_highway=1)
    files = make(BiLMConfig(cnn, LSTMConfig(32, 16)), softmax=True)
    files.vocabulary = [(f"w{i}", 1) for i in range(16)]
    files.tensors["softmax.weight"] = torch.ones(16, 16)
    files.tensors["softmax.bias"] = torch.ones(16)
    write_native(files, tmp_path / "m")
    model = BiLM.load(tmp_path / "m", softmax=True)
    ranges = mapped_ranges("m/model.safetensors")
    parameters = dict(model.named_parameters())
    assert parameters.keys() == files.tensors.keys()
    for name, parameter in parameters.items():
        assert any(start <= parameter.data_ptr() < stop for start, stop in ranges), name
        assert torch.equal(parameter, files.tensors[name]), name


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_are_aligned_as_in_memory_of_torch(tmp_path: Path, dtype: str) -> None:
    # Else the last bits of vectors would depend on the file that the weights were read from.
    write_native(make(), tmp_path / "m", dtype=dtype)
    for name, tensor in read_native(tmp_path / "m").tensors.items():
        assert tensor.data_ptr() % 64 == 0, name


def test_changing_weights_does_not_change_the_file(tmp_path: Path) -> None:
    files = make()
    write_native(files, tmp_path / "m")
    for tensor in read_native(tmp_path / "m").tensors.values():
        tensor.zero_()
    again = read_native(tmp_path / "m").tensors
    assert all(torch.equal(again[name], tensor) for name, tensor in files.tensors.items())


def test_softmax_is_not_read_unless_asked_for(tmp_path: Path) -> None:
    write_native(make(softmax=True), tmp_path / "m")
    # Not even looked at: a missing vocabulary does not matter then.
    (tmp_path / "m" / "vocabulary.txt").unlink()
    files = read_native(tmp_path / "m")
    assert not files.has_softmax and files.vocabulary is None
    with pytest.raises(ElmoError, match=r"E023.*vocabulary\.txt"):
        read_native(tmp_path / "m", softmax=True)


def test_readable_by_others_as_the_umask_says(tmp_path: Path) -> None:
    write_native(make(), tmp_path / "m")
    modes = {path.stat().st_mode for path in (tmp_path / "m").iterdir()}
    assert len(modes) == 1


# -- narrow types -----------------------------------------------------------------------------


def test_float16_on_disk_is_float32_in_memory(tmp_path: Path) -> None:
    files = make(softmax=True)
    write_native(files, tmp_path / "m", dtype="float16")
    stored = load_file(tmp_path / "m" / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16}
    read = read_native(tmp_path / "m", softmax=True).tensors
    for name, tensor in files.tensors.items():
        assert read[name].dtype == torch.float32
        assert torch.equal(read[name], tensor.half().float())


def test_int8_softmax(tmp_path: Path) -> None:
    files = make(softmax=True)
    weight = files.tensors["softmax.weight"]
    weight[0] = 0
    weight[1] *= 1000
    write_native(files, tmp_path / "m", dtype="float16", softmax_dtype="int8")
    stored = load_file(tmp_path / "m" / "model.safetensors")
    assert stored["softmax.weight"].dtype == torch.int8
    assert stored["softmax.weight_scale"].shape == (len(VOCABULARY),)
    assert stored["forward_lstm.0.bias"].dtype == torch.float16
    read = read_native(tmp_path / "m", softmax=True).tensors
    assert "softmax.weight_scale" not in read
    # Half a step of each row, whatever the size of its weights.
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((read["softmax.weight"] - weight).abs() <= step / 2 * 1.001).all()
    assert torch.equal(read["softmax.bias"], files.tensors["softmax.bias"])
    assert set(read_native(tmp_path / "m").tensors) == set(expected_shapes(SMALL))


def test_values_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    files = make()
    files.tensors["forward_lstm.1.bias"][3] = 1e6
    with pytest.raises(ElmoError, match=r"E036.*forward_lstm\.1\.bias has values up to 1e\+06"):
        write_native(files, tmp_path / "m", dtype="float16")


@pytest.mark.parametrize("name", ["dtype", "softmax_dtype"])
def test_unknown_types_are_refused(tmp_path: Path, name: str) -> None:
    choice: Dict[str, Any] = {name: "float8"}
    with pytest.raises(ElmoError, match=f"E035.*{name} is 'float8'.*float16"):
        write_native(make(), tmp_path / "m", **choice)


# -- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_truncated_weights(tmp_path: Path, keep: float) -> None:
    write_native(make(), tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ElmoError, match=r"E023.*model\.safetensors"):
        read_model(tmp_path / "m")


def damaged(path: Path, **changes: Any) -> None:
    """Rewrite the weights with some tensors replaced, or removed where None."""
    tensors = load_file(path / "model.safetensors")
    for name, tensor in changes.items():
        name = name.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize(
    "changes, shown",
    [
        (
            {"forward_lstm__0__bias": torch.ones(25)},
            r"wrong: forward_lstm.0.bias is \(25,\), expected \(24,\)",
        ),
        ({"backward_lstm__1__bias": None}, r"missing: backward_lstm.1.bias \(24,\)"),
        ({"bert__pooler": torch.ones(2, 3)}, r"unexpected: bert.pooler \(2, 3\)"),
        (
            {"forward_lstm__0__bias": torch.ones(24, dtype=torch.int32)},
            "forward_lstm.0.bias has type I32, expected F32",
        ),
        ({"softmax__weight": torch.ones(6, 5)}, r"softmax.weight is \(6, 5\), expected \(6, 4\)"),
        ({"softmax__bias": None}, r"missing: softmax.bias \(6,\)"),
    ],
)
def test_mismatching_weights_are_listed(
    tmp_path: Path, changes: Dict[str, Any], shown: str
) -> None:
    write_native(make(softmax=True), tmp_path / "m")
    damaged(tmp_path / "m", **changes)
    # Also if the softmax is not asked for: the file is not what it claims to be.
    with pytest.raises(ElmoError, match=rf"E024.*model\.safetensors.*{shown}"):
        read_model(tmp_path / "m")


def test_foreign_safetensors_give_a_short_list(tmp_path: Path) -> None:
    write_native(make(), tmp_path / "m")
    many = {f"layer.{i}.weight": torch.ones(2) for i in range(300)}
    save_file(many, tmp_path / "m" / "model.safetensors")
    with pytest.raises(ElmoError, match="E024.*missing: .*unexpected: .*and 288 more") as caught:
        read_model(tmp_path / "m")
    assert len(str(caught.value)) < 2500


def test_newer_version(tmp_path: Path) -> None:
    write_native(make(), tmp_path / "m")
    edit(tmp_path / "m", format_version=2)
    with pytest.raises(ElmoError, match=r"E027.*version 2.*reads version 1"):
        read_model(tmp_path / "m")


def edit(path: Path, **values: Any) -> None:
    data = json.loads((path / "config.json").read_text(encoding="utf-8"))
    data.update(values)
    (path / "config.json").write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize(
    "values, code, shown",
    [
        ({"format": None}, "E025", "'format' is None"),
        ({"lstm": {"cell_dim": "six", "projection_dim": 4}}, "E025", "str"),
        ({"lstm": {"cell_dim": 6, "projection_dim": 4, "peepholes": 1}}, "E010", "peepholes"),
        ({"char_cnn": {"filters": 3}}, "E025", "int"),
        ({"initial_state": "random"}, "E010", "random"),
    ],
)
def test_wrong_configurations(
    tmp_path: Path, values: Dict[str, Any], code: str, shown: str
) -> None:
    write_native(make(), tmp_path / "m")
    edit(tmp_path / "m", **values)
    with pytest.raises(ElmoError, match=f"{code}.*{shown}"):
        read_model(tmp_path / "m")


def test_vocabulary_must_have_a_word_for_every_row(tmp_path: Path) -> None:
    write_native(make(softmax=True), tmp_path / "m")
    path = tmp_path / "m" / "vocabulary.txt"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[1:]))
    with pytest.raises(ElmoError, match="E038.*6 rows for the 5 words"):
        read_native(tmp_path / "m", softmax=True)
    path.write_bytes(b"\n".join([lines[0], b"no count", *lines[2:]]))
    with pytest.raises(ElmoError, match="E032.*line 2.*'no count'.*word<TAB>count"):
        read_native(tmp_path / "m", softmax=True)
    files = make(softmax=True)
    files.vocabulary = None
    with pytest.raises(ElmoError, match=r"E038.*\(6, 4\).*0 words"):
        write_native(files, tmp_path / "other")


def test_the_vocabulary_of_a_run_may_stand_in_for_the_models_own(tmp_path: Path) -> None:
    """It escapes nothing, which shows wherever a backslash begins no escape."""
    words = ["<S>", "C:\\temp", "\\", "\\\\", "a\\b", "x"]
    files = make(softmax=True)
    files.vocabulary = [(word, 1) for word in words]
    write_native(files, tmp_path / "m")
    assert read_native(tmp_path / "m", softmax=True).vocabulary == files.vocabulary
    text = "".join(f"{word}\t1\n" for word in words)
    (tmp_path / "m" / "vocabulary.txt").write_bytes(text.encode())
    assert read_native(tmp_path / "m", softmax=True).vocabulary == files.vocabulary


def test_incomplete_models_are_not_written(tmp_path: Path) -> None:
    files = make()
    del files.tensors["forward_lstm.1.input_weight"]
    with pytest.raises(ElmoError, match=r"E024.*missing: forward_lstm\.1\.input_weight \(24, 4\)"):
        write_native(files, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "characters, problem",
    [
        ({"a": 0}, "it has no <bos>.*it has no <eow>"),
        ({**{c: i for i, c in enumerate(CHARACTERS)}, "z": 99}, r"beyond the 11 rows.*'z' \(99\)"),
        (None, "it has no <bos>"),
    ],
)
def test_dictionaries_must_fit(tmp_path: Path, characters: Any, problem: str) -> None:
    cnn = CharCNNConfig(((1, 3),), 3, unit="codepoint", n_characters=len(CHARACTERS))
    files = make(BiLMConfig(cnn, LSTMConfig(6, 4)))
    files.characters = characters
    with pytest.raises(ElmoError, match=f"E033.*{problem}"):
        write_native(files, tmp_path / "m")


def test_numpy_sees_the_weights(tmp_path: Path) -> None:
    files = make()
    write_native(files, tmp_path / "m")
    array = read_native(tmp_path / "m").tensors["forward_lstm.0.bias"].numpy()
    np.testing.assert_array_equal(array, files.tensors["forward_lstm.0.bias"].numpy())
