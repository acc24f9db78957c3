"""The annotated sets of `tasks.py`: where they are, and how they become spaCy's binary format."""

import hashlib
import lzma
import os
import random
from pathlib import Path
from typing import Dict, Iterable, NamedTuple

from spacy.tokens import Doc, DocBin
from spacy.training.converters import conll_ner_to_docs, conllu_to_docs

PARTS = ("train", "dev", "test")


class Task(NamedTuple):
    """A set, the head that is trained on it, and what is reported.

    title (str): Row of the table.
    folder (str): Folder of the set.
    file (str): Name of a part's file, with or without ".xz".
    head (str): "ner" or "tagger": picks the configs.
    score (str): spaCy's name of the score.
    steps (int): Step budget.
    keep_empty (float): Share of the training sentences without entities that is kept, for both
        encoders. Where these are most of the sentences, a tagger that learns from all of them
        finds few entities.
    """

    title: str
    folder: str
    file: str
    head: str
    score: str
    steps: int
    keep_empty: float = 1.0


TASKS = {
    "wnut17": Task("NER, WNUT-17, F", "ner_wnut17", "{}.iob", "ner", "ents_f", 600, 0.25),
    "uner": Task("NER, UNER EWT, F", "ner_uner_ewt", "{}.iob", "ner", "ents_f", 1000),
    "ewt": Task(
        "tagger, UD EWT (XPOS), accuracy",
        "ud_english_ewt",
        "en_ewt-ud-{}.conllu",
        "tagger",
        "tag_acc",
        600,
    ),
}


class DataMissing(Exception):
    """A file of a set is not where it should be."""


def prepare(task: Task, source: Path, target: Path) -> Dict[str, Path]:
    """Convert a set, one sentence a doc, unless that was done before.

    source (Path): Folder that holds the sets' folders.
    target (Path): Gets a folder named after the content of the files and `keep_empty`.
    RETURNS (Dict[str, Path]): Binary file of each part.
    """
    files = {part: _find(source / task.folder, task.file.format(part)) for part in PARTS}
    digest = hashlib.sha256(str(task.keep_empty).encode())
    for part in PARTS:
        digest.update(files[part].read_bytes())
    folder = target / f"{task.folder}-{digest.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"{part}.spacy" for part in PARTS}
    for part in PARTS:
        if not paths[part].exists():
            unfinished = folder / f"{part}.tmp.spacy"
            docs = list(read_docs(files[part]))
            if part == "train":
                draw = random.Random(0).random
                docs = [doc for doc in docs if doc.ents or draw() < task.keep_empty]
            DocBin(docs=docs, store_user_data=False).to_disk(unfinished)
            os.replace(unfinished, paths[part])
    return paths


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.xz"):
        if path.exists():
            return path
    raise DataMissing(f"neither {name} nor {name}.xz in {folder}")


def read_docs(path: Path) -> Iterable[Doc]:
    """Docs of a CoNLL-U (.conllu) or IOB file, possibly with .xz, one sentence each."""
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
    # One sentence a doc, which is spaCy's own default for both formats.
    convert = conllu_to_docs if ".conllu" in path.name else conll_ner_to_docs
    return convert(text, n_sents=1, no_print=True)
