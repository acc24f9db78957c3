"""Readers of tagged text: formats, comments, packed files, and lines that are wrong."""

import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest

from spacy_elmo.analysis.tagged_text import find_parts, read_conllu, read_senses
from spacy_elmo.errors import ElmoError

from ..util import shared

TSV = (
    "# sent_id = 1\n1\tRusted\tVBN\tv.stative\t1,2\n2\tout\tRP\t_\t1,2\n3\t#\tSYM\t\t_\n\n\n"
    "1\twith\tIN\tp.??\t_\n2\tcafé\tNN\tn.FOOD\t_\n"
)
CONLLU = (
    "# text = don't go\n1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "2.1\tx\tx\tX\tX\t_\t_\t_\t_\t_\n3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
)


@pytest.mark.parametrize("suffix, opener", [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_senses(suffix: str, opener: Any, tmp_path: Path) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    with opener(path, "wb") as file:
        file.write(TSV.replace("\n", "\r\n").encode("utf-8"))
    first, second = read_senses(path)
    assert first.tokens == ["Rusted", "out", "#"] and first.labels == ["v.stative", None, None]
    assert second.tokens == ["with", "café"] and second.labels == [None, "n.FOOD"]


def test_conllu(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(CONLLU, encoding="utf-8")
    for column, labels in (
        ("upos", ["AUX", "PART", "VERB"]),
        ("xpos", ["VBP", "RB", "VB"]),
        ("deprel", ["aux", "advmod", "root"]),
    ):
        (sentence,) = read_conllu(tmp_path / "a.conllu", column)
        assert sentence.tokens == ["do", "n't", "go"] and sentence.labels == labels


def test_shared_files_have_the_sizes_that_their_pages_say() -> None:
    train = read_senses(shared("corpora", "downstream", "sense_streusle", "train.tsv.xz"))
    assert len(train) == 2723 and sum(len(s.tokens) for s in train) == 44_804
    dev = read_conllu(shared("corpora", "downstream", "ud_english_ewt", "en_ewt-ud-dev.conllu.xz"))
    assert len(dev) == 2001 and sum(len(s.tokens) for s in dev) == 25_147


def test_parts_of_folders(tmp_path: Path) -> None:
    for name in ("train.tsv.xz", "dev.tsv", "streusle.sst.xz", "en_x-ud-test.conllu.gz"):
        (tmp_path / name).touch()
    found = find_parts(tmp_path, ".tsv", ("train", "dev", "test"))
    assert found == {"train": tmp_path / "train.tsv.xz", "dev": tmp_path / "dev.tsv", "test": None}
    path = find_parts(tmp_path, ".conllu", ("test",))["test"]
    assert path == tmp_path / "en_x-ud-test.conllu.gz"
    (tmp_path / "train.tsv").touch()
    with pytest.raises(ElmoError) as caught:
        find_parts(tmp_path, ".tsv", ("train",))
    assert caught.value.code == "ELMO-E022"


@pytest.mark.parametrize(
    "text, code, part",
    [
        ("1\ta\tNN\tn.A\n2\tb\tNN\n", "E146", "line 2: found 3 columns"),
        ("1\t\tNN\tn.A\n", "E146", "an empty token"),
        ("just text\n", "E146", "line 1: found 1 columns"),
        ("1\ta\tNN\t_\n", "E147", "a.tsv"),
        ("", "E147", "a.tsv"),
        (b"1\t\xe9\tNN\tn.A\n", "E064", "line 1"),
    ],
)
def test_mistakes_are_coded(text: Any, code: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ElmoError) as caught:
        read_senses(tmp_path / "a.tsv")
    assert caught.value.code == f"ELMO-{code}" and part in str(caught.value)


def test_mistakes_of_conllu_are_coded(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\ta\ta\tX\n", encoding="utf-8")
    (tmp_path / "b.conllu").write_text(CONLLU, encoding="utf-8")
    for path, column, code in (
        ("a.conllu", "upos", "E146"),
        ("b.conllu", "feats", "E144"),
        ("c.conllu", "upos", "E073"),
    ):
        with pytest.raises(ElmoError) as caught:
            read_conllu(tmp_path / path, column)
        assert caught.value.code == f"ELMO-{code}"
