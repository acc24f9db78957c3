"""`benchmarks/tasks.py` on a set of a few sentences: table, section of the page, going on."""

import json
from pathlib import Path
from types import ModuleType
from typing import List

import pytest

from ..util import ROOT
from .conftest import SENTENCES, write_wnut


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tasks

    return tasks


@pytest.fixture
def data(tmp_path: Path) -> Path:
    # One sentence without entities, since the benchmark leaves some of those out.
    return write_wnut(tmp_path, (*SENTENCES, "We/O went/O home/O ./O"))


def call(tasks: ModuleType, monkeypatch: pytest.MonkeyPatch, words: List[str]) -> None:
    monkeypatch.setattr("sys.argv", ["tasks.py", *words])
    tasks.main()


def test_writes_the_table_once_and_goes_on(
    tasks: ModuleType,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    page, results = tmp_path / "results.md", tmp_path / "work" / "results.jsonl"
    page.write_text("# Results\n\nBefore.\n", encoding="utf-8")
    words = f"--only wnut17 --seeds 1 --steps 60 --evaluations 2 --data {data} --output {page}"
    words += f" --work {results.parent}"
    call(tasks, monkeypatch, words.split())
    printed = capsys.readouterr().out
    records = [json.loads(line) for line in results.read_text().splitlines() if line]
    runs = {r["encoder"]: r for r in records if "encoder" in r}
    assert set(runs) == {"elmo", "cnn"}
    assert runs["elmo"]["cache_misses"] == 0, "the encoder ran although its outputs were on file"
    # All 18 words of dev; of train without the sentence that has no entity.
    assert [r["words"] for r in records if r.get("kind") == "encode"] == [18 + 14]
    for run in runs.values():
        row = f"{100 * run['test']:.2f} | {100 * run['test']:.1f} | {100 * run['dev']:.1f}"
        assert row in printed and row in page.read_text(encoding="utf-8")
        assert run["test"] > 0.5
        assert run["words_per_second"] > 0 and run["train_seconds"] > 0
    assert sum(runs["elmo"]["mix"][0][:-1]) == pytest.approx(1.0)
    assert str(tmp_path) not in page.read_text(encoding="utf-8")

    # Text around the section stays; what is finished is not done again, and what a killed
    # benchmark left half written does no harm.
    page.write_text(page.read_text(encoding="utf-8") + "\nBehind.\n", encoding="utf-8")
    before = results.read_text()
    results.write_text(before + '{"key": "ab')
    monkeypatch.setattr("subprocess.call", lambda *_, **__: pytest.fail("done again"))
    call(tasks, monkeypatch, words.split())
    assert results.read_text() == before + '{"key": "ab'
    text = page.read_text(encoding="utf-8")
    assert text.count("| encoder |") == 1
    assert text.startswith("# Results\n\nBefore.\n") and text.endswith("\nBehind.\n")


def test_missing_data_is_named(
    tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--only", "ewt", "--data", str(tmp_path), "--work", str(tmp_path / "work")]
    with pytest.raises(SystemExit, match="en_ewt-ud-train.conllu"):
        call(tasks, monkeypatch, words)
