"""`elmo pretrain` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import pytest
from confection import Config
from typer.testing import CliRunner

from spacy_elmo.bilm import BiLM
from spacy_elmo.cli import elmo_cli
from spacy_elmo.training.checkpoint import load_checkpoint
from spacy_elmo.training.config import PretrainConfig
from spacy_elmo.training.pretrain import pretrain

from ..training import tiny
from ..util import ROOT

runner = CliRunner()
TEXT = tiny.sentences(150)


def run(*args: Any) -> Any:
    result = runner.invoke(elmo_cli, ["pretrain", *map(str, args)])
    # Coded errors end in an exit code, never in an exception that reaches the user.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def text(result: Any) -> str:
    """Output without the line breaks that the terminal width asks for."""
    return " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Text, held-out text and settings of a tiny model."""
    tiny.write_text(tmp_path / "in.txt", TEXT)
    tiny.write_text(tmp_path / "held.txt", tiny.sentences(20, seed=7))
    Config(tiny.config().to_dict()).to_disk(tmp_path / "tiny.cfg")
    return tmp_path


def options(folder: Path) -> List[Any]:
    return ["--heldout", folder / "held.txt", "--config", folder / "tiny.cfg", "--threads", 1]


def config_of(output: Path) -> PretrainConfig:
    run_ = json.loads((output / "run.json").read_text(encoding="utf-8"))
    return PretrainConfig.from_dict(run_["config"])


def test_from_text_to_a_model(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = ["--training.max_steps", 5, "--training.batch_tokens=32", "--training.dropout=0.1"]
    result = run(folder / "in.txt", folder / "run", *options(folder), *settings)
    assert result.exit_code == 0, result.output
    expected = tiny.config(max_steps=5, batch_tokens=32, dropout=0.1)
    assert config_of(folder / "run") == expected
    final = tiny.read_log(folder / "run", "heldout")[-1]
    assert final["step"] == 5
    for line in (
        "Text: 150 sentences",
        "Out of vocabulary",
        "About 5 steps of 32 predictions in each direction",
        f"Perplexity, average {final['average']:.2f}",
        f"Out of vocabulary {100 * final['oov_rate']:.2f} %",
        "Trained model:",
    ):
        assert line in text(result)
    assert BiLM.load(folder / "run" / "model-last", softmax=True).softmax is not None
    assert (folder / "run" / "perplexity.png").read_bytes().startswith(b"\x89PNG")
    # The same as in Python.
    pretrain(
        [folder / "in.txt"],
        folder / "python",
        expected,
        heldout=[folder / "held.txt"],
        threads=1,
    )
    tiny.assert_equal(
        tiny.tensors(folder / "run" / "model-last"),
        tiny.tensors(folder / "python" / "model-last"),
    )


def test_raw_text_is_tokenised(folder: Path) -> None:
    sentences = ["The cat doesn't sit.", "It's a dog, isn't it?"] * 60
    lines = "".join(json.dumps({"text": f"{s} {s}"}) + "\n" for s in sentences)
    (folder / "in.jsonl").write_text(lines, encoding="utf-8")
    arguments = ["--config", folder / "tiny.cfg", "--threads", 1, "--training.max_steps", 2]
    result = run(folder / "in.jsonl", folder / "run", "--lang", "en", *arguments)
    assert result.exit_code == 0, result.output
    words = (folder / "run" / "vocabulary.txt").read_text(encoding="utf-8")
    assert "\nn't\t" in words and "\n's\t" in words
    result = run(folder / "in.jsonl", folder / "other", *arguments)
    assert result.exit_code == 1 and "ELMO-E069" in text(result) and "line 1" in text(result)


def test_patterns_are_expanded_here(folder: Path) -> None:
    tiny.write_text(folder / "in-2.txt", TEXT[:10])
    arguments = [folder / "in*.txt", folder / "run", *options(folder), "--training.max_steps", 1]
    result = run(*arguments)
    assert result.exit_code == 0 and "Text: 160 sentences" in text(result)


def test_a_preset_and_flags(folder: Path) -> None:
    result = run(
        folder / "in.txt",
        folder / "run",
        *["--heldout", folder / "held.txt", "--preset", "original", "--threads", 1],
        "--training.bf16",  # without a value
        *["--training.max_steps", 1, "--training.batch_tokens", 16],
        *["--model.char_cnn.filters", "[[1, 4], [2, 4]]", "--model.lstm.proj_clip", "null"],
        *["--model.lstm.cell_dim", 16, "--model.lstm.projection_dim=8"],
    )
    assert result.exit_code == 0, result.output
    config = config_of(folder / "run")
    assert config.training.bf16 and config.training.max_steps == 1
    assert config.model.char_cnn.n_highway == 2  # the preset's
    assert config.model.char_cnn.filters == ((1, 4), (2, 4))
    assert config.model.lstm.proj_clip is None and config.model.lstm.cell_dim == 16


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--training.lr", 1], "unknown key training.lr, known are accumulate, batch_tokens"),
        (["--training.max_steps", "five"], "training.max_steps is 'five' (str), an integer"),
        (["--training.max_steps"], "training.max_steps is True (bool), an integer"),
        (["--training.seed.x", 3], "training.seed.x is no setting"),
        (["--trainig.max_steps", 3], "unknown section 'trainig'"),
        (["--training.dropout", "-0.5"], "dropout is -0.5"),
        (["--max_steps", 3], "unknown option --max_steps (settings are given as --section.key"),
        (["--preset", "huge"], "model.preset is 'huge', known are mini"),
        (["--config", "no-such.cfg"], "the file no-such.cfg does not exist"),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_bad_settings_are_one_message(arguments: Any, message: str, folder: Path) -> None:
    result = run(folder / "in.txt", folder / "run", *options(folder), *arguments)
    assert result.exit_code == 1
    assert "[ELMO-E051]" in text(result) and message in text(result)
    assert "Traceback" not in result.output
    assert not (folder / "run").exists()


def test_a_file_that_is_no_configuration(folder: Path) -> None:
    (folder / "bad.cfg").write_text("[training\nmax_steps = 3")
    result = run(folder / "in.txt", folder / "run", "--config", folder / "bad.cfg")
    assert result.exit_code == 1 and "[ELMO-E051]" in text(result) and "bad.cfg" in text(result)


def test_overrides_of_spacy_train_are_not_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPACY_CONFIG_OVERRIDES", "--paths.train x --training.max_steps=9")
    arguments = [folder / "in.txt", folder / "run", *options(folder), "--training.max_steps", 1]
    assert run(*arguments).exit_code == 0
    assert config_of(folder / "run").training.max_steps == 1


@pytest.mark.parametrize("paths", [["in.txt"], []])
def test_a_missing_output_folder(paths: List[str], folder: Path) -> None:
    result = run(*(folder / path for path in paths), "--threads", 1)
    assert result.exit_code != 0 and "Traceback" not in result.output
    if paths:  # taken for the output folder
        assert "[ELMO-E083]" in text(result)


def test_bad_text_is_reported_with_file_and_line(folder: Path) -> None:
    (folder / "bad.txt").write_bytes("ein Satz .\nnoch einer für später .\n".encode("latin-1"))
    arguments = [folder / "in.txt", folder / "bad.txt", folder / "run", *options(folder)]
    result = run(*arguments)
    assert result.exit_code == 1
    joined = "".join(result.output.split())  # paths are broken at any place
    assert "[ELMO-E064]" in joined and "bad.txt,line2:" in joined
    assert "Traceback" not in result.output
    assert not (folder / "run" / "log.jsonl").exists()


def test_warnings_are_shown(folder: Path) -> None:
    arguments = ["--training.vocabulary_size", 6, "--training.max_steps", 1]
    result = run(folder / "in.txt", folder / "run", *options(folder), *arguments)
    assert result.exit_code == 0 and "[ELMO-W010]" in text(result)


def test_a_run_is_resumed(folder: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.step == 8:
            raise KeyboardInterrupt

    for name, report in (("run", stop), ("whole", None)):
        try:
            pretrain(
                [folder / "in.txt"],
                folder / name,
                tiny.config(),
                heldout=[folder / "held.txt"],
                threads=1,
                report=report,
            )
        except KeyboardInterrupt:
            pass
    again = run(folder / "in.txt", folder / "run", *options(folder))
    assert again.exit_code == 1 and "[ELMO-E055]" in text(again)
    changed = run("--resume", folder / "run", "--training.seed", 4)
    assert changed.exit_code == 1 and "[ELMO-E056]" in text(changed)
    # The settings may be left out, as may the inputs.
    result = run("--resume", folder / "run", "--threads", 1)
    assert result.exit_code == 0 and "Resumed at step 5" in text(result)
    tiny.assert_equal(
        tiny.tensors(folder / "run" / "model-last"), tiny.tensors(folder / "whole" / "model-last")
    )
    assert load_checkpoint(folder / "run").facts["step"] == 12
    nothing = run("--resume", folder / "nothing")
    assert nothing.exit_code == 1 and "[ELMO-E052]" in text(nothing)


def test_another_model_is_adapted(folder: Path) -> None:
    words = tiny.vocabulary(TEXT)
    tiny.model(words).save(folder / "old")
    arguments = [*options(folder), "--init", folder / "old", "--training.max_steps", 2]
    result = run(folder / "in.txt", folder / "run", *arguments, "--training.freeze_steps=2")
    assert result.exit_code == 0, result.output
    old, new = (tiny.tensors(folder / path) for path in ("old", "run/model-last"))
    changed = {name for name in old if not (old[name] == new[name]).all()}
    assert changed == {"softmax.weight", "softmax.bias"}
    result = run(folder / "in.txt", folder / "other", *options(folder), "--init", "no-such-model")
    assert result.exit_code == 1 and "[ELMO-E020]" in text(result)


def test_without_matplotlib_there_is_no_curve(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    arguments = [*options(folder), "--training.max_steps", 1]
    result = run(folder / "in.txt", folder / "run", *arguments)
    assert result.exit_code == 0 and "needs matplotlib" in text(result)
    assert not (folder / "run" / "perplexity.png").exists()


def test_a_gpu_that_is_not_there(folder: Path) -> None:
    result = run(folder / "in.txt", folder / "run", *options(folder), "--gpu-id", 99)
    assert result.exit_code == 1 and "[ELMO-E081]" in text(result)


def test_help_names_the_options() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("--config", "--heldout", "--init", "--resume", "--vocabulary", "--lang"):
        assert name in result.output


def test_the_module_for_torchrun_is_the_same_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "spacy_elmo.training", "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "--resume" in result.stdout and "INPUT... OUTPUT" in result.stdout
