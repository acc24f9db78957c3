"""`benchmarks/precision.py` on a set of a few sentences."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import spacy
from spacy.training import Corpus
from spacy.util import fix_random_seed

from spacy_elmo.bilm import BiLM

from ..util import ROOT

MODEL = {
    "@architectures": "spacy.TransitionBasedParser.v2",
    "state_type": "ner",
    "extra_state_tokens": False,
    "hidden_width": 16,
    "maxout_pieces": 2,
    "use_upper": False,
    "tok2vec": {"@architectures": "spacy-elmo.ElmoListener.v1"},
}


@pytest.fixture
def precision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import precision

    return precision


def call(precision: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["precision.py", *map(str, words)])
    precision.main()


@pytest.fixture
def pipeline(precision: ModuleType, data: Path, tmp_path: Path) -> Path:
    """A NER on ELMo, trained for some steps and saved."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    nlp.add_pipe("ner", config={"model": MODEL})
    binary = precision.prepare(precision.HEADS["ner"], data, tmp_path / "binary")["train"]
    examples = list(Corpus(binary)(nlp))
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(15):
        nlp.update(examples, sgd=optimizer)
    nlp.to_disk(tmp_path / "some_ner")
    return tmp_path / "some_ner"


def test_one_pipeline_in_all_precisions(
    precision: ModuleType,
    pipeline: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    page, numbers = tmp_path / "results.md", tmp_path / "numbers.json"
    words = ("--only", "ner", "--ner", pipeline, "--data", data, "--rounds", 1)
    call(precision, monkeypatch, *words, "--output", page, "--json", numbers, "--write")
    text, printed = page.read_text(encoding="utf-8"), capsys.readouterr().out
    before, rest = text.split("<!-- precision:start -->")
    section, behind = rest.split("<!-- precision:end -->")
    assert section.strip() in printed and not behind.strip()
    assert "--ner some_ner" in section and str(tmp_path) not in section
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "NER" in line]
    assert [cells[1] for cells in rows] == ["float32", "float16", "int8"]

    (result,) = json.loads(numbers.read_text(encoding="utf-8"))
    test = precision.prepare(precision.HEADS["ner"], data, tmp_path / "again")["test"]
    nlp = spacy.load(pipeline)
    expected = nlp.evaluate(list(Corpus(test)(nlp)))["ents_f"]
    assert result["scores"]["float32"] == pytest.approx(expected) and expected > 0.5
    assert result["words"] == 14
    # The built-in weights come from float16.
    assert result["exact"] and "float16 holds these weights exactly" in section
    (_, *exact), (_, half, _), (largest, int8, worst) = result["errors"].values()
    assert exact == [0.0, 0.0]
    assert 0 < half < 2e-3 and half < int8 < 5e-2
    assert worst >= int8 and largest > 0
    assert result["changed"]["float32"] == 0
    assert all(rate > 0 for rates in result["speeds"].values() for rate in rates)


def test_a_precision_that_is_not_in_effect_is_noticed(
    precision: ModuleType, pipeline: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--only", "ner", "--ner", pipeline, "--data", data, "--rounds", 1)
    embed = BiLM.embed

    def always_plain(self: BiLM, sentences: Any, **kwargs: Any) -> Any:
        return embed(self, sentences, **{**kwargs, "precision": "float32"})

    with monkeypatch.context() as patch:
        patch.setattr(BiLM, "embed", always_plain)
        with pytest.raises(SystemExit, match="do not differ"):
            call(precision, patch, *words)
    load = spacy.load
    monkeypatch.setattr(spacy, "load", lambda path, **_: load(path))
    with pytest.raises(SystemExit, match="loaded in float32, not in float16"):
        call(precision, monkeypatch, *words)


def test_trains_what_is_not_given(
    precision: ModuleType,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    words = ("--only", "ner", "--data", data, "--rounds", 1, "--steps", 30)
    call(precision, monkeypatch, *words, "--output", tmp_path / "results.md")
    assert not (tmp_path / "results.md").exists(), "written without --write"
    section = capsys.readouterr().out.split("## ")[1]
    assert "--steps 30 --weights en_mini" in section
    (score,) = [line.split(" | ")[2] for line in section.splitlines() if "| float32 |" in line]
    assert float(score) > 50


def test_pipeline_without_elmo(
    precision: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(SystemExit, match="0 'elmo' components"):
        call(precision, monkeypatch, "--only", "ner", "--ner", tmp_path / "blank", "--data", data)
