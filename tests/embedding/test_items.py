"""Inputs: token lines, raw text, JSONL and DocBins, aligned with lines, docs and tokens."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest
import spacy
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc, DocBin

from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, embed_corpus
from spacy_elmo.embedding.items import BATCH, count_items, read_items
from spacy_elmo.embedding.tokenizing import Tokenizer
from spacy_elmo.errors import ElmoError

from .corpus import embed, write_lines

RAW = [
    "She isn't here.  He is!  Are they?",
    "",
    "A heading without an end",
    "  Straße 猫  ",
]


def tokens(path: Path, tokenizer: Any = None) -> List[List[str]]:
    return [item.tokens for item in read_items(path, tokenizer)]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lines(suffix: str, tmp_path: Path) -> None:
    data = "a  b\n\n a b \r\nc\u3000d\ne".encode("utf-8")
    path = tmp_path / f"in.txt{suffix}"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](data))
    assert tokens(path) == [["a", "b"], [], ["a", "b"], ["c", "d"], ["e"]]
    assert [item.text for item in read_items(path)] == ["a  b", "", "a b", "c\u3000d", "e"]
    assert count_items(path) == 5


def test_unwanted_lines_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\n\xff\nb\n")
    wanted = [item.index for item in read_items(tmp_path / "in.txt", wanted=lambda i: i != 1)]
    assert wanted == [0, 2]
    with pytest.raises(ElmoError, match="E064.*line 2"):
        tokens(tmp_path / "in.txt")


@pytest.fixture(scope="module")
def nlp(tmp_path_factory: Any, bilm: BiLM) -> Any:
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    bilm.save(folder)
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(folder)})
    return nlp


def test_raw_text_gives_what_the_component_gives(nlp: Any, bilm: BiLM, tmp_path: Path) -> None:
    found = embed(bilm, write_lines(tmp_path / "in.txt", RAW), tmp_path / "a.npz", lang="en")
    assert len(found) == len(RAW)
    for line, item in zip(RAW, found):
        doc = nlp(line.strip())
        assert item.tokens == [token.text for token in doc]
        assert doc._.elmo_layers.shape == item.vectors.shape
        np.testing.assert_allclose(item.vectors, doc._.elmo_layers, atol=1e-5)
    # The two spaces are a token; it is not encoded.
    place = found[0].tokens.index(" ")
    assert not found[0].vectors[:, place].any() and found[0].vectors[:, place - 1].any()


def test_segmenters(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", RAW[:1])
    whole = embed(bilm, source, tmp_path / "a.npz", lang="en", segmenter="whole")[0]
    fed = [i for i, token in enumerate(whole.tokens) if not token.isspace()]
    expected = bilm.embed([[whole.tokens[i] for i in fed]])[0]
    np.testing.assert_allclose(whole.vectors[:, fed], expected, atol=1e-5)
    cut = embed(bilm, source, tmp_path / "b.npz", lang="en")[0]
    assert np.abs(cut.vectors - whole.vectors).max() > 1e-3
    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer", config={"punct_chars": ["!"]})
    pipeline.to_disk(tmp_path / "pipeline")
    own = Tokenizer(model=str(tmp_path / "pipeline"), segmenter="sents")
    (item,) = read_items(source, own)
    assert [[item.tokens[i] for i in s] for s in item.sentences] == [
        ["She", "is", "n't", "here", ".", "He", "is", "!"],
        ["Are", "they", "?"],
    ]
    with pytest.raises(ElmoError, match="E100.*--model"):
        list(read_items(source, Tokenizer("en", segmenter="sents")))


def test_lines_of_tokens_are_a_sentence_whatever_cuts_docs(bilm: BiLM, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.txt", ["She is here . He is !", "", "x"])
    objects = write_lines(tmp_path / "in.jsonl", ['{"tokens": ["She", ".", "He"]}', ""])
    for source in (lines, objects):
        plain = list(read_items(source))
        assert [len(item.sentences) for item in plain][:2] == [1, 0]
        for segmenter in ("punct", "whole"):
            assert list(read_items(source, Tokenizer(segmenter=segmenter))) == plain
        # Before anything is read or made.
        with pytest.raises(ElmoError, match="E162.*--model.*DocBin|E162.*DocBin.*--model"):
            read_items(source, Tokenizer(segmenter="sents"))
    own = list(read_items(objects, Tokenizer("en", segmenter="sents")))
    assert own == list(read_items(objects))
    raw = write_lines(tmp_path / "raw.jsonl", ['{"text": "She is here."}'])
    with pytest.raises(ElmoError, match="E069.*line 1"):
        list(read_items(raw, Tokenizer(segmenter="whole")))


def pipeline_of(path: Path, *components: str) -> str:
    nlp = spacy.blank("en")
    for name in components:
        nlp.add_pipe(name)
    nlp.to_disk(path)
    return str(path)


def test_counting_spares_a_pipeline_that_only_adds_boundaries(
    bilm: BiLM, tmp_path: Path, monkeypatch: Any
) -> None:
    raw = [*RAW, *("She isn't here, is she?  No! " * (i % 4) + str(i) for i in range(200))]
    source = write_lines(tmp_path / "in.txt", raw)
    n_run: List[int] = []
    original = Sentencizer.__call__

    def counted(self: Any, doc: Doc) -> Doc:
        n_run.append(1)
        return original(self, doc)

    monkeypatch.setattr(Sentencizer, "__call__", counted)
    monkeypatch.setattr(
        Sentencizer, "pipe", lambda self, docs, **_: (counted(self, doc) for doc in docs)
    )
    for number, (components, spared) in enumerate(
        (
            (["sentencizer"], True),
            (["tagger", "sentencizer"], True),
            # Changes the tokens, or may: it has to run.
            (["sentencizer", "doc_cleaner"], False),
            (["sentencizer", "merge_entities"], False),
        )
    ):
        model = pipeline_of(tmp_path / str(number), *components)
        tokenizer = Tokenizer(model=model, segmenter="sents")
        expected = [(item.text, item.tokens) for item in read_items(source, tokenizer)]
        assert len(n_run) == len(raw)
        n_run.clear()
        counting = tokenizer.for_counting()
        found = [(item.text, item.tokens) for item in read_items(source, counting)]
        assert found == expected
        # The first texts go through the whole all the same, and tell of one that is broken.
        assert len(n_run) == (BATCH if spared else len(raw))
        n_run.clear()
    options = EmbedOptions(model=str(tmp_path / "0"), segmenter="sents")
    plan = embed_corpus(bilm, source, tmp_path / "a.npz", options)
    assert plan.counts.n_tokens == sum(len(tokens) for _, tokens in expected)
    assert len(n_run) == BATCH + len(raw)


def test_a_pipeline_that_is_of_no_use_is_found_out_before_the_work(
    bilm: BiLM, tmp_path: Path
) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("senter")  # not trained
    nlp.to_disk(tmp_path / "untrained")
    source = write_lines(tmp_path / "in.txt", RAW)
    for model, code in (
        (str(tmp_path / "untrained"), "E079"),
        (pipeline_of(tmp_path / "none"), "E100.*--segmenter punct"),
    ):
        with pytest.raises(ElmoError, match=code):
            embed(bilm, source, tmp_path / "a.npz", model=model, segmenter="sents")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "none", "untrained"]


def test_jsonl(tmp_path: Path) -> None:
    records = [{"text": "She isn't."}, {"tokens": ["a b", " ", "", "c"]}, {"text": ""}]
    lines = [json.dumps(record) for record in records]
    path = write_lines(tmp_path / "in.jsonl", [lines[0], "", *lines[1:]])
    found = list(read_items(path, Tokenizer("en")))
    assert [item.tokens for item in found] == [
        ["She", "is", "n't", "."],
        [],
        ["a b", " ", "", "c"],
        [],
    ]
    # Nothing is dropped, and what is no word is not encoded.
    assert found[2].sentences == [[0, 3]] and [item.index for item in found] == [0, 1, 2, 3]
    with pytest.raises(ElmoError, match="E069.*line 1"):
        list(read_items(path))
    write_lines(path, ['{"tokens": ["a"]}', '{"tokens": [1]}'])
    with pytest.raises(ElmoError, match="E068.*line 2"):
        list(read_items(path))


def test_docbin(bilm: BiLM, tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    docs = [
        Doc(
            nlp.vocab,
            ["She", "is", ".", "\n\n", "He"],
            sent_starts=[True, False, False, False, True],
        ),
        Doc(nlp.vocab),
        Doc(nlp.vocab, ["One", ".", "Two"], sent_starts=[True, False, False]),
    ]
    DocBin(docs=docs).to_disk(tmp_path / "in.spacy")
    found = embed(bilm, tmp_path / "in.spacy", tmp_path / "a.npz")
    assert [item.tokens for item in found] == [[t.text for t in doc] for doc in docs]
    first = bilm.embed([["She", "is", "."], ["He"], ["One", "."], ["Two"], ["One", ".", "Two"]])
    np.testing.assert_allclose(found[0].vectors[:, :3], first[0], atol=1e-5)
    assert not found[0].vectors[:, 3].any()
    np.testing.assert_allclose(found[0].vectors[:, 4:], first[1], atol=1e-5)
    np.testing.assert_allclose(found[2].vectors[:, :2], first[2], atol=1e-5)
    own = embed(bilm, tmp_path / "in.spacy", tmp_path / "b.npz", segmenter="sents")
    np.testing.assert_allclose(own[2].vectors, first[4], atol=1e-5)
    (tmp_path / "bad.spacy").write_bytes(b"nothing")
    with pytest.raises(ElmoError, match="E071"):
        list(read_items(tmp_path / "bad.spacy"))


def test_paths_that_are_no_input(tmp_path: Path) -> None:
    (tmp_path / "in.pdf").write_bytes(b"%PDF")
    for name, code in (("none.txt", "E060"), (".", "E061"), ("in.pdf", "E062")):
        with pytest.raises(ElmoError, match=code):
            read_items(tmp_path / name)
    for options, code in (({"segmenter": "best"}, "E035"), ({"lang": "xyz"}, "E070")):
        with pytest.raises(ElmoError, match=code):
            Tokenizer(**options)
    with pytest.raises(ElmoError, match="E070"):
        Tokenizer("en", "en_core_web_sm")
