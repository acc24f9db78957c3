"""`examples/embed_with_ray.py` on a local cluster, as a user runs it."""

import gzip
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import List

import numpy as np

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM

from ..util import ROOT, missing
from .corpus import lines, write_lines

SCRIPT = ROOT / "examples" / "embed_with_ray.py"


def run(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_corpus_of_several_files(bilm: BiLM, tmp_path: Path) -> None:
    if find_spec("ray") is None:
        missing("needs the extra ray: pip install spacy-elmo[ray]")
    bilm.save(tmp_path / "weights")
    content: List[str] = []
    for number, size in enumerate((40, 13, 60)):
        part = lines(size, seed=number)
        content += part
        path = write_lines(tmp_path / f"in-{number}.txt", part)
        if number == 1:
            path.with_name("in-1.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    options = ["--weights", tmp_path / "weights", "--kind", "all", "--batch-size", 2]
    result = run("in-*", "out", *options, "--workers", 2, "--cores", 3, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert f"{len(content)} lines" in result.stdout
    # Many blocks, or nothing would have been divided.
    assert len(list((tmp_path / "out").glob("*.parquet"))) > 3
    found = read_embeddings(tmp_path / "out")
    assert len(found) == len(content) and found.manifest["n_layers"] == 3
    for number, (line, item) in enumerate(zip(content, found)):
        assert item.index == number and item.tokens == line.split()
        np.testing.assert_allclose(item.vectors, bilm.embed([line.split()])[0], atol=1e-5)


def test_the_example_can_be_read_without_ray() -> None:
    result = run("--help", cwd=ROOT)
    assert result.returncode == 0 and "--workers" in result.stdout
