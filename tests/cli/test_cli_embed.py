"""`elmo embed` as a user runs it."""

import gzip
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.cli import elmo_cli

from ..embedding import corpus
from ..embedding.test_selection import pipeline, scalar_mix


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["embed", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def text(result: Any) -> str:
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def bilm() -> BiLM:
    return corpus.model()


@pytest.fixture
def folder(bilm: BiLM, tmp_path: Path) -> Path:
    """A model and a text."""
    bilm.save(tmp_path / "model")
    corpus.write_lines(tmp_path / "in.txt", corpus.LINES)
    return tmp_path


@pytest.mark.parametrize("kind", ["all", "top", "average"])
def test_what_allennlp_elmo_did(kind: str, folder: Path, bilm: BiLM) -> None:
    result = run(folder / "in.txt", folder / "out.hdf5", f"--{kind}", "--weights", folder / "model")
    assert result.exit_code == 0, result.output
    n_tokens = sum(len(line.split()) for line in corpus.LINES)
    assert f"10 lines, {n_tokens} tokens" in text(result)
    assert "Needs about" in text(result) and "(hdf5, float32, uncompressed)" in text(result)
    with h5py.File(folder / "out.hdf5", "r") as file:
        assert len(file) == 11 and json.loads(file["sentence_to_index"][0])["x"] == "9"
        for number, layers in enumerate(corpus.direct(bilm, corpus.LINES)):
            expected = {"all": layers, "top": layers[-1], "average": layers.mean(0)}[kind]
            np.testing.assert_allclose(file[str(number)][()], expected, atol=1e-5)


def test_options_reach_the_work(folder: Path, bilm: BiLM) -> None:
    raw = corpus.write_lines(folder / "raw.txt", ["She isn't here. He is!", "", "猫"])
    (folder / "raw.txt.gz").write_bytes(gzip.compress(raw.read_bytes()))
    result = run(
        folder / "raw.txt.gz",
        folder / "vectors",
        *("--mix", "0.2,0.5,0.3", "-w", folder / "model", "--initial-state", "primed"),
        *("--lang", "en", "--segmenter", "whole", "--dtype", "float16", "--compress"),
        *("--format", "npz", "--forget-sentences", "--shard", "1/2"),
        *("--batch-size", 3, "--batch-tokens", 50, "--part-tokens", 7),
    )
    assert result.exit_code == 0, result.output
    assert "2 lines of 3" in text(result) and "vectors-00001-of-00002" in text(result)
    with read_embeddings(folder / "vectors-00001-of-00002") as found:
        assert [item.index for item in found] == [0, 2] and found[0].tokens is None
        assert found.manifest["initial_state"] == "primed"
        tokens = ["She", "is", "n't", "here", ".", "He", "is", "!"]
        primed = BiLM.from_files(bilm.to_files(), initial_state="primed")
        expected = np.tensordot([0.2, 0.5, 0.3], primed.embed([tokens])[0], 1)
        assert found[0].vectors.dtype == np.float16
        np.testing.assert_allclose(found[0].vectors, expected, atol=2e-3)


def test_the_mix_of_a_task(folder: Path, bilm: BiLM) -> None:
    nlp = pipeline(bilm, folder / "made", False, "other")
    nlp.to_disk(folder / "nlp")
    # The pipeline brings its biLM along.
    result = run(folder / "in.txt", folder / "out.npz", "--mix", f"{folder / 'nlp'}:other")
    assert result.exit_code == 0, result.output
    mix = scalar_mix(nlp, "other")
    found = read_embeddings(folder / "out.npz")
    for item, layers in zip(found, corpus.direct(bilm, corpus.LINES)):
        np.testing.assert_allclose(item.vectors, mix.predict([layers])[0], atol=1e-5)
    result = run(folder / "in.txt", folder / "out2.npz", "--mix", folder / "nlp")
    assert result.exit_code == 1 and "[ELMO-E132]" in text(result)
    assert "tagger, other" in text(result)


def test_lines_of_tokens_are_taken_whole(folder: Path) -> None:
    arguments = ["--top", "-w", folder / "model"]
    assert run(folder / "in.txt", folder / "a.npz", *arguments).exit_code == 0
    result = run(folder / "in.txt", folder / "b.npz", *arguments, "--segmenter", "whole")
    assert result.exit_code == 0, result.output
    for a, b in zip(read_embeddings(folder / "a.npz"), read_embeddings(folder / "b.npz")):
        assert a.tokens == b.tokens
        np.testing.assert_array_equal(a.vectors, b.vectors)


def test_all_that_takes_long_has_a_bar(folder: Path, capsys: Any) -> None:
    arguments = [folder / "in.txt", folder / "out.npz", "--top", "-w", folder / "model"]
    elmo_cli(["embed", *map(str, arguments)], standalone_mode=False)
    out, err = capsys.readouterr()
    bars = [line.strip() for line in err.split("\r") if line.strip()]
    phases = [line.split(":")[0] for line in bars]
    assert list(dict.fromkeys(phases)) == ["Counting", "Embedding", "Assembling"]
    n_tokens = sum(len(line.split()) for line in corpus.LINES)
    assert any(line.startswith("Embedding: 100%") and str(n_tokens) in line for line in bars)
    assert f"{n_tokens} tokens" in out and not any(phase in out for phase in phases)
    # Nothing is embedded, but the counting takes its time.
    elmo_cli(["embed", *map(str, arguments), "--overwrite", "--dry-run"], standalone_mode=False)
    err = capsys.readouterr().err
    assert "Counting" in err and "Embedding" not in err


def test_a_dry_run(folder: Path) -> None:
    result = run(folder / "in.txt", folder / "o.npz", "--all", "-w", folder / "model", "--dry-run")
    assert result.exit_code == 0 and "Needs about" in text(result)
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "model"]


def test_overwrite(folder: Path) -> None:
    arguments = [folder / "in.txt", folder / "out.npz", "--top", "-w", folder / "model"]
    assert run(*arguments).exit_code == 0
    result = run(*arguments)
    assert result.exit_code == 1 and "[ELMO-E134]" in text(result)
    assert run(*arguments, "--overwrite").exit_code == 0


def test_mistakes_are_one_message(folder: Path) -> None:
    source, output = folder / "in.txt", folder / "out.npz"
    model = ["-w", folder / "model"]
    for arguments, code in (
        ([source, output, *model], "E131"),
        ([source, output, *model, "--all", "--top"], "E131"),
        ([source, output, *model, "--mix", "1,2"], "E132"),
        ([source, output, *model, "--mix", "no-such-pipeline:ner"], "E132"),
        ([source, output, *model, "--all", "--shard", "3/2"], "E133"),
        ([source, folder / "out.xyz", *model, "--all"], "E130"),
        ([folder / "none.txt", output, *model, "--all"], "E060"),
        ([source, output, "-w", folder / "none", "--all"], "E020"),
        ([source, output, *model, "--all", "--lang", "en", "--model", "x"], "E070"),
        ([source, output, *model, "--all", "--dtype", "int8"], "E035"),
        ([source, output, *model, "--all", "--gpu-id", 99], "E081"),
        ([source, source / "out.npz", *model, "--all"], "E039"),
        # Nothing has set the sentences of lines, nor does the tokenizer of a language.
        ([source, output, *model, "--all", "--segmenter", "sents"], "E162"),
        ([source, output, *model, "--all", "--segmenter", "sents", "--lang", "en"], "E100"),
        ([source, output, *model, "--all", "--segmenter", "best"], "E035"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in text(result), code
        assert "Traceback" not in result.output
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "model"]


def test_the_built_in_model_is_the_default(folder: Path) -> None:
    assert run(folder / "in.txt", folder / "out.npz", "--average").exit_code == 0
    with read_embeddings(folder / "out.npz") as found:
        assert found.manifest["model"]["name"] == "en_mini" and found[7].vectors.shape == (1, 256)
