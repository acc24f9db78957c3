"""`elmo perplexity` as a user runs it."""

import json
import math
from pathlib import Path
from typing import Any, List

import pytest
from typer.testing import CliRunner

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.scoring import perplexity, score_sentences, softmax_words
from spacy_elmo.cli import elmo_cli

from ..training import tiny
from .terminal import run_on_terminal

# Tokens that a format with quotes or escapes would change.
TEXT = [*tiny.sentences(40, seed=7), ['"', "the", "back\\slash", "#", "猫"], ["<S>", "cat"]]
HEADER = ["sentence", "position", "token", "forward", "backward"]


def run(*args: Any, **options: Any) -> Any:
    runner = CliRunner(**options)
    result = runner.invoke(elmo_cli, ["perplexity", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def text(result: Any) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a softmax, and a text."""
    tiny.model(tiny.vocabulary(tiny.sentences(100), 40)).save(tmp_path / "model")
    tiny.write_text(tmp_path / "text.txt", TEXT)
    return tmp_path


def rows(table: str) -> List[List[str]]:
    lines = table.split("\n")
    assert lines.pop() == "" and "\r" not in table
    return [line.split("\t") for line in lines]


def test_scores_are_shown(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt")
    expected = perplexity(BiLM.load(folder / "model", softmax=True), TEXT)
    assert result.exit_code == 0
    for line in (
        f"Perplexity, forward {expected.forward:.2f}",
        f"Perplexity, backward {expected.backward:.2f}",
        f"Perplexity, average {expected.average:.2f}",
        f"Tokens {expected.n_tokens}",
        f"Sentences {len(TEXT)}",
        f"Out of vocabulary {100 * expected.oov_rate:.2f} %",
        "Vocabulary 40",
    ):
        assert line in text(result)


def test_scores_as_json(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt", "--json")
    model = BiLM.load(folder / "model", softmax=True)
    assert json.loads(result.output) == pytest.approx(perplexity(model, TEXT).to_dict())
    small = run(folder / "model", folder / "text.txt", "--json", "--batch-tokens", 5)
    assert json.loads(small.output) == pytest.approx(json.loads(result.output), rel=1e-5)
    primed = run(folder / "model", folder / "text.txt", "--json", "--initial-state", "primed")
    other = BiLM.load(folder / "model", softmax=True, initial_state="primed")
    assert json.loads(primed.output) == pytest.approx(perplexity(other, TEXT).to_dict())
    assert json.loads(primed.output) != json.loads(result.output)


def test_words_that_are_scored_are_counted_on_a_terminal(folder: Path) -> None:
    arguments = ["perplexity", folder / "model", folder / "text.txt"]
    n_tokens = sum(map(len, TEXT))
    # More than one batch, or the number would be that of the end alone.
    out, err = run_on_terminal(*arguments, "--json", "--batch-tokens", 50)
    assert json.loads(out)["n_tokens"] == n_tokens
    assert "Scoring: 0" in err and " words" in err
    # Nothing of it is left on the screen.
    assert err.endswith("\r") and not err.split("\r")[-2].strip()
    rows_alone = run(*arguments[1:], "--per-token", "-").output
    for on_terminal in (False, True):
        out, err = run_on_terminal(*arguments, "--per-token", "-", stdout=on_terminal)
        # Rows that are printed show well enough how far it is, and a bar would stand among them.
        assert out == rows_alone and ("Scoring" in err) != on_terminal
    _, err = run_on_terminal(*arguments, "--per-token", folder / "out.tsv")
    assert "Scoring" in err
    assert "Scoring" not in run(*arguments[1:]).output


def test_log_probabilities_of_every_token(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt", "--per-token", folder / "out.tsv")
    assert result.exit_code == 0, result.output
    header, *lines = rows((folder / "out.tsv").read_bytes().decode("utf-8"))
    assert header == HEADER and all(len(line) == 5 for line in lines)
    # Tokens as they stand in the text, boundaries around them.
    found: List[List[str]] = [[] for _ in TEXT]
    for number, position, token, _, _ in lines:
        assert int(position) == len(found[int(number)])
        found[int(number)].append(token)
    assert found == [["<S>", *sentence, "</S>"] for sentence in TEXT]
    # The sums are those of the perplexity.
    model = BiLM.load(folder / "model", softmax=True)
    expected = perplexity(model, TEXT)
    n = expected.n_tokens + len(TEXT)
    for column, value in ((3, expected.forward), (4, expected.backward)):
        scores = [float(line[column]) for line in lines if line[column]]
        assert len(scores) == n
        assert math.exp(-math.fsum(scores) / n) == pytest.approx(value, rel=1e-5)
    # Nothing is said of the beginning from left to right, nor of the end from right to left.
    empty = {(line[2], k) for line in lines for k in (3, 4) if not line[k]}
    assert empty == {("<S>", 3), ("</S>", 4)}
    score = score_sentences(model, softmax_words(model), TEXT[:1])[0]
    n_first = len(TEXT[0]) + 2
    assert [float(line[3]) for line in lines[1:n_first]] == pytest.approx(
        score.forward.tolist(), abs=2e-6
    )
    assert [float(line[4]) for line in lines[: n_first - 1]] == pytest.approx(
        score.backward.tolist(), abs=2e-6
    )
    assert sorted(path.name for path in folder.iterdir()) == ["model", "out.tsv", "text.txt"]


def test_log_probabilities_are_printed_as_utf_8_whatever_the_locale(folder: Path) -> None:
    run(folder / "model", folder / "text.txt", "--per-token", folder / "out.tsv")
    for charset in ("utf-8", "ascii"):
        result = run(folder / "model", folder / "text.txt", "--per-token", "-", charset=charset)
        assert result.exit_code == 0
        assert result.stdout_bytes == (folder / "out.tsv").read_bytes()


def test_bad_text_leaves_no_file(folder: Path) -> None:
    (folder / "bad.txt").write_bytes("ein Satz .\nnoch einer für später .\n".encode("latin-1"))
    for arguments in ([], ["--per-token", folder / "out.tsv"]):
        result = run(folder / "model", folder / "text.txt", folder / "bad.txt", *arguments)
        joined = "".join(result.output.split())
        assert result.exit_code == 1
        assert "[ELMO-E064]" in joined and "bad.txt,line2:" in joined
    assert not list(folder.glob("out*"))


def test_raw_text_needs_a_tokenizer(folder: Path) -> None:
    (folder / "raw.jsonl").write_text('{"text": "The cat isn\'t red."}\n', encoding="utf-8")
    result = run(folder / "model", folder / "raw.jsonl")
    assert result.exit_code == 1 and "[ELMO-E069]" in text(result)
    result = run(folder / "model", folder / "raw.jsonl", "--lang", "en", "--json")
    assert json.loads(result.output)["n_tokens"] == 6


@pytest.mark.parametrize("arguments", [[], ["--per-token", "-"]])
def test_a_model_without_a_softmax(arguments: List[str], folder: Path) -> None:
    model = BiLM.load(folder / "model")
    model.save(folder / "encoder")
    result = run(folder / "encoder", folder / "text.txt", *arguments)
    assert result.exit_code == 1
    assert "[ELMO-E050]" in text(result) and "pretrain --init" in text(result)


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--per-token", "out.tsv"]])
def test_carried_states_are_refused(
    arguments: List[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    BiLM.load("model", softmax=True, initial_state="carry").save("carrying")
    asked = ["model", "text.txt", "--initial-state", "carry", *arguments]
    for call in (asked, ["carrying", "text.txt", *arguments]):
        result = run(*call)
        assert result.exit_code == 1 and "[ELMO-E170]" in text(result)
        assert "--initial-state zero" in text(result)
    assert not Path("out.tsv").exists()
    assert run("carrying", "text.txt", "--initial-state", "zero", *arguments).exit_code == 0


def test_other_mistakes_are_one_message(folder: Path) -> None:
    (folder / "empty.txt").write_text("\n\n")
    for arguments, code in (
        ([folder / "model", folder / "empty.txt"], "E067"),
        ([folder / "model", folder / "none.txt"], "E060"),
        ([folder / "none", folder / "text.txt"], "E020"),
        ([folder / "model", folder / "text.txt", "--initial-state", "cold"], "E010"),
        (
            [folder / "model", folder / "text.txt", "--per-token", folder / "text.txt" / "o.tsv"],
            "E039",
        ),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in text(result), code
        assert "Traceback" not in result.output
