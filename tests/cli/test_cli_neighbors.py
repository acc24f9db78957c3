"""`elmo neighbors` as a user runs it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spacy_elmo.analysis.encoders import load_encoder
from spacy_elmo.analysis.occurrences import average_cost, collect
from spacy_elmo.cli import elmo_cli

from ..training import tiny
from .terminal import run_on_terminal

TEXT = tiny.sentences(80, seed=7)
COUNT = sum(t == "cat" for s in TEXT for t in s)


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["neighbors", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("neighbors")
    tiny.model(tiny.vocabulary(TEXT, 40)).save(path / "model")
    tiny.write_text(path / "text.txt", TEXT)
    return path


def test_tables(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt", "--word", "cat", "-n", 4)
    assert result.exit_code == 0, result.output
    assert result.output.count(f"average of {COUNT} occurrences of 'cat'") == 4
    lines = result.output.splitlines()
    # Three occurrences and the average, four neighbours each, in four views.
    assert len([line for line in lines if re.match(r" +[123]  .*\[cat\]", line)]) == 3 * 4
    assert len([line for line in lines if re.match(r" +-?\d\.\d{3}  .*\[\S+\]", line)]) == 4 * 4 * 4
    known = collect(load_encoder(folder / "model"), TEXT, "cat", ["2"])
    cost = average_cost(known.vectors["2"])
    row = next(line for line in lines if line.startswith("layer 2"))
    for value in (cost.self_similarity, cost.mean_cosine, cost.min_cosine):
        assert f" {value:.3f} " in row
    assert f" {100 * cost.lost:.1f} %" in row


def test_json_of_chosen_layers(folder: Path) -> None:
    command = [folder / "model", folder / "text.txt", "-w", "cat", "-n", 3, "--json"]
    data = json.loads(run(*command, "-y", 2, "-y", "mix", "-k", 2).output)
    assert data["occurrences"] == COUNT and data["sentences"] == len(TEXT)
    assert list(data["views"]) == ["2", "mix"]
    for view in data["views"].values():
        assert len(view["queries"]) == 2 and len(view["average"]) == 3
        for query in view["queries"]:
            assert query["sentence"][query["position"]] == "cat"
            cosines = [n["cosine"] for n in query["neighbors"]]
            assert cosines == sorted(cosines, reverse=True) and len(cosines) == 3
            for n in query["neighbors"]:
                assert n["sentence"] in TEXT
                assert (n["sentence"], n["position"]) != (query["sentence"], query["position"])
        assert 0.0 <= view["cost"]["shared_neighbors"] <= 1.0
    limited = json.loads(run(*command, "--max-sentences", 20).output)
    assert limited["sentences"] == 20


def test_contexts_of_ones_own(folder: Path) -> None:
    context = "a quiet Cat sees the moon ."
    arguments = ["-w", "cat", "-c", context, "-y", 1, "-n", 2, "--json", "--ignore-case"]
    data = json.loads(run(folder / "model", folder / "text.txt", *arguments).output)
    (query,) = data["views"]["1"]["queries"]
    assert query["sentence"] == context.split() and query["position"] == 2
    result = run(folder / "model", folder / "text.txt", "-w", "cat", "-c", context)
    assert result.exit_code == 1 and "[ELMO-E145]" in result.output


def test_a_sample_is_said_and_a_single_occurrence_is_enough(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt", "-w", "cat", "--keep", 5, "-y", "1")
    assert result.exit_code == 0 and "[ELMO-W141]" in result.stderr
    (folder / "one.txt").write_text("the cat .\n", encoding="utf-8")
    result = run(folder / "model", folder / "one.txt", "-w", "cat", "--json")
    cost = json.loads(result.output)["views"]["2"]["cost"]
    assert cost["self_similarity"] is None and cost["lost"] == pytest.approx(0.0, abs=1e-6)


def test_bars_go_to_the_terminal_alone(folder: Path) -> None:
    arguments = [folder / "model", folder / "text.txt", "-w", "cat", "-y", 1, "--json"]
    out, err = run_on_terminal("neighbors", *arguments)
    # Both times that the text is read.
    for title in ("Looking for the word", "Comparing all tokens"):
        assert f"{title}: 0 sentences" in err
    assert err.index("Looking for the word") < err.index("Comparing all tokens")
    # Nothing of them is left on the screen.
    assert err.endswith("\r") and not err.split("\r")[-2].strip() and "\n" not in err
    result = run(*arguments)
    assert out == result.stdout and json.loads(out) and not result.stderr


def test_plot(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    result = run(folder / "model", folder / "text.txt", "-w", "cat", "--plot", path)
    assert result.exit_code == 0 and str(path.name) in "".join(result.output.split())
    drawn = path.read_text(encoding="utf-8")
    assert all(f"layer {i}" in drawn for i in range(3)) and "all vectors are the same" in drawn


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    for arguments, code in (
        ([folder / "model", folder / "text.txt", "-w", "zebra"], "E145"),
        ([folder / "model", folder / "text.txt", "-w", "cat", "-y", "3"], "E144"),
        ([folder / "model", folder / "text.txt", "-w", "cat", "-n", "0"], "E144"),
        ([folder / "model", folder / "text.txt", "-w", "cat", "-k", "0"], "E144"),
        ([folder / "model", folder / "none.txt", "-w", "cat"], "E060"),
        ([folder / "none", folder / "text.txt", "-w", "cat"], "E020"),
        ([folder / "model", folder / "text.txt", "-w", "cat", "--plot", "a.gif"], "E144"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output, code
        assert "Traceback" not in result.output
