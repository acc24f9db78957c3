"""`elmo probe` as a user runs it."""

import json
from pathlib import Path
from typing import Any, List

import pytest
from typer.testing import CliRunner

from spacy_elmo.cli import elmo_cli

from ..training import tiny
from .terminal import run_on_terminal

NAMES = ["most frequent label of the word", "0", "1"]


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["probe", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def conllu(n: int, seed: int) -> str:
    """Articles are DET, but PRON where they begin the sentence; the rest is told by the word."""
    lines: List[str] = []
    for tokens in tiny.sentences(n, seed):
        for i, token in enumerate(tokens, 1):
            tag = "X" if token.isalpha() else "PUNCT"
            if token in ("the", "a"):
                tag = "PRON" if i == 1 else "DET"
            lines.append("\t".join([str(i), token, "_", tag, f"x{tag}", *"_____"]))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("probe")
    tiny.model(tiny.vocabulary(tiny.sentences(100), 40)).save(path / "model")
    data = path / "data"
    data.mkdir()
    for part, n, seed in (("train", 120, 1), ("dev", 40, 2), ("test", 60, 3)):
        (data / f"xx-ud-{part}.conllu").write_text(conllu(n, seed), encoding="utf-8")
    return path


def test_a_folder(folder: Path) -> None:
    result = run(folder / "model", folder / "data", "--json", "-y", "0", "-y", "1")
    assert result.exit_code == 0, result.output
    data = json.loads(result.output)
    assert list(data["results"]) == NAMES and data["n_labels"] == 4
    assert data["n_test"] == sum(map(len, tiny.sentences(60, 3)))
    baseline, zero, one = (data["results"][name] for name in NAMES[:3])
    assert baseline["accuracy"] < 0.9 and baseline["seen_ambiguous"] < 0.7
    assert one["accuracy"] > max(zero["accuracy"], baseline["accuracy"]) + 0.02
    assert zero["seen_ambiguous"] < 0.7 and one["seen_ambiguous"] > 0.8


def test_files_columns_and_sizes(folder: Path) -> None:
    data = folder / "data"
    arguments = [folder / "model", data / "xx-ud-train.conllu", "-d", data / "xx-ud-dev.conllu"]
    arguments += ["-t", data / "xx-ud-test.conllu", "-y", "1", "--column", "xpos"]
    result = json.loads(run(*arguments, "--max-train", "300", "--json").output)
    assert 300 <= result["n_train"] < 330 and list(result["results"]) == [NAMES[0], "1"]


def test_markdown_and_table_show_the_same(folder: Path) -> None:
    command = [folder / "model", folder / "data", "-y", "1"]
    data = json.loads(run(*command, "--json").output)["results"]["1"]
    values = [f"{100 * data[k]:.1f}" for k in ("accuracy", "seen_ambiguous")]
    lines = run(*command, "--markdown").output.splitlines()
    assert f"| layer 1 | {values[0]} | {values[1]} | " in lines[3]
    plain = run(*command).output.splitlines()
    row = next(line for line in plain if line.startswith("layer 1"))
    assert row.split()[2:4] == values


def test_bars_go_to_the_terminal_alone(folder: Path) -> None:
    arguments = [folder / "model", folder / "data", "-y", 0, "--json"]
    arguments += ["--max-train", 200, "--max-dev", 100]
    out, err = run_on_terminal("probe", *arguments)
    # Of the three parts, and of the layers that were asked for.
    assert err.count("Embedding:   0%") == 3 and "Fitting probes:   0%" in err
    assert "| 0/1 " in err[err.index("Fitting probes") :]
    # Nothing of them is left on the screen.
    assert err.endswith("\r") and not err.split("\r")[-2].strip() and "\n" not in err
    result = run(*arguments)
    assert out == result.stdout and json.loads(out) and not result.stderr


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    train = folder / "data" / "xx-ud-train.conllu"
    for arguments, code in (
        ([folder / "model", tmp_path], "E150"),
        ([folder / "model", train], "E150"),
        ([folder / "model", folder / "data", "--column", "feats"], "E144"),
        ([folder / "model", folder / "data", "-y", "7"], "E144"),
        ([folder / "none", folder / "data"], "E020"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output, code
        assert "Traceback" not in result.output
