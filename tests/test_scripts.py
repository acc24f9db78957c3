"""The scripts of the spaCy project: data sets, checksums, the synthetic sentences, the report."""

import importlib
import lzma
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import spacy
import srsly
from spacy.tokens import Doc, DocBin
from spacy.training.converters import iob_to_docs
from typer.testing import CliRunner

from spacy_elmo.errors import ElmoError

from .util import ROOT, shared

AMBIGUOUS = ROOT / "assets" / "ambiguous"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a script by name, as Python does for one that is run."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent == ROOT / "scripts":
            del sys.modules[name]


def run(main: Any, *arguments: Any) -> Any:
    import typer

    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def docs_of(path: Path) -> List[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab))


# -- the synthetic set -------------------------------------------------------------------


def test_sentences_are_those_of_the_templates(scripts: Any) -> None:
    for name, text in scripts("make_ambiguous").make().items():
        assert (AMBIGUOUS / name).read_text(encoding="utf-8") == text, name


def test_no_template_and_no_sentence_is_in_two_sets() -> None:
    for pattern in ("templates/*.txt", "ambiguous-*.iob"):
        seen: List[str] = []
        for path in sorted(AMBIGUOUS.glob(pattern)):
            lines = path.read_text(encoding="utf-8").splitlines()
            seen += {line for line in lines if line and not line.startswith(("#", "@"))}
        assert len(seen) > 200 and len(seen) == len(set(seen)), pattern


def test_context_decides() -> None:
    """Names in the test set stood for several kinds of things in training."""
    labels: Any = {"train": {}, "test": {}}
    for split, found in labels.items():
        text = (AMBIGUOUS / f"ambiguous-{split}.iob").read_text(encoding="utf-8")
        for word, _, entity in (token.split("|") for token in text.split()):
            # A noun at the beginning of a sentence and elsewhere is one form.
            found.setdefault(word.lower(), []).append(entity[2:])
    entities = {word: kinds for word, kinds in labels["test"].items() if set(kinds) != {""}}
    ambiguous = [word for word in entities if len(set(labels["train"].get(word, ()))) > 1]
    n_all = sum(len(kinds) for kinds in entities.values())
    assert sum(len(entities[word]) for word in ambiguous) > 0.75 * n_all


def test_spacy_reads_the_synthetic_files(scripts: Any) -> None:
    datasets = scripts("datasets")
    path = AMBIGUOUS / "ambiguous-dev.iob"
    theirs = list(iob_to_docs(path.read_text(encoding="utf-8"), n_sents=1, no_print=True))
    vocab = spacy.blank("en").vocab
    sentences = datasets.read_sentences(path.read_bytes(), path.name)
    ours = [datasets.to_doc(vocab, sentence) for sentence in sentences]
    assert len(ours) == 119

    def facts(docs: List[Doc]) -> Any:
        return [
            ([(t.text, t.tag_) for t in doc], [(e.text, e.label_) for e in doc.ents])
            for doc in docs
            if len(doc)
        ]

    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize(
    "lexicon, template, message",
    [
        ("DET: the\nNOUN: dog", "the cat", "'cat' is not in the lexicon"),
        ("DET: the\nNOUN: cat dog", "the cat", "has words that no template has: dog"),
        ("DET: the\nNOUN: cat\nVERB: cat", "the cat", "'cat' is NOUN and VERB"),
    ],
)
def test_mistakes_in_templates_are_found(
    scripts: Any, lexicon: str, template: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "lexicon.txt").write_text(lexicon)
    for split in ("train", "dev", "test"):
        (tmp_path / "templates" / f"{split}.txt").write_text(template)
    with pytest.raises(SystemExit, match=message):
        scripts("make_ambiguous").make(tmp_path)


# -- data sets and checksums -------------------------------------------------------------

_CONLLU = """# newdoc
# text = We don't # go
1\tWe\twe\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
4\t#\t#\tSYM\tNN\t_\t2\tdep\t_\t_
4.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
"""


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("a.conll", "#tag\tO\nPaul\tB-person\n\n\nHi\tO", [("#tag Paul", "O B-person", "")]),
        (
            "en.iob2",
            "# id\n1\tTampa\tB-LOC\t-\n2\tbay\tI-LOC\t-\n3\tit\tB-OTH\t-\n4\tx\tB-O\t-\n",
            [("Tampa bay it x", "B-LOC I-LOC O O", "")],
        ),
        ("en.conllu", _CONLLU, [("We do n't #", "", "PRP VBP RB NN")]),
        (
            "eng.testa",
            "-DOCSTART- -X- -X- O\n\nUN NNP I-NP I-ORG\nPaul NNP I-NP I-PER\nRome NNP I-NP B-PER\n",
            [("UN Paul Rome", "B-ORG B-PER B-PER", "NNP NNP NNP")],
        ),
    ],
)
def test_formats(scripts: Any, name: str, text: str, expected: Any) -> None:
    sentences = list(scripts("datasets").read_sentences(text.encode("utf-8"), name))
    found = [tuple(" ".join(part) for part in (s.words, s.entities, s.tags)) for s in sentences]
    assert found[: len(expected)] == expected


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("a.conll", "Paul\tO\nMary\n", 2),
        ("a.iob", "Paul|N|O Mary|N\n", 1),
        ("a.conllu", "1\tWe\twe\n", 1),
    ],
)
def test_a_malformed_line_is_named(scripts: Any, name: str, text: str, line: int) -> None:
    with pytest.raises(ElmoError, match=rf"ELMO-E032.*{name}, line {line}:"):
        list(scripts("datasets").read_sentences(text.encode("utf-8"), name))


def test_every_public_file_has_an_address_and_a_checksum(scripts: Any) -> None:
    assets = srsly.read_yaml(ROOT / "project.yml")["assets"]
    by_name = {Path(asset["dest"]).name: asset for asset in assets}
    assert len(by_name) == len(assets)
    for data, tasks in scripts("datasets").DATA_SETS.items():
        # CoNLL-2003 cannot be fetched.
        for name in set() if data == "conll2003" else set(sum(tasks.values(), ())):
            assert len(by_name[name]["checksum"]) == 32
            assert "url" in by_name[name] or data == "ambiguous"
            assert by_name[name]["dest"] == f"assets/{data}/{name}"


def test_converting_checks_every_file(scripts: Any, tmp_path: Path) -> None:
    main = scripts("convert").main
    result = run(main, "ambiguous", ROOT / "assets", tmp_path / "out")
    assert result.exit_code == 0 and "no checksum" not in result.output
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(
        f"{t}-{s}.spacy" for t in ("ner", "tagger") for s in scripts("datasets").SPLITS
    )
    docs = docs_of(tmp_path / "out" / "ner-train.spacy")
    assert len(docs) == 469 and {ent.label_ for doc in docs for ent in doc.ents} == {
        *("PER", "LOC", "ORG", "ANIMAL", "THING")
    }
    # Tokens stay as they are in the file, whatever the tokenizer would make of the text.
    assert all(doc.has_unknown_spaces for doc in docs)
    # One changed letter is noticed, and nothing is written.
    for split in ("train", "dev", "test"):
        data = (AMBIGUOUS / f"ambiguous-{split}.iob").read_bytes()
        data = data.replace(b"Wine", b"Vine") if split == "test" else data
        (tmp_path / f"ambiguous-{split}.iob.xz").write_bytes(lzma.compress(data))
    result = run(main, "ambiguous", tmp_path, tmp_path / "other")
    joined = "".join(result.output.split())
    assert result.exit_code == 1 and "[ELMO-E121]" in joined
    assert "ambiguous-test.iob.xz" in joined and "30d963cc36edf676cb7a94f70bff3f72" in joined
    assert not (tmp_path / "other").exists()


def test_missing_files_and_unknown_sets(scripts: Any, tmp_path: Path) -> None:
    main = scripts("convert").main
    for arguments, code in (
        (["wnut17", tmp_path, tmp_path / "out"], "E120"),
        (["wnut18", tmp_path, tmp_path / "out"], "E122"),
    ):
        result = run(main, *arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output
    assert not (tmp_path / "out").exists()


def test_public_sets_from_a_folder(scripts: Any, tmp_path: Path) -> None:
    source = shared("corpora", "downstream")
    result = run(scripts("convert").main, "wnut17", source, tmp_path / "out")
    assert result.exit_code == 0 and "no checksum" not in result.output
    for split, sentences, entities in (("train", 3394, 1975), ("dev", 1009, 836)):
        docs = docs_of(tmp_path / "out" / f"ner-{split}.spacy")
        assert (len(docs), sum(len(doc.ents) for doc in docs)) == (sentences, entities)


def test_checksums_of_ewt(scripts: Any) -> None:
    source = shared("corpora", "downstream")
    datasets, checksums = scripts("datasets"), scripts("checksums")
    known = checksums.load_checksums(ROOT / "project.yml")
    for name in sum(datasets.files_of("ewt").values(), ()):
        path = datasets.find(name, source)
        assert checksums.verify(name, path, datasets.read_bytes(path), known)


# -- the report --------------------------------------------------------------------------


def test_report_sets_the_models_of_a_task_side_by_side(scripts: Any, tmp_path: Path) -> None:
    for name, task, elmo, key, score in (
        ("ner", "ner", True, "ents_f", 0.6),
        ("ner_cnn", "ner", False, "ents_f", 0.55),
        ("tagger", "tagger", True, "tag_acc", 0.9),
    ):
        scores = {key: score, "speed": 1234.5}
        facts = {"task": task, "elmo": elmo, "steps": 10, "seconds": 61.7, "scores": scores}
        srsly.write_json(tmp_path / f"{name}.json", facts)
    (tmp_path / "mixes.png").write_bytes(b"")
    result = run(scripts("report").main, tmp_path)
    rows = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "NER, F own embedding 55.0 62 s 1,234" in rows
    assert "NER, F own embedding + ELMo 60.0 +5.0 62 s 1,234" in rows
    assert "tagging, accuracy own embedding + ELMo 90.0 62 s 1,234" in rows
    assert "mixes.png" in result.output
