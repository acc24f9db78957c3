"""`elmo mix` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from typer.testing import CliRunner

from spacy_elmo.cli import elmo_cli
from spacy_elmo.pipeline.mixes import pipeline_mixes

from ..pipeline.conftest import make_nlp, train, weights  # noqa: F401  (fixtures)


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["mix", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def text(result: Any) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def folder(make_nlp: Any, tmp_path: Path) -> Path:  # noqa: F811
    nlp = make_nlp("tagger", "ner")
    train(nlp, 4, exclude=["ner"])
    nlp.to_disk(tmp_path / "trained")
    return tmp_path


def test_table(folder: Path) -> None:
    result = run(folder / "trained")
    assert result.exit_code == 0
    tagger, ner = pipeline_mixes(spacy.load(folder / "trained"))
    rows = [line.split() for line in result.output.splitlines() if "input" in line]
    for row, mix, state in zip(rows, (tagger, ner), ("trained", "initial")):
        shares = [f"{share:.3f}" for share in mix.weights]
        assert row == [mix.component, "input", *shares, f"{mix.gamma:.3f}", state]
    assert len(rows) == 2 and "token layer LSTM 1 LSTM 2 gamma" in text(result)


def test_json_and_several_pipelines(folder: Path) -> None:
    path = str(folder / "trained")
    expected = [{"pipeline": path, **mix.to_dict()} for mix in pipeline_mixes(spacy.load(path))]
    assert json.loads(run(path, "--json").output) == expected
    assert json.loads(run(path, path, "--json").output) == 2 * expected
    assert text(run(path, path)).count(path[-20:]) == 4


def test_figure(folder: Path) -> None:
    result = run(folder / "trained", "--plot", folder / "out" / "mixes.svg")
    assert result.exit_code == 0 and "mixes.svg" in result.output
    assert "not trained" in (folder / "out" / "mixes.svg").read_text(encoding="utf-8")
    # With JSON nothing else is printed.
    output = run(folder / "trained", "--plot", folder / "mixes.png", "--json").output
    assert len(json.loads(output)) == 2 and (folder / "mixes.png").exists()


def test_history(folder: Path) -> None:
    mixes = [mix.to_dict() for mix in pipeline_mixes(spacy.load(folder / "trained"))]
    lines = [
        {"epoch": 0, "step": 0, "score": 0.25, "mixes": mixes},
        {"epoch": 3, "step": 60, "score": 0.75, "mixes": mixes},
    ]
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = run("--history", log, "--plot", folder / "moved.png")
    assert result.exit_code == 0 and (folder / "moved.png").exists()
    assert "Step 0, epoch 0, score 0.250" in text(result)
    assert "Step 60, epoch 3, score 0.750" in text(result)
    assert json.loads(run("--history", log, "--json").output) == lines


def test_mistakes_are_one_message(folder: Path) -> None:
    spacy.blank("en").to_disk(folder / "blank")
    (folder / "log.jsonl").write_text("no\n")
    for arguments, code in (
        ([], "E123"),
        ([folder / "trained", "--history", folder / "log.jsonl"], "E123"),
        ([folder / "none"], "E129"),
        ([folder / "blank"], "E124"),
        (["--history", folder / "log.jsonl"], "E125"),
        # Noticed before the pipeline is loaded.
        ([folder / "none", "--plot", "mixes.gif"], "E128"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in text(result), code
        assert "Traceback" not in result.output
