"""Reading training files: formats, encodings, and what is reported about bad files."""

import gzip
import itertools
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import pytest

from spacy_elmo.errors import ElmoError
from spacy_elmo.training.readers import Sentence, expand_inputs, read_documents

from ..util import ROOT

TEXT = "Der Bär schläft .\nJa !\n\n日本 語\n"
SENTENCES = [
    Sentence(["Der", "Bär", "schläft", "."], True),
    Sentence(["Ja", "!"], False),
    Sentence(["日本", "語"], True),
]


def write(path: Path, data: Any) -> Path:
    data = data.encode("utf-8") if isinstance(data, str) else data
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path


def jsonl(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def tokens(path: Path, **settings: Any) -> List[List[str]]:
    return [sentence.tokens for sentence in read_documents([path], **settings)]


def error(code: str, path: Path, **settings: Any) -> str:
    with pytest.raises(ElmoError) as caught:
        list(read_documents([path], **settings))
    assert caught.value.code == f"ELMO-{code}"
    return str(caught.value)


# Text


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz", "news-00001-of-00100", "A.TXT"])
def test_text_is_a_sentence_a_line_and_blank_lines_part_documents(tmp_path, name):
    assert list(read_documents([write(tmp_path / name, TEXT)])) == SENTENCES


def test_bom_and_windows_line_ends_leave_no_trace(tmp_path):
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert list(read_documents([path])) == SENTENCES


def test_a_bom_elsewhere_is_part_of_a_token(tmp_path):
    assert tokens(write(tmp_path / "a.txt", "a\n\ufeffb\n")) == [["a"], ["\ufeffb"]]


def test_every_file_begins_a_document(tmp_path):
    paths = [write(tmp_path / name, "a b\nc\n") for name in ("1.txt", "2.txt")]
    assert [s.starts_document for s in read_documents(paths)] == [True, False, True, False]


def test_text_is_split_at_ascii_whitespace_only(tmp_path):
    path = write(tmp_path / "a.txt", " 10\u00a0000 \t \u2028 \x1c\u0085 x\u3000\n")
    assert tokens(path) == [["10\u00a0000", "\u2028", "\x1c\u0085", "x\u3000"]]


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path / "a.txt", b"good line\n" * 3 + b"\xff\n")
    stream = read_documents([path, tmp_path / "not-there.txt"])
    assert [s.tokens for s in itertools.islice(stream, 3)] == [["good", "line"]] * 3
    with pytest.raises(ElmoError, match="ELMO-E064"):
        next(stream)


def test_wrong_encoding_is_reported_with_file_line_and_byte(tmp_path):
    path = write(tmp_path / "a.txt", "gut\n  der B\u00e4r\n".encode("latin-1"))
    message = error("E064", path)
    assert f"{path}, line 2" in message and "byte 8 " in message and "0xe4" in message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_reported(tmp_path, encoding):
    message = error("E065", write(tmp_path / "a.txt", TEXT.encode(encoding)))
    assert "line 1" in message and "UTF-16" in message


@pytest.mark.parametrize("content", ["", "\n \n\t\n", "\ufeff"])
def test_a_file_without_tokens_is_named(tmp_path, content):
    good, empty = write(tmp_path / "good.txt", "a\n"), write(tmp_path / "empty.txt", content)
    with pytest.raises(ElmoError, match="ELMO-E067.*empty.txt"):
        list(read_documents([good, empty]))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_truncated_and_foreign_compressed_files_are_named(tmp_path, suffix):
    text = "".join(f"word{i} {i * i}\n" for i in range(5000))
    path = write(tmp_path / f"a.txt{suffix}", text)
    path.write_bytes(path.read_bytes()[:-200])
    assert str(path) in error("E066", path)
    path.write_text("no compressed data\n")
    assert str(path) in error("E066", path)


def test_text_without_line_ends_is_reported(tmp_path):
    path = write(tmp_path / "a.txt", "ok\n" + "many words " * 100_000)
    message = error("E072", path)
    assert "line 2" in message and "200,000 tokens" in message
    # One long token is odd, but no sign of a wrong format.
    assert len(tokens(write(tmp_path / "b.txt", "x" * 1_100_000))[0]) == 1


def test_a_giant_line_is_given_up_before_it_is_read_whole(tmp_path):
    path = write(tmp_path / "a.txt.gz", b"x" * (2**24 + 1))
    assert "16,777,216 bytes" in error("E072", path)


def test_locale_does_not_matter(tmp_path):
    write(tmp_path / "ä.txt", TEXT)
    code = (
        "import sys\nfrom spacy_elmo.training.readers import expand_inputs, read_documents\n"
        "for s in read_documents(expand_inputs([sys.argv[1]])): print(ascii(s.tokens))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", code, str(tmp_path / "*.txt")]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == [ascii(s.tokens) for s in SENTENCES]


def test_text_is_read_without_spacy(tmp_path):
    path = write(tmp_path / "a.txt", TEXT)
    code = (
        "import sys\nfrom spacy_elmo.training import corpus, vocabulary\n"
        "corpus.prepare([sys.argv[1]], sys.argv[2])\nassert 'spacy' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "out")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


# Inputs


def test_globs_are_sorted_and_files_kept_once(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "x\n")
    inputs = [tmp_path / "b.txt", str(tmp_path / "**/*.txt"), tmp_path / "sub/../a.txt"]
    found = [path.relative_to(tmp_path).as_posix() for path in expand_inputs(inputs)]
    assert found == ["b.txt", "a.txt", "sub/c.txt"]


def test_an_existing_name_with_glob_characters_is_literal(tmp_path):
    path = write(tmp_path / "a[1].txt", "x\n")
    assert expand_inputs([path]) == [path]


@pytest.mark.parametrize(
    "name, code",
    [
        ("*.none", "E060"),
        ("missing.txt", "E060"),
        ("", "E061"),
        ("a.json", "E062"),
        ("a.zip", "E062"),
        ("a.spacy.gz", "E062"),
    ],
)
def test_unusable_inputs_are_coded_errors(tmp_path, name, code):
    for file in ("a.json", "a.zip", "a.spacy.gz"):
        write(tmp_path / file, "{}")
    with pytest.raises(ElmoError, match=f"ELMO-{code}"):
        expand_inputs([str(tmp_path / name)])


def test_no_input_and_pipes_are_coded_errors(tmp_path):
    with pytest.raises(ElmoError, match="ELMO-E063"):
        expand_inputs([])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ElmoError, match="ELMO-E062"):
        expand_inputs([tmp_path / "pipe"])


def test_a_file_that_vanished_is_named(tmp_path):
    assert "gone.txt" in error("E073", tmp_path / "gone.txt")


# JSONL


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_jsonl_text_is_tokenised_and_split(tmp_path, suffix):
    path = jsonl(
        tmp_path / f"a.jsonl{suffix}",
        {"text": "I don't know. 10\u00a0km  away!"},
        {"text": "A heading\n\nMore\ntext", "meta": 1},
        {"text": "  "},
    )
    assert list(read_documents([path], lang="en")) == [
        Sentence(["I", "do", "n't", "know", "."], True),
        Sentence(["10", "km", "away", "!"], False),
        Sentence(["A", "heading"], True),
        Sentence(["More", "text"], False),
    ]


def test_jsonl_records_keep_their_order_over_batches(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *({"text": f"Text {i} ."} for i in range(150)))
    assert [s[1] for s in tokens(path, lang="en")] == [str(i) for i in range(150)]


def test_a_model_gives_its_own_boundaries(tmp_path):
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer", config={"punct_chars": [";"]})
    nlp.to_disk(tmp_path / "model")
    path = jsonl(tmp_path / "a.jsonl", {"text": "a. b; c"}, {"tokens": ["d", ";", "e f"]})
    found = tokens(path, model=str(tmp_path / "model"))
    assert found == [["a.", "b", ";"], ["c"], ["d", ";"], ["e\u00a0f"]]


def test_a_component_of_the_users_own_may_set_boundaries_from_other_annotation(tmp_path):
    import spacy
    from spacy.language import Language

    @Language.component("spacy_elmo_test_split_at_entities")
    def split(doc):
        for token in doc:
            token.is_sent_start = token.ent_iob_ == "B"
        return doc

    nlp = spacy.blank("en")
    ruler: Any = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "X", "pattern": "b"}])
    nlp.add_pipe("spacy_elmo_test_split_at_entities")
    nlp.to_disk(tmp_path / "model")
    path = jsonl(tmp_path / "a.jsonl", {"text": "a. b c"})
    assert tokens(path, model=str(tmp_path / "model")) == [["a."], ["b", "c"]]


def test_a_model_without_boundaries_is_helped_out(tmp_path):
    import spacy

    spacy.blank("en").to_disk(tmp_path / "model")
    path = jsonl(tmp_path / "a.jsonl", {"text": "One here. Two here."})
    assert len(tokens(path, model=str(tmp_path / "model"))) == 2


def test_jsonl_tokens_need_no_pipeline(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"tokens": ["a", ".", "\n", "b\n c", "\u0000"]})
    assert list(read_documents([path])) == [Sentence(["a", ".", "b\u00a0c"], True)]
    assert tokens(path, lang="en") == [["a", "."], ["b\u00a0c"]]


def test_jsonl_text_without_a_pipeline_names_the_mend(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"tokens": ["a"]}, {"text": "b"})
    message = error("E069", path)
    assert "line 2" in message and "--lang" in message and "--model" in message


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"txt": "a"}', '{"text": 1}', '{"tokens": ["a", 1]}', '{"text": "\\ud800"}'],
)
def test_bad_json_lines_are_reported_with_file_and_line(tmp_path, line):
    path = write(tmp_path / "a.jsonl", f'{{"text": "ok"}}\n\n{line}\n')
    assert f"{path}, line 3" in error("E068", path, lang="en")


def test_jsonl_in_another_encoding_is_reported(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "Bär"}\n'.encode("latin-1"))
    assert "line 1" in error("E064", path, lang="de")


def test_unknown_language_and_model_are_coded_errors(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text": "a"})
    assert "qqq" in error("E070", path, lang="qqq")
    assert "no_such_model" in error("E070", path, model="no_such_model")
    with pytest.raises(ElmoError, match="ELMO-E070"):
        read_documents([path], lang="en", model="en")


def test_a_text_too_long_for_the_model_is_reported(tmp_path):
    import spacy

    spacy.blank("en").to_disk(tmp_path / "model")
    path = jsonl(tmp_path / "a.jsonl", {"text": "a"}, {"text": "a" + " " * 1_000_000})
    assert "line 2" in error("E078", path, model=str(tmp_path / "model"))
    assert len(tokens(path, lang="en")) == 2


# DocBin


def test_docbin_uses_its_boundaries_or_the_sentencizer(tmp_path):
    import spacy
    from spacy.tokens import Doc, DocBin

    vocab = spacy.blank("en").vocab
    annotated = Doc(vocab, words=["a", ".", "b", "c"], sent_starts=[True, False, False, True])
    plain = Doc(vocab, words=["d", ".", " \n", "e\tf", "g\u00a0h"])
    DocBin(docs=[annotated, Doc(vocab), plain]).to_disk(tmp_path / "a.spacy")
    assert list(read_documents([tmp_path / "a.spacy"])) == [
        Sentence(["a", ".", "b"], True),
        Sentence(["c"], False),
        Sentence(["d", "."], True),
        Sentence(["e\u00a0f", "g\u00a0h"], False),
    ]


def test_damaged_docbins_are_coded_errors(tmp_path):
    import spacy
    from spacy.tokens import DocBin

    path = tmp_path / "a.spacy"
    DocBin(docs=[spacy.blank("en")("some words here")]).to_disk(path)
    data = path.read_bytes()
    for damaged in (data[:-20], b"", b"text", data[:30] + b"xx" + data[32:]):
        path.write_bytes(damaged)
        assert str(path) in error("E071", path)
    DocBin().to_disk(path)
    error("E067", path)
