"""Which model a path means, and what is said if it means none."""

import io
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Callable, Dict, List

import numpy as np
import pytest
import torch

from spacy_elmo.bilm.config import BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.io import (
    ModelFiles,
    builtin_models,
    detect,
    expected_shapes,
    read_model,
    write_native,
)
from spacy_elmo.errors import ElmoError

from .writers import OPTIONS, bilm_arrays, write_bilm_folder, write_hdf5, write_many_langs_folder


def write_native_folder(folder: Path) -> Path:
    config = BiLMConfig(CharCNNConfig(((1, 3),), 3), LSTMConfig(6, 4))
    tensors = {name: torch.ones(shape) for name, shape in expected_shapes(config).items()}
    write_native(ModelFiles(config, tensors), folder)
    return folder


WRITERS: Dict[str, Callable[[Path], Path]] = {
    "native": write_native_folder,
    "bilm": write_bilm_folder,
    "many-langs": write_many_langs_folder,
}


@pytest.mark.parametrize(
    "options, weights",
    [
        ("options.json", "model.hdf5"),
        ("options.json", "weights.hdf5"),
        ("elmo_2x4096_512_2048cnn_2xhighway_options.json", "elmo_2x4096_512_weights.hdf5"),
        ("options.json", "something_else.HDF5"),
        ("Options.json", "lm_weights.h5"),
    ],
)
def test_names_in_a_bilm_folder(tmp_path: Path, options: str, weights: str) -> None:
    folder = write_bilm_folder(tmp_path / "m", names=(options, weights))
    (folder / "meta.json").write_text("{}")
    (folder / ".hidden_options.json").write_text("{}")
    (folder / "vocab.txt").write_text("the\n")
    for path in (folder, str(folder), folder / options, folder / weights):
        files = read_model(path)
        assert (files.format, files.config.width) == ("bilm", 8)


def test_weights_are_preferred_to_other_hdf5_files(tmp_path: Path) -> None:
    write_bilm_folder(tmp_path, names=("options.json", "lm_weights.hdf5"))
    write_hdf5(tmp_path / "embeddings.hdf5", {"0": np.zeros((3, 2, 4), np.float32)})
    assert read_model(tmp_path).config.width == 8
    write_hdf5(tmp_path / "model.hdf5", bilm_arrays(OPTIONS, seed=5))
    table = read_model(tmp_path).tensors["token_encoder.char_embedding"]
    np.testing.assert_array_equal(table, bilm_arrays(OPTIONS, seed=5)["char_embed"])


def test_two_paths(tmp_path: Path) -> None:
    folder = write_bilm_folder(tmp_path / "a", names=("first.json", "second.bin"))
    assert read_model(folder / "first.json", folder / "second.bin").config.width == 8
    # The folder of the options is enough.
    write_bilm_folder(tmp_path / "b")
    other = tmp_path / "other.hdf5"
    write_hdf5(other, bilm_arrays(OPTIONS, seed=7))
    files = read_model(tmp_path / "b", other)
    np.testing.assert_array_equal(
        files.tensors["token_encoder.char_embedding"], bilm_arrays(OPTIONS, seed=7)["char_embed"]
    )
    with pytest.raises(ElmoError, match=r"E023.*second\.bin cannot be read.*an HDF5 file"):
        read_model(folder / "second.bin", folder / "first.json")


@pytest.mark.parametrize(
    "names, what",
    [
        (("small_options.json", "small_weights.hdf5"), "options: large_options.json, small_opt"),
        (("options.json", "small_weights.hdf5"), "weights: large_weights.hdf5, small_weights"),
    ],
)
def test_several_models_in_a_folder(tmp_path: Path, names: "tuple[str, str]", what: str) -> None:
    write_bilm_folder(tmp_path, names=names)
    write_bilm_folder(tmp_path, names=("large_options.json", "large_weights.hdf5"))
    with pytest.raises(ElmoError, match=f"E022.*{what}"):
        read_model(tmp_path)
    files = read_model(tmp_path / names[0], tmp_path / names[1])
    assert files.config.width == 8


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("part", ["config.json", "model.safetensors", "token_embedder.pkl"])
def test_a_file_of_a_folder_means_the_folder(tmp_path: Path, name: str, part: str) -> None:
    folder = WRITERS[name](tmp_path / "m")
    if (folder / part).exists():
        assert read_model(folder / part).format == name


# -- zip --------------------------------------------------------------------------------------


def pack(folder: Path, target: Path, inside: str = "", extra: Dict[str, bytes] = {}) -> Path:  # noqa: B006
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, inside + path.name)
        for name, data in extra.items():
            archive.writestr(name, data)
    return target


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("inside", ["", "212/", "a/b/"])
def test_zip(tmp_path: Path, name: str, inside: str) -> None:
    folder = WRITERS[name](tmp_path / "m")
    extra = {
        "README": b"hello",
        "other/options.json": b"{}",
        f"__MACOSX/{inside}._options.json": b"x",
        f"__MACOSX/{inside}model.hdf5": b"x",
        f"__MACOSX/{inside}options.json": b"x",
    }
    archive = pack(folder, tmp_path / "model.zip", inside, extra)
    expected = read_model(folder)
    shutil.rmtree(folder)
    before = sorted(os.listdir(tmp_path))
    files = read_model(archive)
    assert files.format == name
    assert files.config == expected.config
    # All in memory: the tensors must outlive the unpacked files.
    assert sum(float(t.sum()) for t in files.tensors.values()) != 0
    assert files.tensors.keys() == expected.tensors.keys()
    assert files.characters == expected.characters
    assert sorted(os.listdir(tmp_path)) == before


def test_zip_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(write_bilm_folder(tmp_path / "m"), tmp_path / "model.zip")
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    read_model(archive)
    broken = write_bilm_folder(tmp_path / "broken")
    (broken / "options.json").write_text("{}")
    with pytest.raises(ElmoError, match="E025"):
        read_model(pack(broken, tmp_path / "broken.zip"))
    assert list(temp.iterdir()) == []


@pytest.mark.parametrize("inside", ["../../evil/", "/abs/evil/", "..\\..\\evil\\", "C:\\evil\\"])
def test_zip_entries_cannot_leave_the_folder(
    tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(write_bilm_folder(tmp_path / "m"), tmp_path / "model.zip", inside)
    shutil.rmtree(tmp_path / "m")
    temp = tmp_path / "x" / "y" / "temp"
    temp.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    # Read all the same: only the bare names count.
    assert read_model(archive).config.width == 8
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [archive]
    assert not Path("/abs/evil").exists()


def test_damaged_zips(tmp_path: Path) -> None:
    archive = pack(write_bilm_folder(tmp_path / "m"), tmp_path / "model.zip")
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    with pytest.raises(ElmoError, match=r"E037.*model\.zip"):
        read_model(archive)
    middle = len(data) // 2
    archive.write_bytes(data[:middle] + bytes(64) + data[middle + 64 :])
    with pytest.raises(ElmoError, match=r"E037.*model\.zip"):
        read_model(archive)
    archive.write_bytes(b"<html></html>")
    with pytest.raises(ElmoError, match=r"E037.*model\.zip"):
        read_model(archive)


def test_zip_without_a_model_lists_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("x")
    with pytest.raises(ElmoError, match=r"E037.*no models.*notes\.txt"):
        read_model(pack(tmp_path / "m", tmp_path / "a.zip"))
    folder = write_bilm_folder(tmp_path / "n")
    extra = {f"b/{p.name}": p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(ElmoError, match="E037.*2 models"):
        read_model(pack(folder, tmp_path / "b.zip", "a/", extra))


# -- nothing there ----------------------------------------------------------------------------


def test_built_in_models_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "BUILTIN_FOLDER", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    write_native_folder(tmp_path / "models" / "xx_tiny")
    write_native_folder(tmp_path / "models" / "en_tiny")
    assert builtin_models() == ["en_tiny", "xx_tiny"]
    # The name means the same wherever the program was started.
    write_bilm_folder(tmp_path / "en_tiny")
    assert read_model("en_tiny").format == "native"
    assert read_model("./en_tiny").format == "bilm"
    assert read_model(Path("en_tiny")).format == "bilm"
    with pytest.raises(ElmoError, match="E020.*'en_tinny'.*en_tiny, xx_tiny"):
        read_model("en_tinny")


def test_missing_paths(tmp_path: Path) -> None:
    folder = write_bilm_folder(tmp_path)
    with pytest.raises(ElmoError, match=r"E020.*nowhere.*looked from"):
        read_model(tmp_path / "nowhere")
    with pytest.raises(ElmoError, match=r"E020.*gone\.hdf5"):
        read_model(folder / "options.json", folder / "gone.hdf5")


@pytest.mark.parametrize(
    "present",
    [[], ["options.json"], ["model.hdf5"], ["config.json", "pytorch_model.bin"], ["encoder.pkl"]],
)
def test_folders_without_a_model(tmp_path: Path, present: List[str]) -> None:
    for name in present:
        (tmp_path / name).write_text("{}")
    found = ", ".join(present) or "no files"
    with pytest.raises(ElmoError, match=rf"E021.*found {found}\. Looked for: .*safetensors") as e:
        read_model(tmp_path)
    for family in ("native", "bilm-tf", "ELMoForManyLangs", "zip"):
        assert family in str(e.value)


def torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(2)}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name, content, code, shown",
    [
        ("model.pt", torch_file(), "E037", "no models"),
        ("model.bin", b"\0\1", "E021", "starts with"),
        ("model.txt", b"", "E021", "empty"),
        ("model.safetensors", b"x", "E021", "found model.safetensors"),
        ("alone.json", json.dumps(OPTIONS).encode(), "E021", "no weights beside it"),
        ("alone.hdf5", b"\x89HDF", "E021", "no options beside it"),
    ],
)
def test_files_that_are_no_model(
    tmp_path: Path, name: str, content: bytes, code: str, shown: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ElmoError, match=f"{code}.*{shown}"):
        read_model(tmp_path / name)


def test_a_model_of_another_library(tmp_path: Path) -> None:
    folder = write_native_folder(tmp_path / "m")
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 768}')
    with pytest.raises(ElmoError, match="E025.*'format' is None, expected 'spacy-elmo'"):
        read_model(folder)
