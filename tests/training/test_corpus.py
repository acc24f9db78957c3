"""The prepared corpus: exact round trips, totals, atomicity, damage."""

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.errors import ElmoError, ElmoWarning
from spacy_elmo.training.corpus import input_fingerprints, open_prepared, prepare
from spacy_elmo.training.corpus_writer import DATA_FILES

from ..util import shared

TOKENS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\x0b\x0c\0"), min_size=1
)


def write(path: Path, sentences: List[List[str]]) -> Path:
    path.write_bytes("".join(" ".join(tokens) + "\n" for tokens in sentences).encode("utf-8"))
    return path


def everything(corpus: Any) -> List[List[str]]:
    return corpus.sentences(np.arange(corpus.n_sentences))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("the cat sat\nit purred .\n\nthe end\n")
    return prepare([path], tmp_path / "out")


@settings(max_examples=50, deadline=None, derandomize=True)
@given(sentences=st.lists(st.lists(TOKENS, min_size=1, max_size=5), min_size=1, max_size=8))
def test_any_tokens_come_back_exactly(tmp_path_factory, sentences):
    if sentences[0][0].startswith("\ufeff"):  # At the start of a file it is a byte order mark.
        sentences[0].insert(0, "x")
    directory = tmp_path_factory.mktemp("round")
    corpus = prepare([write(directory / "in.txt", sentences)], directory / "out")
    assert everything(corpus) == sentences
    expected: dict = {}
    for token in (token for tokens in sentences for token in tokens):
        expected[token] = expected.get(token, 0) + 1
    assert list(corpus.counts()) == sorted(expected.items(), key=lambda item: (-item[1], item[0]))


def test_totals_lengths_and_documents(corpus):
    assert (len(corpus), corpus.n_tokens, corpus.n_types) == (3, 8, 7)
    assert corpus.manifest["n_documents"] == 2
    assert corpus.lengths.tolist() == [3, 3, 2] and corpus.lengths.dtype == np.uint16
    assert corpus.starts_document(np.array([2, 1, 0])).tolist() == [True, False, True]
    assert corpus.sentences(np.array([2, 0, 2])) == [
        ["the", "end"],
        ["the", "cat", "sat"],
        ["the", "end"],
    ]
    assert corpus.sentences(np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_out_of_range_raise(corpus, index):
    with pytest.raises(IndexError):
        corpus.sentences(np.array([index]))
    with pytest.raises(IndexError):
        corpus.starts_document(np.array([index]))


def test_many_sentences_over_several_chunks(tmp_path):
    sentences = [[f"w{i % 97}", str(i)] * (i % 3 + 1) for i in range(5000)]
    progress: List[Any] = []
    path = write(tmp_path / "in.txt", sentences)
    corpus = prepare([path], tmp_path / "out", progress=lambda *totals: progress.append(totals))
    assert everything(corpus) == sentences
    assert corpus.lengths.tolist() == [len(tokens) for tokens in sentences]
    assert progress[-1] == (5000, corpus.n_tokens)


def test_long_sentences_are_cut_evenly_and_counted(tmp_path):
    words = [str(i) for i in range(9)]
    path = write(tmp_path / "in.txt", [words, ["x"] * 4])
    with pytest.warns(ElmoWarning, match="ELMO-W012.* 50.0 %"):
        corpus = prepare([path], tmp_path / "out", max_sentence_length=4)
    assert everything(corpus) == [words[:3], words[3:6], words[6:], ["x"] * 4]
    assert corpus.starts_document(np.arange(4)).tolist() == [True, False, False, False]
    assert corpus.manifest["n_cut_sentences"] == 1
    assert corpus.manifest["n_input_sentences"] == 2


def test_counts_do_not_depend_on_the_order_of_the_text(tmp_path):
    sentences = [[f"w{i % 7}", f"v{i % 5}"] for i in range(60)]
    first = prepare([write(tmp_path / "a.txt", sentences)], tmp_path / "a")
    random.Random(0).shuffle(sentences)
    second = prepare([write(tmp_path / "b.txt", sentences)], tmp_path / "b")
    assert list(first.counts()) == list(second.counts())
    assert first.fingerprint != second.fingerprint


def test_rare_types_are_dropped_when_there_are_too_many(tmp_path):
    sentences = [["often", "often", f"once{i}"] for i in range(100)]
    path = write(tmp_path / "in.txt", sentences)
    with pytest.warns(ElmoWarning, match="ELMO-W011"):
        corpus = prepare([path], tmp_path / "out", max_types=10)
    assert corpus.n_types <= 10 and next(corpus.counts()) == ("often", 200)
    assert corpus.manifest["n_pruned_types"] + corpus.n_types == 101
    assert everything(corpus) == sentences


def test_dropping_goes_on_until_the_table_is_smaller(tmp_path):
    # No type is ever seen once only, so that dropping singletons alone would never free a place.
    path = write(tmp_path / "in.txt", [[f"w{i}"] * 2 for i in range(50)])
    with pytest.warns(ElmoWarning, match="ELMO-W011"):
        corpus = prepare([path], tmp_path / "out", max_types=8)
    assert 0 < corpus.n_types <= 8


def test_a_failing_run_leaves_nothing(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n" * 5000 + b"\xff\n")
    with pytest.raises(ElmoError, match="line 5001"):
        prepare([bad], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(ElmoError, match="ELMO-E075.*manifest"):
        open_prepared(tmp_path / "out")


def test_a_failing_run_keeps_the_corpus_that_was_there(corpus, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff")
    with pytest.raises(ElmoError):
        prepare([bad], corpus.directory)
    again = open_prepared(corpus.directory)
    again.verify()
    assert everything(again) == everything(corpus)


def test_a_run_that_dies_while_replacing_files_leaves_no_mixed_corpus(
    corpus, tmp_path, monkeypatch
):
    replace = os.replace

    def die_at_lengths(source, target):
        if Path(target).name == "lengths.bin":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", die_at_lengths)
    with pytest.raises(KeyboardInterrupt):
        prepare([write(tmp_path / "new.txt", [["new"]])], corpus.directory)
    with pytest.raises(ElmoError, match=r"ELMO-E075.*manifest"):
        open_prepared(corpus.directory)


def test_preparing_again_replaces_the_corpus(corpus, tmp_path):
    new = prepare([write(tmp_path / "new.txt", [["new"]])], corpus.directory)
    assert everything(new) == everything(open_prepared(corpus.directory)) == [["new"]]


@pytest.mark.parametrize("name", [*DATA_FILES, "manifest.json"])
def test_missing_and_truncated_files_are_coded_errors(corpus, name):
    path = corpus.directory / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ElmoError, match=f"ELMO-E075.*{name}"):
        open_prepared(corpus.directory)
    path.unlink()
    with pytest.raises(ElmoError, match=f"ELMO-E07[35].*{name}"):
        open_prepared(corpus.directory)


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"format": 99}, "format"),
        ({"n_sentences": 4}, "offsets.bin"),
        ({"n_tokens": 7}, "number of tokens"),
        ({"files": {}}, "sentences.txt"),
    ],
)
def test_a_manifest_that_disagrees_is_a_coded_error(corpus, change, problem):
    path = corpus.directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ElmoError, match=f"ELMO-E075.*{problem}"):
        open_prepared(corpus.directory)


def test_verify_finds_a_changed_byte(corpus):
    path = corpus.directory / "sentences.txt"
    path.write_bytes(path.read_bytes().replace(b"cat", b"cow"))
    with pytest.raises(ElmoError, match=r"ELMO-E075.*sentences\.txt"):
        open_prepared(corpus.directory).verify()


def test_input_fingerprints_follow_content_not_place_or_time(corpus, tmp_path):
    original = tmp_path / "in.txt"
    assert input_fingerprints([original]) == corpus.manifest["inputs"]
    copy = tmp_path / "elsewhere" / "in.txt"
    copy.parent.mkdir()
    copy.write_bytes(original.read_bytes())
    assert input_fingerprints([copy]) == corpus.manifest["inputs"]
    copy.write_bytes(original.read_bytes().replace(b"cat", b"cow"))
    assert input_fingerprints([copy]) != corpus.manifest["inputs"]


@pytest.mark.parametrize(
    "setting", [{"max_sentence_length": 0}, {"max_sentence_length": 65536}, {"max_types": 0}]
)
def test_settings_out_of_range_are_coded_errors(tmp_path, setting):
    path = write(tmp_path / "in.txt", [["a"]])
    with pytest.raises(ElmoError, match=f"ELMO-E074.*{next(iter(setting))}"):
        prepare([path], tmp_path / "out", **setting)
    with pytest.raises(ElmoError, match="ELMO-E074.*folder"):
        prepare([path], path)


def test_settings_are_recorded(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "It works. Really!"}\n')
    corpus = prepare([tmp_path / "in.jsonl"], tmp_path / "out", lang="en", max_sentence_length=9)
    assert everything(corpus) == [["It", "works", "."], ["Really", "!"]]
    recorded = corpus.manifest["settings"]
    assert (recorded["lang"], recorded["max_sentence_length"]) == ("en", 9)


def test_pickling_opens_the_files_again(corpus):
    assert everything(pickle.loads(pickle.dumps(corpus))) == everything(corpus)


def test_a_real_corpus(tmp_path):
    corpus = prepare([shared("corpora", "pretrain", "heldout.txt.xz")], tmp_path / "out")
    assert corpus.n_tokens > 10_000
    assert sum(count for _, count in corpus.counts()) == corpus.n_tokens
    assert sum(map(len, everything(corpus))) == corpus.n_tokens
