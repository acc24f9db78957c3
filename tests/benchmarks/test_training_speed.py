"""`benchmarks/training_speed.py` on a few sentences: every setting is what it says it is."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ..util import ROOT

IOB = (
    "Ann\tB-person\nlives\tO\nin\tO\nRome\tB-location\n.\tO\n\nWe\tO\nmet\tO\nAnn\tB-person\n.\tO\n"
)
SETTINGS = ("cnn", "head", "warm", "file", "cold")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import training_speed

    return training_speed


def call(speed: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["training_speed.py", *map(str, words)])
    speed.main()


def test_writes_its_section_and_leaves_the_rest(
    speed: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    page, data = tmp_path / "results.md", tmp_path / "some.iob"
    marks = "<!-- training_speed:start -->", "<!-- training_speed:end -->"
    page.write_text(f"# Results\n\n{marks[0]}\nold\n{marks[1]}\n\nBehind.\n", encoding="utf-8")
    data.write_text(IOB, encoding="utf-8")
    small = ("--rounds", 1, "--batch-words", 5, "--output", page)
    call(speed, monkeypatch, data, *small, "--write")
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(marks[0])
    section, behind = rest.split(marks[1])
    assert (before, behind) == ("# Results\n\n", "\n\nBehind.\n")
    assert section.strip() in capsys.readouterr().out
    assert "old" not in section and str(tmp_path) not in section
    assert "ner: 2 sentences, 9 words, 2 steps" in section
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "| ner |" in line]
    assert [cells[1] for cells in rows] == [speed.SETTINGS[name] for name in SETTINGS]
    for cells in rows:
        steps, words = (float(cell.replace(",", "")) for cell in cells[2:4])
        # Nine words in two steps; both numbers are rounded.
        assert words == pytest.approx(4.5 * steps, abs=1.0) and steps > 0
    assert (rows[1][5], rows[0][6]) == ("1.00", "1.00")


def test_synthetic_sentences_train_both_heads(speed: ModuleType) -> None:
    docs = speed.synthetic(300)
    assert 300 <= sum(map(len, docs)) < 335 and speed.head_of(docs) == "ner"
    assert all(token.tag_ for doc in docs for token in doc)
    assert [d.text for d in docs] == [d.text for d in speed.synthetic(300)]
    for doc in docs:
        doc.ents = []
    assert speed.head_of(docs) == "tagger"


def test_a_cache_that_forgets_is_noticed(
    speed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "some.iob"
    data.write_text(IOB, encoding="utf-8")
    from spacy_elmo.layers.cache import SentenceCache

    monkeypatch.setattr(SentenceCache, "_keep", lambda *_: None)
    with pytest.raises(SystemExit, match=re.escape("'warm': 0 sentences from memory")):
        call(speed, monkeypatch, data, "--rounds", 1)


def test_file_without_annotations(
    speed: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    (tmp_path / "none.iob").write_text("Ann\tO\nsleeps\tO\n", encoding="utf-8")
    for name, problem in (("none.iob", "neither entities nor tags"), ("absent.iob", "no such")):
        with pytest.raises(SystemExit):
            call(speed, monkeypatch, tmp_path / name)
        assert problem in capsys.readouterr().err
