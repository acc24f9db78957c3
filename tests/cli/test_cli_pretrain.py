"""`elmo pretrain` as a user runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import numpy as np
import pytest
import tqdm.std
from confection import Config
from typer.testing import CliRunner

from spacy_elmo.bilm import BiLM
from spacy_elmo.cli import elmo_cli
from spacy_elmo.training import loop
from spacy_elmo.training.checkpoint import load_checkpoint
from spacy_elmo.training.config import PretrainConfig
from spacy_elmo.training.corpus import open_prepared
from spacy_elmo.training.pretrain import pretrain
from spacy_elmo.training.step import TrainingStep

from ..bilm.writers import write_bilm_folder
from ..training import tiny
from ..util import ROOT
from .terminal import run_on_terminal

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


def prepared(output: Path) -> List[List[str]]:
    """The sentences that a run was trained on."""
    corpus = open_prepared(output / "data" / "train")
    return corpus.sentences(np.arange(len(corpus)))


def test_docbins_and_a_pipeline_that_cuts_raw_text(folder: Path) -> None:
    import spacy
    from spacy.tokens import Doc, DocBin

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer", config={"punct_chars": [";"]})
    nlp.to_disk(folder / "nlp")
    # Without full stops, by which boundaries would be found again.
    cut = [sentence[:-1] for sentence in TEXT[:60]]
    starts: List[Any] = [[True, *[False] * (len(words) - 1)] for words in cut]
    docs = [
        Doc(nlp.vocab, words=2 * words, sent_starts=2 * start) for words, start in zip(cut, starts)
    ]
    DocBin(docs=docs).to_disk(folder / "in.spacy")
    (folder / "in.jsonl").write_text('{"text": "It doesn\'t rain. So; we go out"}\n' * 3)
    inputs = [folder / "in.spacy", folder / "in.jsonl"]
    arguments = [*options(folder), "--training.max_steps", 1]
    result = run(*inputs, folder / "run", "--model", folder / "nlp", *arguments)
    assert result.exit_code == 0, result.output
    # Boundaries are those of the docs, and of the pipeline, which knows no full stop.
    raw = [["It", "does", "n't", "rain", ".", "So", ";"], ["we", "go", "out"]]
    assert prepared(folder / "run") == [words for words in cut for _ in range(2)] + 3 * raw
    both = run(*inputs, folder / "both", "--model", folder / "nlp", "--lang", "en", *arguments)
    assert both.exit_code == 1 and "[ELMO-E070]" in text(both)


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


def test_a_model_of_two_files_is_adapted(folder: Path) -> None:
    # In two folders, where neither file could be found by the other.
    old = write_bilm_folder(folder / "old")
    weights = folder / "weights.hdf5"
    (old / "model.hdf5").rename(weights)
    arguments = [*options(folder), "--training.max_steps", 2, "--training.freeze_steps=2"]
    init = ["--init", old / "options.json"]
    result = run(folder / "in.txt", folder / "other", *arguments, *init)
    assert result.exit_code == 1 and "[ELMO-E02" in text(result)
    result = run(folder / "in.txt", folder / "run", *arguments, *init, "--init-weights", weights)
    assert result.exit_code == 0, result.output
    new = tiny.tensors(folder / "run" / "model-last")
    model = BiLM.load(old / "options.json", weights)
    tiny.assert_equal(
        {name: t for name, t in new.items() if not name.startswith("softmax.")},
        dict(model.state_dict()),
    )
    run_ = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    assert (run_["init"], run_["init_weights"]) == (str(old / "options.json"), str(weights))


# -- the bar ---------------------------------------------------------------------------------

FRAME = re.compile(
    r"([\d ]+)%\|.*\| (\S+) elapsed, (\S+) left, "
    r"step (\d+), ([\d,]+) tokens/s, sampled ppl (\d+\.\d)(?:, held-out ppl (\d+\.\d))?"
)
#: Seconds of a step.
STEP = 4.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that steps alone move on."""
    now = [1000.0]
    good = TrainingStep.__call__

    def call(self: TrainingStep, *args: Any, **options: Any) -> Any:
        now[0] += STEP
        return good(self, *args, **options)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(tqdm.std, "time", lambda: now[0])


def frames(error: str) -> List[Any]:
    """Pictures of the bar."""
    return [match.groups() for match in map(FRAME.search, error.split("\r")) if match]


def seconds(time: str) -> int:
    minutes, rest = time.split(":")
    return 60 * int(minutes) + int(rest)


def test_speed_and_time_left_are_shown_on_a_terminal(folder: Path, clock: None) -> None:
    arguments = [*options(folder), "--training.log_every", 1, "--training.eval_every", 5]
    _, error = run_on_terminal("pretrain", folder / "in.txt", folder / "run", *arguments)
    tokens = {line["step"]: line["tokens"] for line in tiny.read_log(folder / "run", "train")}
    first, *rest = frames(error)
    # The bar, and with it its clock, begins with the end of the first step.
    assert first[1:4] == ("00:00", "?", "1")
    assert [int(frame[3]) for frame in rest] == [*range(2, 13), 12], error
    for share, elapsed, left, number, speed, _, held in rest:
        step = int(number)
        assert int(share) == round(100 * step / 12)
        assert seconds(elapsed) == STEP * (step - 1)
        # Parts of a second are cut off.
        assert seconds(left) == pytest.approx(STEP * (12 - step), abs=1)
        assert speed == f"{tokens[step] / (STEP * step):.0f}"
        assert (held is None) == (step < 5)


def test_time_left_of_a_resumed_run_is_told_by_its_own_speed(folder: Path, clock: None) -> None:
    def stop(progress: Any) -> None:
        if progress.step == 6:
            raise KeyboardInterrupt

    paths: Any = {"heldout": [folder / "held.txt"], "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        pretrain([folder / "in.txt"], folder / "run", tiny.config(), report=stop, **paths)
    _, error = run_on_terminal("pretrain", "--resume", folder / "run", "--threads", 1)
    (_, *rest) = frames(error)
    assert [int(frame[3]) for frame in rest] == [*range(7, 13), 12], error
    for _, elapsed, left, step, *_ in rest:
        assert seconds(elapsed) == STEP * (int(step) - 6)
        assert seconds(left) == pytest.approx(STEP * (12 - int(step)), abs=1)


# -- what may be missing ---------------------------------------------------------------------


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
