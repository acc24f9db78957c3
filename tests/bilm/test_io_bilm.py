"""options.json + hdf5: what is read, what is written back, and what is refused."""

import copy
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest
import torch

from spacy_elmo.bilm.config import BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.io import (
    ModelFiles,
    expected_shapes,
    read_bilm,
    read_model,
    write_bilm,
    write_model,
)
from spacy_elmo.errors import ElmoError, ElmoWarning

from ..util import shared
from .writers import OPTIONS, bilm_arrays, read_hdf5, write_bilm_folder, write_hdf5


def changed(part: str, **values: Any) -> Dict[str, Any]:
    """The test options with some values replaced, or removed where None."""
    options = copy.deepcopy(OPTIONS)
    for name, value in values.items():
        if value is None:
            options[part].pop(name)
        else:
            options[part][name] = value
    return options


def test_arrays_are_transposed_and_gates_reordered(tmp_path: Path) -> None:
    arrays = bilm_arrays(OPTIONS)
    tensors = read_model(write_bilm_folder(tmp_path, arrays=arrays)).tensors
    p, c = 4, 6
    np.testing.assert_array_equal(tensors["token_encoder.char_embedding"], arrays["char_embed"])
    conv = tensors["token_encoder.conv.1.weight"]
    assert conv[3, 2, 1] == arrays["CNN/W_cnn_1"][0, 1, 2, 3]
    for part, name in (("transform", "transform"), ("gate", "carry")):
        weight = tensors[f"token_encoder.highway.1.{part}.weight"]
        np.testing.assert_array_equal(weight, arrays[f"CNN_high_1/W_{name}"].T)
        np.testing.assert_array_equal(
            tensors[f"token_encoder.highway.1.{part}.bias"], arrays[f"CNN_high_1/b_{name}"]
        )
    projection = tensors["token_encoder.projection.weight"]
    np.testing.assert_array_equal(projection, arrays["CNN_proj/W_proj"].T)
    cell = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"
    kernel, bias = arrays[f"{cell}/W_0"], arrays[f"{cell}/B"]
    in_file = {"input": 0, "candidate": 1, "forget": 2, "output": 3}
    for ours, gate in enumerate(("input", "forget", "output", "candidate")):
        rows, columns = slice(ours * c, (ours + 1) * c), slice(in_file[gate] * c, None)
        for name, half in (("input_weight", kernel[:p]), ("recurrent_weight", kernel[p:])):
            np.testing.assert_array_equal(
                tensors[f"backward_lstm.1.{name}"][rows], half[:, columns][:, :c].T, err_msg=gate
            )
        # The bias of the forget gate is raw, 1.0 is added when it is used.
        np.testing.assert_array_equal(tensors["backward_lstm.1.bias"][rows], bias[columns][:c])
    np.testing.assert_array_equal(
        tensors["backward_lstm.1.projection_weight"], arrays[f"{cell}/W_P_0"].T
    )


def test_options_are_read(tmp_path: Path) -> None:
    config = read_model(write_bilm_folder(tmp_path)).config
    assert config.char_cnn == CharCNNConfig(((1, 2), (2, 5)), 3, 12, 2, "relu")
    assert config.lstm == LSTMConfig(6, 4, 2, 3.0, 3.0, True, 1.0)
    # They were trained on carried states, which zeros are far from.
    assert config.initial_state == "primed"


@pytest.mark.parametrize(
    "part, values, check",
    [
        ("char_cnn", {"n_characters": 261}, lambda c: c.char_cnn.n_characters == 261),
        ("char_cnn", {"n_characters": 262}, lambda c: c.char_cnn.n_characters == 261),
        ("char_cnn", {"n_characters": None}, lambda c: c.char_cnn.n_characters == 261),
        ("char_cnn", {"n_highway": None}, lambda c: c.char_cnn.n_highway == 0),
        ("char_cnn", {"n_highway": 0}, lambda c: c.char_cnn.n_highway == 0),
        ("char_cnn", {"activation": "tanh"}, lambda c: c.char_cnn.activation == "tanh"),
        ("char_cnn", {"max_characters_per_token": 7}, lambda c: c.char_cnn.max_characters == 7),
        ("char_cnn", {"filters": [[1, 4]]}, lambda c: not c.has_cnn_projection),
        ("lstm", {"dim": 4}, lambda c: not c.lstm.has_projection),
        ("lstm", {"use_skip_connections": False}, lambda c: not c.lstm.skip_connections),
        ("lstm", {"use_skip_connections": None}, lambda c: not c.lstm.skip_connections),
        ("lstm", {"cell_clip": None, "proj_clip": None}, lambda c: c.lstm.cell_clip is None),
        ("lstm", {"n_layers": None}, lambda c: c.lstm.n_layers == 1),
        ("lstm", {"n_layers": 3}, lambda c: c.n_layers == 4),
        ("lstm", {"dim": 3}, lambda c: c.lstm.has_projection),
    ],
)
def test_variants_are_read_and_written_back(
    tmp_path: Path, part: str, values: Dict[str, Any], check: Callable[[BiLMConfig], bool]
) -> None:
    options = changed(part, **values)
    options.update({"bidirectional": True, "n_tokens_vocab": 793471, "dropout": 0.1})
    arrays = bilm_arrays(options)
    files = read_model(write_bilm_folder(tmp_path / "in", options, arrays))
    assert check(files.config)
    assert {n: tuple(t.shape) for n, t in files.tensors.items()} == expected_shapes(files.config)
    assert all(t.data_ptr() % 64 == 0 and t.is_contiguous() for t in files.tensors.values())
    write_bilm(files, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "options.json").read_text()) == options
    written = read_hdf5(tmp_path / "out" / "model.hdf5")
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        assert written[name].dtype == np.float32
        np.testing.assert_array_equal(written[name], array, err_msg=name)


def test_projections_between_equal_widths_are_read_if_present(tmp_path: Path) -> None:
    # AllenNLP writes such models; bilm-tf would have left the arrays out.
    options = changed("lstm", dim=4)
    options["char_cnn"]["filters"] = [[1, 4]]
    arrays = bilm_arrays(options)
    arrays["CNN_proj/W_proj"] = np.full((4, 4), 2, np.float32)
    arrays["CNN_proj/b_proj"] = np.ones(4, np.float32)
    for direction in range(2):
        for layer in range(2):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_P_0"
            arrays[name] = np.full((4, 4), 3, np.float32)
    files = read_model(write_bilm_folder(tmp_path / "in", options, arrays))
    assert files.config.has_cnn_projection and files.config.lstm.has_projection
    assert (files.tensors["forward_lstm.1.projection_weight"] == 3).all()
    write_model(files, tmp_path / "native")
    write_model(read_model(tmp_path / "native"), tmp_path / "out", "bilm")
    written = read_hdf5(tmp_path / "out" / "model.hdf5")
    assert all((written[name] == array).all() for name, array in arrays.items())
    assert json.loads((tmp_path / "out" / "options.json").read_text()) == options


def test_changed_models_get_new_options(tmp_path: Path) -> None:
    files = read_model(write_bilm_folder(tmp_path / "in"))
    lstm = LSTMConfig(6, 4, 2, None, 3.0, False)
    files.config = BiLMConfig(files.config.char_cnn, lstm, "zero", files.config.meta)
    write_bilm(files, tmp_path / "out")
    options = json.loads((tmp_path / "out" / "options.json").read_text())
    assert options["lstm"]["use_skip_connections"] is False
    assert "cell_clip" not in options["lstm"]
    assert options["char_cnn"]["n_characters"] == 262
    assert read_model(tmp_path / "out").config.lstm == lstm


def test_public_fixture_is_read() -> None:
    folder = shared("fixtures", "bilm-tiny")
    files = read_model(folder)
    assert (files.format, files.config.width, files.config.n_layers) == ("bilm", 32, 3)
    assert sum(t.numel() for t in files.tensors.values()) == 105_120
    source = read_hdf5(folder / "lm_weights.hdf5")
    np.testing.assert_array_equal(
        files.tensors["token_encoder.conv.2.weight"],
        source["CNN/W_cnn_2"][0].transpose(2, 1, 0),
    )


def test_other_float_types_become_float32(tmp_path: Path) -> None:
    arrays = {name: array.astype(">f8") for name, array in bilm_arrays(OPTIONS).items()}
    files = read_model(write_bilm_folder(tmp_path, arrays=arrays))
    assert {t.dtype for t in files.tensors.values()} == {torch.float32}
    expected = bilm_arrays(OPTIONS)["char_embed"]
    np.testing.assert_array_equal(files.tensors["token_encoder.char_embedding"], expected)


def test_foreign_arrays_are_left_out_with_a_warning(tmp_path: Path) -> None:
    arrays = {**bilm_arrays(OPTIONS), "softmax/W": np.zeros((3, 4), np.float32)}
    folder = write_bilm_folder(tmp_path, arrays=arrays)
    with pytest.warns(ElmoWarning, match=r"ELMO-W001.*softmax/W"):
        assert "softmax.weight" not in read_model(folder).tensors


@pytest.mark.parametrize(
    "damage, code, shown",
    [
        (
            {"CNN/W_cnn_1": (1, 2, 3, 6)},
            "E024",
            r"CNN/W_cnn_1 is \(1, 2, 3, 6\), expected .1, 2, 3, 5",
        ),
        ({"char_embed": (262, 3)}, "E024", r"char_embed is \(262, 3\), expected \(261, 3\)"),
        ({"CNN_proj/W_proj": None}, "E024", r"missing: CNN_proj/W_proj \(7, 4\)"),
        ({"CNN_high_2/W_carry": (7, 7)}, "E024", r"unexpected: CNN_high_2/W_carry \(7, 7\)"),
    ],
)
def test_mismatching_arrays_are_listed(
    tmp_path: Path, damage: Dict[str, Any], code: str, shown: str
) -> None:
    arrays = bilm_arrays(OPTIONS)
    for name, shape in damage.items():
        if shape is None:
            del arrays[name]
        else:
            arrays[name] = np.zeros(shape, np.float32)
    with pytest.raises(ElmoError, match=rf"{code}.*{shown}"):
        read_model(write_bilm_folder(tmp_path, arrays=arrays))


def test_hdf5_of_something_else_lists_both_sides(tmp_path: Path) -> None:
    arrays = {"0": np.zeros((2, 5, 16), np.float32)}
    with pytest.raises(ElmoError, match=r"E024.*missing: char_embed.*unexpected: 0 \(2, 5, 16\)"):
        read_model(write_bilm_folder(tmp_path, arrays=arrays))


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.99])
def test_truncated_hdf5(tmp_path: Path, keep: float) -> None:
    weights = write_bilm_folder(tmp_path) / "model.hdf5"
    data = weights.read_bytes()
    weights.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ElmoError, match=r"E023.*model\.hdf5.*truncated"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    "content, shown",
    [
        (b"<!DOCTYPE html><html>404", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS pointer"),
        (b"PK\x03\x04xxxx", "zip archive"),
    ],
)
def test_foreign_file_is_named(tmp_path: Path, content: bytes, shown: str) -> None:
    (write_bilm_folder(tmp_path) / "model.hdf5").write_bytes(content)
    with pytest.raises(ElmoError, match=f"E023.*{shown}"):
        read_model(tmp_path)


def test_wrong_options_are_all_listed(tmp_path: Path) -> None:
    options = changed("char_cnn", filters="many", activation="gelu", embedding=None)
    options["lstm"].update({"dim": "big", "use_skip_connections": 1})
    with pytest.raises(ElmoError) as caught:
        read_model(write_bilm_folder(tmp_path, options, bilm_arrays(OPTIONS)))
    for problem in (
        "char_cnn.filters is 'many', expected a list of [width, count] pairs",
        "char_cnn.activation is 'gelu', expected one of relu, tanh",
        "char_cnn.embedding is missing",
        "lstm.dim is 'big', expected a whole number",
        "lstm.use_skip_connections is 1, expected true or false",
    ):
        assert problem in str(caught.value)
    assert caught.value.code == "ELMO-E025"


@pytest.mark.parametrize(
    "text, code",
    [
        ("{", "E023"),
        ("[1]", "E023"),
        ('{"lstm": {"dim": 4}}', "E026"),
        ('{"vocab": 3}', "E025"),
        ('{"lstm": {}, "char_cnn": {"n_characters": 256000}}', "E025"),
    ],
)
def test_files_that_are_no_options(tmp_path: Path, text: str, code: str) -> None:
    (write_bilm_folder(tmp_path) / "options.json").write_text(text)
    with pytest.raises(ElmoError, match=code):
        read_model(tmp_path)


def test_options_with_byte_order_mark(tmp_path: Path) -> None:
    path = write_bilm_folder(tmp_path) / "options.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_model(tmp_path).config.width == 8


def model(config: BiLMConfig) -> ModelFiles:
    tensors = {name: torch.ones(shape) for name, shape in expected_shapes(config).items()}
    return ModelFiles(config, tensors)


@pytest.mark.parametrize(
    "config, problem",
    [
        (
            BiLMConfig(
                CharCNNConfig(((1, 4),), unit="codepoint", n_characters=9), LSTMConfig(6, 4)
            ),
            "codepoint",
        ),
        (
            BiLMConfig(CharCNNConfig(((1, 4),), n_words=3, word_dim=2), LSTMConfig(6, 4)),
            "word vectors",
        ),
        (BiLMConfig(CharCNNConfig(((1, 4),)), LSTMConfig(6, 4, forget_bias=0.0)), "forget bias"),
    ],
)
def test_export_refuses_what_the_format_cannot_hold(
    tmp_path: Path, config: BiLMConfig, problem: str
) -> None:
    with pytest.raises(ElmoError, match=rf"E029.*'bilm'.*{problem}"):
        write_bilm(model(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_export_leaves_the_softmax_out_with_a_warning(tmp_path: Path) -> None:
    files = model(BiLMConfig(CharCNNConfig(((1, 4),)), LSTMConfig(6, 4)))
    files.tensors.update({"softmax.weight": torch.ones(2, 4), "softmax.bias": torch.ones(2)})
    files.vocabulary = [("a", 3), ("b", 2)]
    with pytest.warns(ElmoWarning, match="ELMO-W002.*2 words.*'bilm'"):
        write_bilm(files, tmp_path / "out")
    assert not any("softmax" in name for name in read_hdf5(tmp_path / "out" / "model.hdf5"))


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bilm_folder(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ElmoError, match=r"E028.*pip install h5py"):
        read_bilm(folder / "options.json", folder / "model.hdf5")


def test_error_names_the_file(tmp_path: Path) -> None:
    folder = write_bilm_folder(tmp_path, names=("my_options.json", "my_weights.hdf5"))
    write_hdf5(folder / "my_weights.hdf5", {"char_embed": np.zeros((261, 3), np.float32)})
    with pytest.raises(ElmoError, match=re.escape(str(folder / "my_weights.hdf5"))):
        read_model(folder)
