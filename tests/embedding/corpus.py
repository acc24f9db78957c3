"""A small model and a corpus with everything that the peers' commands stumble over."""

from pathlib import Path
from typing import Any, List

import numpy as np

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, embed_corpus
from spacy_elmo.embedding.selection import Selection

from ..training import tiny

#: Blank lines, duplicates, slashes, dots and colons, other scripts, whitespace of all kinds.
LINES = [
    "",
    "the cat sees a dog .",
    "  the  cat\tsees a dog .  ",
    "",
    "and/or : 3.5 % \\ .",
    "the cat sees a dog .",
    "猫 loves\u00a0Straße\u3000!",
    "x",
    "   ",
    "x",
]
OUTPUTS = ("out.hdf5", "out.npz", "out.parquet", "out.safetensors")


def lines(n: int, seed: int = 3) -> List[str]:
    """The lines above among others."""
    return [*LINES, *(" ".join(tokens) for tokens in tiny.sentences(n - len(LINES), seed))]


def write_lines(path: Path, content: List[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in content).encode("utf-8"))
    return path


def model() -> BiLM:
    return tiny.model(tiny.vocabulary(tiny.sentences(100), 40))


def embed(bilm: BiLM, source: Path, output: Path, kind: str = "all", **options: Any) -> Any:
    """Embed, and open the result."""
    embed_corpus(bilm, source, output, EmbedOptions(Selection(kind), **options))
    return read_embeddings(output)


def contents(path: Path) -> Any:
    """Bytes of a file, or of each file of a folder."""
    if path.is_file():
        return path.read_bytes()
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def direct(bilm: BiLM, content: List[str]) -> List[np.ndarray]:
    """Each line for itself."""
    return [bilm.embed([line.split()])[0] for line in content]
