"""`read_embeddings`: one lazy sequence whatever the format, and plain words when it fails."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spacy_elmo
from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbeddedSentence, EmbedOptions, embed_corpus, parquet
from spacy_elmo.embedding.selection import Selection
from spacy_elmo.embedding.sharding import Shard
from spacy_elmo.errors import ElmoError

from .corpus import LINES, OUTPUTS, embed, lines, write_lines


@pytest.mark.parametrize("name", OUTPUTS)
def test_it_is_a_sequence(name: str, bilm: BiLM, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)
    source = write_lines(tmp_path / "in.txt", lines(30))
    found = embed(bilm, source, tmp_path / name, "top", part_tokens=30)
    assert isinstance(found[3], EmbeddedSentence) and len(found) == 30
    # In any order, from the end, and in slices.
    order = [29, 0, 15, 3, 14, 15]
    assert [found[i].index for i in order] == order
    assert found[-1].index == 29 and found[np.int64(4)].index == 4
    assert [item.index for item in found[25:2:-7]] == [25, 18, 11, 4]
    for wrong in (30, -31):
        with pytest.raises(IndexError):
            found[wrong]
    assert [item.tokens for item in found] == [line.split() for line in lines(30)]
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy[7].vectors, found[7].vectors)
    # What was given is the caller's: it may be changed, and outlives the file.
    mine = found[5].vectors
    mine += 1
    np.testing.assert_array_equal(copy[5].vectors + 1, mine)
    with found, copy:
        assert found.manifest["selection"] == {"kind": "top"} and found.manifest["width"] == 16
    assert np.isfinite(mine).all()


def test_sentences_are_found_by_their_text(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    found = embed(bilm, source, tmp_path / "a.hdf5")
    assert found["the cat sees a dog ."].index == 5 and found[" x\n"].index == 9
    assert "x" in found and "y" not in found
    with pytest.raises(KeyError):
        found["y"]
    other = embed(bilm, source, tmp_path / "a.npz")
    with pytest.raises(ElmoError, match="E138.*by their number"):
        other["x"]


@pytest.mark.parametrize("name", ["out.hdf5", "out.safetensors"])
def test_shards_are_read_as_one(name: str, bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    plans = [
        embed_corpus(bilm, source, tmp_path / name, EmbedOptions(shard=Shard(number, 3)))
        for number in (1, 2, 3)
    ]
    files = [plan.output for plan in plans]
    stem, suffix = name.split(".")
    assert [file.name for file in files] == [f"{stem}-0000{i}-of-00003.{suffix}" for i in (1, 2, 3)]
    for path in (tmp_path / name, tmp_path / f"{stem}-*.{suffix}", files[::-1]):
        with read_embeddings(path) as found:
            assert [item.tokens for item in found] == [line.split() for line in LINES]
    one = read_embeddings(files[1])
    assert [item.index for item in one] == [1, 4, 7]
    if suffix == "hdf5":
        found = read_embeddings(tmp_path / name)
        assert found["the cat sees a dog ."].index == 5 and found["x"].index == 9
        assert one["x"].index == 7
    with pytest.raises(ElmoError, match="E139.*missing: 2"):
        read_embeddings([files[0], files[2]])
    with pytest.raises(ElmoError, match="E139.*twice"):
        read_embeddings([files[0], files[0]])
    options = EmbedOptions(Selection("top"), shard=Shard(2, 3), overwrite=True)
    embed_corpus(bilm, source, tmp_path / name, options)
    with pytest.raises(ElmoError, match="E139.*selection"):
        read_embeddings(tmp_path / name)


def test_what_cannot_be_read(bilm: BiLM, tmp_path: Path) -> None:
    (tmp_path / "text.hdf5").write_text("the cat\n")
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    for name in ("none.hdf5", "text.hdf5", "folder", "other.npz", "none/none.npz", "*.pq"):
        with pytest.raises(ElmoError, match="E138"):
            read_embeddings(tmp_path / name)
    with pytest.raises(ElmoError, match="E138.*empty"):
        read_embeddings([])
    source = write_lines(tmp_path / "in.txt", LINES)
    for name in ("a.hdf5", "a.npz", "a.parquet"):
        embed(bilm, source, tmp_path / name).close()
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(ElmoError, match="E138"):
            read_embeddings(tmp_path / name)
    embed(bilm, source, tmp_path / "a.safetensors").close()
    next((tmp_path / "a.safetensors").glob("*.safetensors")).unlink()
    with pytest.raises(ElmoError, match="E138.*missing"):
        read_embeddings(tmp_path / "a.safetensors")


def test_parquet_of_other_origin(tmp_path: Path) -> None:
    module = pytest.importorskip("pyarrow.parquet")
    module.write_table(pytest.importorskip("pyarrow").table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ElmoError, match="E138.*origin"):
        read_embeddings(tmp_path / "a.parquet")


def test_reading_needs_no_torch(bilm: BiLM, tmp_path: Path) -> None:
    embed(bilm, write_lines(tmp_path / "in.txt", LINES), tmp_path / "a.npz").close()
    code = (
        "import sys, spacy_elmo\n"
        "assert not {'torch', 'numpy', 'h5py'} & set(sys.modules)\n"
        f"assert len(spacy_elmo.read_embeddings({str(tmp_path / 'a.npz')!r})) == {len(LINES)}\n"
        "assert 'torch' not in sys.modules and 'spacy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_the_lazy_name_is_listed() -> None:
    assert "read_embeddings" in dir(spacy_elmo)
    with pytest.raises(AttributeError, match="no attribute 'read_embedding'"):
        spacy_elmo.read_embedding  # noqa: B018


def test_parquet_is_plain_for_other_programs(bilm: BiLM, tmp_path: Path) -> None:
    parquet_module = pytest.importorskip("pyarrow.parquet")
    source = write_lines(tmp_path / "in.txt", LINES)
    found = embed(bilm, source, tmp_path / "a.parquet", compress=True)
    table = parquet_module.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["index", "tokens", "text", "layer_0", "layer_1", "layer_2"]
    for number, row in enumerate(table.to_pylist()):
        assert row["index"] == number and row["tokens"] == LINES[number].split()
        assert row["text"] == LINES[number].strip()
        for layer in range(3):
            vectors = np.array(row[f"layer_{layer}"], np.float32).reshape(-1, 16)
            np.testing.assert_array_equal(vectors, found[number].vectors[layer])
    one = parquet_module.read_table(tmp_path / "a.parquet", columns=["layer_1"])
    assert one.num_rows == len(LINES)
    meta = parquet_module.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    assert {meta.column(i).compression for i in range(meta.num_columns)} == {"ZSTD"}


def test_npz_is_plain_for_numpy(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    found = embed(bilm, source, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        for number in range(len(LINES)):
            np.testing.assert_array_equal(arrays[str(number)], found[number].vectors)


def test_a_folder_of_parquet_files_in_any_order(bilm: BiLM, tmp_path: Path) -> None:
    """As an engine of several workers leaves it."""
    module = pytest.importorskip("pyarrow.parquet")
    source = write_lines(tmp_path / "in.txt", LINES)
    whole = embed(bilm, source, tmp_path / "a.parquet")
    table = module.read_table(tmp_path / "a.parquet")
    (tmp_path / "out").mkdir()
    rows = [[7, 2, 9], [], [0, 5, 4, 1], [8, 3, 6]]
    for number, some in enumerate(rows):
        module.write_table(
            table.take(np.array(some, np.int64)), tmp_path / "out" / f"{number}.parquet"
        )
    manifest = {**whole.manifest, "container": "parquet"}
    (tmp_path / "out" / "index.json").write_text(json.dumps(manifest))
    found = read_embeddings(tmp_path / "out")
    for a, b in zip(found, whole):
        assert a.index == b.index and a.tokens == b.tokens
        np.testing.assert_array_equal(a.vectors, b.vectors)
    assert len(found) == len(LINES)
    (tmp_path / "out" / "2.parquet").unlink()
    with pytest.raises(ElmoError, match="E138.*not those of the items 0 to 9"):
        read_embeddings(tmp_path / "out")
