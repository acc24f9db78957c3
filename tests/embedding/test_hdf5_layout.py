"""The HDF5 files, as a program finds them that was written for those of `allennlp elmo`."""

import json
from pathlib import Path
from typing import Any, List

import h5py
import numpy as np
import pytest

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import ElmoError, ElmoWarning

from .corpus import LINES, direct, embed, write_lines


@pytest.mark.parametrize("kind", ["all", "top", "average"])
def test_names_shapes_and_values(kind: str, bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    embed(bilm, source, tmp_path / "out.hdf5", kind).close()
    with h5py.File(tmp_path / "out.hdf5", "r") as file:
        names = set(file)
        assert names == {*map(str, range(len(LINES))), "sentence_to_index"}
        for number, expected in enumerate(direct(bilm, LINES)):
            found = file[str(number)]
            assert found.dtype == np.float32 and found.compression is None
            if kind == "top":
                expected = expected[2]
            elif kind == "average":
                expected = (expected[0] + expected[1] + expected[2]) / 3
            assert found.shape == expected.shape
            np.testing.assert_allclose(found[()], expected, atol=1e-5)
        # The width of an empty line is the model's own, not 1024.
        assert file["0"].shape == ((3, 0, 16) if kind == "all" else (0, 16))


def test_the_map_of_sentences(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    embed(bilm, source, tmp_path / "out.hdf5").close()
    with h5py.File(tmp_path / "out.hdf5", "r") as file:
        dataset = file["sentence_to_index"]
        assert dataset.shape == (1,)
        kind = h5py.check_string_dtype(dataset.dtype)
        assert kind is not None and kind.length is None and kind.encoding == "utf-8"
        found = json.loads(dataset[0])
    # Stripped, not otherwise changed; numbers as text; the last line of duplicates.
    assert found == {line.strip(): str(i) for i, line in enumerate(LINES)}
    assert found["the cat sees a dog ."] == "5" and found["the  cat\tsees a dog ."] == "2"
    assert found["x"] == "9" and found[""] == "8"


def test_sentences_can_be_forgotten(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    found = embed(bilm, source, tmp_path / "out.hdf5", forget_sentences=True)
    assert found[1].tokens is None and found[1].vectors.shape == (3, 6, 16)
    with pytest.raises(ElmoError, match="E138.*sentence_to_index"):
        found["x"]
    with h5py.File(tmp_path / "out.hdf5", "r") as file:
        assert "sentence_to_index" not in file and not file["1"].attrs


def test_compression_and_half_precision(bilm: BiLM, tmp_path: Path) -> None:
    content = LINES + ["the old cat sees the old dog ."] * 40
    source = write_lines(tmp_path / "in.txt", content)
    embed(bilm, source, tmp_path / "plain.hdf5").close()
    embed(bilm, source, tmp_path / "small.hdf5", dtype="float16", compress=True).close()
    with h5py.File(tmp_path / "plain.hdf5") as plain, h5py.File(tmp_path / "small.hdf5") as small:
        for number, line in enumerate(content):
            a, b = plain[str(number)], small[str(number)]
            assert b.dtype == np.float16 and a.shape == b.shape
            assert (b.compression == "gzip") == bool(line.split())
            np.testing.assert_array_equal(a[()].astype(np.float16), b[()])


def write_foreign(path: Path, arrays: List[np.ndarray], name: str = "sentence_to_index") -> None:
    """A file as AllenNLP's command makes it."""
    with h5py.File(path, "w") as file:
        for number, array in enumerate(arrays):
            file.create_dataset(f"{number}", array.shape, dtype="float32", data=array)
        index = file.create_dataset(name, (1,), dtype=h5py.special_dtype(vlen=str))
        index[0] = json.dumps({f"sentence {n}": str(n) for n in range(len(arrays))})


@pytest.mark.parametrize("name", ["sentence_to_index", "sentence_indices"])
def test_files_of_allennlp_are_read(name: str, tmp_path: Path) -> None:
    arrays = [np.full((3, n, 4), n, np.float32) for n in range(1, 13)]
    write_foreign(tmp_path / "a.hdf5", arrays, name)
    found = read_embeddings(tmp_path / "a.hdf5")
    assert len(found) == 12 and [s.vectors.shape[1] for s in found] == list(range(1, 13))
    assert found["sentence 10"].index == 10 and found[10].tokens is None


def test_other_hdf5_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(ElmoError, match="E138.*weights"):
        read_embeddings(tmp_path / "a.hdf5")


def test_a_map_that_is_too_large_is_left_out(bilm: BiLM, tmp_path: Path, monkeypatch: Any) -> None:
    from spacy_elmo.embedding import hdf5

    monkeypatch.setattr(hdf5, "MAP_LIMIT", 50)
    source = write_lines(tmp_path / "in.txt", LINES)
    with pytest.warns(ElmoWarning, match="W131"):
        found = embed(bilm, source, tmp_path / "out.hdf5")
    assert found[1].tokens == LINES[1].split()
    with pytest.raises(ElmoError, match="E138"):
        found["x"]
