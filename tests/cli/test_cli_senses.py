"""`elmo senses` as a user runs it."""

import json
from pathlib import Path
from typing import Any, List

import pytest
from typer.testing import CliRunner

from spacy_elmo.cli import elmo_cli

from ..training import tiny
from .terminal import run_on_terminal


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["senses", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def tsv(seed: int) -> str:
    """Nouns whose sense is their place: first or later in the sentence; a verb of one sense."""
    lines: List[str] = []
    for tokens in tiny.sentences(120, seed):
        for i, token in enumerate(tokens, 1):
            sense = "_"
            if token in ("cat", "dog"):
                sense = "n.FIRST" if i == 2 else "n.LATER"
            elif token == "sees":
                sense = "v.see"
            lines.append(f"{i}\t{token}\tX\t{sense}\t_")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("senses")
    tiny.model(tiny.vocabulary(tiny.sentences(100), 40)).save(path / "model")
    data = path / "data"
    data.mkdir()
    for part, seed in (("train", 1), ("test", 2), ("dev", 3)):
        (data / f"{part}.tsv").write_text(tsv(seed), encoding="utf-8")
    return path


def test_a_folder(folder: Path) -> None:
    result = run(folder / "model", folder / "data", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.output)
    test = tsv(2)
    assert data["n_tagged"] == test.count("n.") + test.count("v.see")
    assert data["n_asked"] == test.count("n.")
    names = ["most frequent sense", "0", "1", "2", "mix"]
    assert list(data["results"]) == names
    accuracy = {name: r["accuracy"] for name, r in data["results"].items()}
    assert accuracy["0"] == accuracy["most frequent sense"] < 0.85
    assert accuracy["1"] > accuracy["0"] + 0.05
    over = data["results"]["1"]["over_baseline"]
    assert over[0] == pytest.approx(accuracy["1"] - accuracy["0"]) and over[1] < over[0] < over[2]
    same = run(folder / "model", folder / "data/train.tsv", "-t", folder / "data/test.tsv", "-j")
    assert json.loads(same.output) == data
    dev = run(folder / "model", folder / "data", "--part", "dev", "-j")
    assert json.loads(dev.output)["n_asked"] == tsv(3).count("n.")


def test_one_file_is_left_one_out(folder: Path) -> None:
    result = run(folder / "model", folder / "data/train.tsv", "--json", "-y", "1")
    data = json.loads(result.output)
    assert data["n_asked"] == tsv(1).count("n.")
    assert 0.8 < data["results"]["1"]["accuracy"] < 1.0


def test_markdown_and_table_show_the_same(folder: Path) -> None:
    plain = run(folder / "model", folder / "data", "-k", 3)
    markdown = run(folder / "model", folder / "data", "-k", 3, "--markdown")
    data = json.loads(run(folder / "model", folder / "data", "-k", 3, "--json").output)
    lines = markdown.output.splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    for name, title in (("most frequent sense",) * 2, ("0", "layer 0"), ("mix", "mix")):
        value = f"{100 * data['results'][name]['accuracy']:.1f}"
        row = next(line for line in lines if line.startswith(f"| {title} |"))
        assert f"| {value} |" in row
        row = next(line for line in plain.output.splitlines() if line.startswith(title))
        assert f" {value} " in row
    assert "Layer 2 over layer 1:" in lines[-1] and f"{data['n_asked']} with" in lines[-1]


def test_bars_go_to_the_terminal_alone(folder: Path) -> None:
    arguments = [folder / "model", folder / "data", "-y", 1, "--json"]
    out, err = run_on_terminal("senses", *arguments)
    # Of both parts, one after the other.
    assert err.count("Embedding:   0%") == 2
    # Nothing of them is left on the screen.
    assert err.endswith("\r") and not err.split("\r")[-2].strip() and "\n" not in err
    result = run(*arguments)
    assert out == result.stdout and json.loads(out) and not result.stderr


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("1\ta\tX\tn.A\n\n1\tb\tX\tn.B\n", encoding="utf-8")
    (tmp_path / "bad.tsv").write_text("1\ta\n", encoding="utf-8")
    for arguments, code in (
        ([folder / "model", folder / "data", "--part", "final"], "E150"),
        ([folder / "model", tmp_path], "E150"),
        ([folder / "model", tmp_path / "one.tsv"], "E147"),
        ([folder / "model", tmp_path / "bad.tsv"], "E146"),
        ([folder / "model", tmp_path / "none.tsv"], "E073"),
        ([folder / "model", folder / "data", "-k", "0"], "E144"),
        ([folder / "model", folder / "data", "-y", "7"], "E144"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output, code
        assert "Traceback" not in result.output
