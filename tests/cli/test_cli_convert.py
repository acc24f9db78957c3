"""`elmo info` and `elmo convert` as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from spacy_elmo.bilm.io import read_model, write_model
from spacy_elmo.cli import elmo_cli

from ..bilm.writers import WORDS, write_bilm_folder, write_many_langs_folder
from ..util import ROOT, shared

runner = CliRunner()


def run(*args: Any) -> Any:
    result = runner.invoke(elmo_cli, [str(arg) for arg in args])
    # Coded errors end in an exit code, never in an exception that reaches the user.
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def text(result: Any) -> str:
    """Output without the line breaks that the terminal width asks for."""
    return " ".join(result.output.split())


def test_info_of_the_public_fixture() -> None:
    result = run("info", shared("fixtures", "bilm-tiny"))
    assert result.exit_code == 0
    for line in (
        "bilm (bilm-tf, AllenNLP)",
        "3 (tokens and 2 of the LSTM)",
        "Width 32",
        "Initial state primed",
        "UTF-8 bytes, 48 per word",
        "LSTM cells 64",
        "LSTM projection 16",
        "Clips cell 3, projection 3",
        "Skip connections yes",
        "Highway layers 2",
        "Softmax no",
        "Character vectors 1,044",
        "Encoder in all 105,120",
        "licence not stated",
    ):
        assert line in text(result)


def test_info_as_json(tmp_path: Path) -> None:
    files = read_model(write_bilm_folder(tmp_path / "a"))
    files.tensors.update({"softmax.weight": torch.ones(3, 4), "softmax.bias": torch.ones(3)})
    files.vocabulary = [("<S>", 5), ("</S>", 5), ("für", 1)]
    files.config.meta["licence"] = "CC-BY 4.0, größtenteils"
    write_model(files, tmp_path / "b")
    facts = json.loads(run("info", tmp_path / "b", "--json").stdout)
    assert facts["format"] == "native"
    assert facts["width"] == 8
    assert facts["n_layers"] == 3
    assert facts["softmax"] == {"n_words": 3}
    assert facts["parameters"]["softmax"] == 15
    parts = {
        name: n for name, n in facts["parameters"].items() if name not in ("softmax", "encoder")
    }
    assert sum(parts.values()) == facts["parameters"]["encoder"]
    assert facts["parameters"]["encoder"] == sum(
        t.numel() for name, t in files.tensors.items() if not name.startswith("softmax.")
    )
    assert facts["meta"]["licence"] == "CC-BY 4.0, größtenteils"
    assert "3 words" in text(run("info", tmp_path / "b"))
    assert "licence CC-BY 4.0, größtenteils" in text(run("info", tmp_path / "b"))


def test_info_of_many_langs(tmp_path: Path) -> None:
    out = text(run("info", write_many_langs_folder(tmp_path)))
    assert "many-langs (ELMoForManyLangs)" in out
    assert f"11 code points and {len(WORDS)} words" in out


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    torch.save({"corr.weight": torch.ones(2)}, folder / "classifier.pkl")
    result = run("info", folder, "--json")
    assert json.loads(result.stdout)["softmax"] is None
    assert "ELMO-W003" in result.stderr


def test_convert_there_and_back(tmp_path: Path) -> None:
    source = write_bilm_folder(tmp_path / "a", names=("o.json", "w.hdf5"))
    result = run("convert", source / "o.json", tmp_path / "b", "--weights", source / "w.hdf5")
    assert result.exit_code == 0
    assert "Converted from 'bilm' to 'native'" in text(result)
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "bilm").exit_code == 0
    before, after = read_model(source / "o.json"), read_model(tmp_path / "c")
    assert all(torch.equal(before.tensors[name], t) for name, t in after.tensors.items())
    result = run("convert", tmp_path / "c", tmp_path / "d", "--dtype", "float16")
    assert result.exit_code == 0
    size = (tmp_path / "d" / "model.safetensors").stat().st_size
    assert size < 0.7 * (tmp_path / "b" / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    "args, shown",
    [
        (["info", "no_such_model"], "[ELMO-E020] There is no model at 'no_such_model'"),
        (["convert", "no_such_model", "x"], "[ELMO-E020]"),
        (["info", "{tmp}"], "[ELMO-E021]"),
        (["convert", "{model}", "{tmp}"], "[ELMO-E034]"),
        (["convert", "{model}", "{tmp}/x", "--to", "onnx"], "[ELMO-E035] format is 'onnx'"),
        (["convert", "{model}", "{tmp}/x", "--to", "many-langs"], "[ELMO-E029]"),
        (["convert", "{model}", "{tmp}/x", "--dtype", "int4"], "[ELMO-E035] dtype is 'int4'"),
        (["info", "{model}", "--weights", "{tmp}/gone.hdf5"], "[ELMO-E020]"),
    ],
)
def test_problems_are_messages_with_exit_code_1(
    tmp_path: Path, args: "list[str]", shown: str
) -> None:
    (tmp_path / "file.txt").write_text("x")
    model = write_bilm_folder(tmp_path / "model")
    result = run(*(arg.format(tmp=tmp_path, model=model) for arg in args))
    assert result.exit_code == 1
    assert shown in text(result)
    assert "Traceback" not in result.output
    assert not (tmp_path / "x").exists()


def test_commands_are_attached_to_spacy_and_light() -> None:
    # `python -m spacy` imports the commands of all plugins. (Whether torch itself is loaded
    # cannot be checked: thinc does so where it is installed.)
    code = (
        "import sys; from spacy.cli._util import app; import spacy_elmo.cli; "
        "assert 'elmo' in [group.typer_instance.info.name for group in app.registered_groups]; "
        "heavy = [m for m in sys.modules if m.startswith(('spacy_elmo.bilm', 'spacy_elmo.tr'))]; "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
