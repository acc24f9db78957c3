"""`elmo surprisal` as a user runs it."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from typer.testing import CliRunner

import spacy_elmo
from spacy_elmo.bilm import BiLM
from spacy_elmo.cli import elmo_cli

from ..training import tiny
from .terminal import run_on_terminal


def run(*args: Any, **kwargs: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["surprisal", *map(str, args)], **kwargs)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.model(tiny.vocabulary(tiny.sentences(100), 40)).save(tmp_path / "model")
    (tmp_path / "text.txt").write_bytes("The cat sees a café.\r\n\r\n\r\nA dog!\r\n".encode())
    return tmp_path


def test_a_page(folder: Path) -> None:
    result = run(folder / "model", folder / "text.txt", folder / "out.html", "--lang", "en")
    assert result.exit_code == 0, result.output
    page = (folder / "out.html").read_text(encoding="utf-8")
    nlp = spacy.blank("en")
    model = BiLM.load(folder / "model", softmax=True)
    docs = [spacy_elmo.score(nlp(text), model) for text in ("The cat sees a café.", "A dog!")]
    assert page == spacy_elmo.render(docs, page=True, jupyter=False)
    arguments = ["-", folder / "out.html", "--lang", "en", "--numbers", "--max-bits", "8"]
    result = run(folder / "model", *arguments, input="A dog!")
    assert result.exit_code == 0
    page = (folder / "out.html").read_text(encoding="utf-8")
    assert page == spacy_elmo.render(docs[1:], page=True, jupyter=False, numbers=True, max_bits=8)


def test_words_that_are_scored_are_counted_on_a_terminal(folder: Path) -> None:
    arguments = [folder / "model", folder / "text.txt", folder / "out.html", "--lang", "en"]
    out, err = run_on_terminal("surprisal", *arguments)
    assert "Scoring:   0%" in err and "/9.00" in err and "Scoring" not in out
    assert "Surprisal of 9 tokens" in out
    assert "Scoring" not in run(*arguments).output


def test_mistakes_are_one_message(folder: Path) -> None:
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    (folder / "empty.txt").write_text("\n \n")
    BiLM.load(folder / "model").save(folder / "encoder")
    model, text, out = folder / "model", folder / "text.txt", folder / "out.html"
    for arguments, code in (
        ([folder / "none", text, out], "E020"),
        ([folder / "encoder", text, out], "E050"),
        ([model, folder / "none.txt", out], "E073"),
        ([model, folder / "latin.txt", out], "E073"),
        ([model, folder / "empty.txt", out], "E059"),
        ([model, text, out, "--lang", "qqq"], "E070"),
        ([model, text, out, "--max-bits", "0"], "E144"),
        ([model, text, text / "out.html"], "E039"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output, code
        assert "Traceback" not in result.output
    assert not out.exists() and not list(folder.glob("*.tmp"))
