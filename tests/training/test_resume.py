"""Runs that are interrupted anywhere and go on to the same bits; checkpoints that are refused."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict

import pytest
from safetensors.torch import save_file

from spacy_elmo.errors import ElmoError, ElmoWarning
from spacy_elmo.training import loop
from spacy_elmo.training.checkpoint import CHECKPOINT_NAME, load_checkpoint, save_checkpoint
from spacy_elmo.training.corpus import prepare
from spacy_elmo.training.pretrain import pretrain
from spacy_elmo.training.step import TrainingStep

from . import tiny
from .runs import TEXT, assert_same_run, train

KINDS: Dict[str, Dict[str, Any]] = {
    "sentences, adam": {"optimizer": "adam", "dropout": 0.2},
    "streams, adam": {"unit": "stream", "optimizer": "adam", "dropout": 0.2},
    "sentences, adagrad": {"optimizer": "adagrad", "learn_rate": 0.1, "dropout": 0.1},
    "streams, adagrad": {"unit": "stream", "optimizer": "adagrad", "learn_rate": 0.1},
    "sentences, muon": {"optimizer": "muon", "dropout": 0.1},
}


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Uninterrupted runs by kind, each made once."""
    made: Dict[str, Path] = {}

    def whole(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("whole")
            train(made[kind], tiny.config(**KINDS[kind]))
        return made[kind]

    return whole


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_equals_one_that_was_not(
    kind: str, tmp_path: Path, whole_runs: Any
) -> None:
    # Checkpoints are at 5 and 10, evaluations at 4, 8, 12, lines of the log at 3, 6, 9, 12.
    train(tmp_path, tiny.config(**KINDS[kind]), stop_at=7)
    assert load_checkpoint(tmp_path / "run").facts["step"] == 5
    train(tmp_path, None, stop_at=9, resume=True)
    train(tmp_path, None, stop_at=12, resume=True)
    train(tmp_path, None, resume=True)
    assert_same_run(tmp_path, whole_runs(kind))


def test_two_threads_resume_as_well(tmp_path: Path) -> None:
    config = tiny.config(unit="stream", dropout=0.1, max_steps=8)
    train(tmp_path / "whole", config, threads=2)
    train(tmp_path, config, stop_at=6, threads=2)
    train(tmp_path, None, resume=True, threads=2)
    assert_same_run(tmp_path, tmp_path / "whole")


@pytest.mark.parametrize("unit", ["sentence", "stream"])
def test_summed_batches_are_resumed(unit: str, tmp_path: Path) -> None:
    # Steps of three batches across the ends of epochs; the last step has what is left.
    settings: Dict[str, Any] = {"batch_tokens": 150, "accumulate": 3, "epochs": 3, "max_steps": 0}
    config = tiny.config(unit=unit, dropout=0.2, freeze_steps=3, **settings)
    train(tmp_path / "whole", config)
    train(tmp_path, config, stop_at=7)
    assert load_checkpoint(tmp_path / "run").facts["step"] == 5
    train(tmp_path, None, resume=True)
    assert_same_run(tmp_path, tmp_path / "whole")
    assert load_checkpoint(tmp_path / "run").facts["step"] > 8


def test_epochs_and_windows_are_resumed(tmp_path: Path) -> None:
    config = tiny.config(epochs=2, max_steps=0, batch_tokens=400, checkpoint_every=3)
    train(tmp_path / "whole", config)
    train(tmp_path, config, stop_at=7)
    train(tmp_path, None, resume=True)
    assert_same_run(tmp_path, tmp_path / "whole")
    assert load_checkpoint(tmp_path / "run").facts["position"][0] >= 1


def test_a_finished_run_stays_as_it_is(tmp_path: Path, whole_runs: Any) -> None:
    whole = whole_runs("sentences, adam")
    shutil.copytree(whole / "run", tmp_path / "run")
    train(tmp_path, None, resume=True)
    assert_same_run(tmp_path, whole)
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (
        whole / "run" / "log.jsonl"
    ).read_bytes()


def test_an_early_stop_holds_after_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = loop.perplexity
    monkeypatch.setattr(loop, "perplexity", lambda *a, **k: measure(*a, **k)._replace(average=50.0))
    config = tiny.config(eval_every=2, checkpoint_every=1, patience=2, max_steps=20)
    train(tmp_path / "whole", config)
    # After the checkpoint of the step that was to be the last, before the end of the run.
    train(tmp_path, config, stop_at=6)
    train(tmp_path, None, resume=True)
    assert load_checkpoint(tmp_path / "run").facts["step"] == 6
    assert_same_run(tmp_path, tmp_path / "whole")


def test_minutes_are_counted_over_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of this clock a step takes ten seconds, and what is between two parts a day.
    now = [0.0]
    good = TrainingStep.__call__

    def call(self: TrainingStep, *args: Any, **options: Any) -> Any:
        now[0] += 10.0
        return good(self, *args, **options)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config = tiny.config(max_steps=0, epochs=100, max_minutes=2, checkpoint_every=3)
    train(tmp_path / "whole", config)
    train(tmp_path, config, stop_at=5)
    for stop_at in (8, 0):
        now[0] += 86_400.0
        train(tmp_path, None, stop_at=stop_at, resume=True)
    facts = [load_checkpoint(path / "run").facts for path in (tmp_path / "whole", tmp_path)]
    assert [(fact["step"], fact["seconds"]) for fact in facts] == [(12, 120.0)] * 2
    # The learning rate falls by the clock as well.
    assert_same_run(tmp_path, tmp_path / "whole")


def test_checkpoints_of_an_older_release_are_taken(tmp_path: Path) -> None:
    train(tmp_path, tiny.config(), stop_at=7)
    checkpoint = load_checkpoint(tmp_path / "run")
    del checkpoint.facts["window"], checkpoint.facts["finished"]
    save_checkpoint(tmp_path / "run", checkpoint)
    train(tmp_path, None, resume=True)
    assert tiny.read_log(tmp_path / "run")[-1]["step"] == 12


def test_left_over_files_do_no_harm(tmp_path: Path, whole_runs: Any) -> None:
    kind = "sentences, adam"
    train(tmp_path, tiny.config(**KINDS[kind]), stop_at=7)
    run = tmp_path / "run"
    for name in (CHECKPOINT_NAME, "run.json", "vocabulary.txt", "data/train/manifest.json"):
        (run / f"{name}.tmp").write_bytes(b"half of a fi")
    # Of a kill in the middle of a save, and a file of the user's beside it.
    (run / ".model-last.0123456789ab.tmp").mkdir()
    (run / ".model-last.0123456789ab.tmp" / "model.safetensors").write_bytes(b"half")
    (run / f".{CHECKPOINT_NAME}.ba9876543210.tmp").write_bytes(b"half of a fi")
    (run / ".notes.tmp").write_text("mine")
    # What other commands are writing there just now.
    (run / ".per-token.tsv.0123456789ab.tmp").write_text("half of a file")
    (run / ".bilm.ba9876543210.tmp").mkdir()
    (run / ".bilm.ba9876543210.tmp" / "options.json").write_text("half")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"event": "tra')
    train(tmp_path, None, resume=True)
    assert_same_run(tmp_path, whole_runs(kind))
    assert sorted(p.name for p in run.glob(".*")) == [
        ".bilm.ba9876543210.tmp",
        ".notes.tmp",
        ".per-token.tsv.0123456789ab.tmp",
    ]
    assert (run / ".bilm.ba9876543210.tmp" / "options.json").exists()


def test_two_runs_are_not_in_one_folder(tmp_path: Path, whole_runs: Any) -> None:
    pytest.importorskip("fcntl")
    kind = "sentences, adam"
    refused = []

    def intrude(progress: Any) -> None:
        # There is a checkpoint from step 5 on.
        for resume in {3: [False], 8: [False, True]}.get(progress.step, []):
            with pytest.raises(ElmoError, match="ELMO-E175.*run is in use"):
                config = None if resume else tiny.config()
                pretrain([tmp_path / "in.txt"], tmp_path / "run", config, resume=resume)
            refused.append(progress.step)

    train(tmp_path, tiny.config(**KINDS[kind]), report=intrude)
    assert refused == [3, 8, 8]
    assert_same_run(tmp_path, whole_runs(kind))


# -- refusals ------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that has a checkpoint at step 5 of 12."""
    train(tmp_path, tiny.config(unit="stream"), stop_at=6)
    return tmp_path


def test_there_must_be_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ElmoError, match="ELMO-E052"):
        train(tmp_path, None, resume=True)
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "no facts", "other version"])
def test_a_damaged_checkpoint_is_refused(damage: str, stopped: Path) -> None:
    path = stopped / "run" / CHECKPOINT_NAME
    data = path.read_bytes()
    checkpoint = load_checkpoint(stopped / "run")
    if damage == "truncated":
        path.write_bytes(data[: len(data) * 2 // 3])
    elif damage == "no facts":
        save_file(checkpoint.tensors, str(path))
    elif damage == "other version":
        metadata = {"facts": json.dumps({**checkpoint.facts, "format_version": 99})}
        save_file(checkpoint.tensors, str(path), metadata)
    else:
        path.write_bytes(b"" if damage == "empty" else b"not a checkpoint at all" * 9)
    with pytest.raises(ElmoError, match="ELMO-E053"):
        train(stopped, None, resume=True)


@pytest.mark.parametrize("change", ["shape", "missing tensor", "missing fact", "foreign tensor"])
def test_a_checkpoint_that_does_not_fit_is_refused(change: str, stopped: Path) -> None:
    checkpoint = load_checkpoint(stopped / "run")
    name = "model.softmax.bias"
    if change == "shape":
        checkpoint.tensors[name] = checkpoint.tensors[name][:1]
    elif change == "missing tensor":
        del checkpoint.tensors[name]
    elif change == "missing fact":
        del checkpoint.facts["tokens"]
    else:
        checkpoint.tensors["what.is.this"] = checkpoint.tensors[name].clone()
    save_checkpoint(stopped / "run", checkpoint)
    with pytest.raises(ElmoError, match="ELMO-E053.*does not fit the run"):
        train(stopped, None, resume=True)


def test_a_run_without_its_description_is_refused(stopped: Path) -> None:
    (stopped / "run" / "run.json").write_text("{")
    with pytest.raises(ElmoError, match="ELMO-E053.*run.json"):
        train(stopped, None, resume=True)


def test_a_folder_with_a_checkpoint_is_not_begun_again(stopped: Path) -> None:
    before = (stopped / "run" / "log.jsonl").read_bytes()
    with pytest.raises(ElmoError, match="ELMO-E055"):
        train(stopped, tiny.config())
    assert (stopped / "run" / "log.jsonl").read_bytes() == before


def test_changed_settings_are_refused_and_equal_ones_are_not(stopped: Path) -> None:
    with pytest.raises(ElmoError, match="ELMO-E056.*training.seed is 3, the run has 0") as error:
        train(stopped, tiny.config(unit="stream", seed=3), resume=True)
    assert "initial_state" not in str(error.value)
    train(stopped, tiny.config(unit="stream"), stop_at=8, resume=True)


def test_changed_inputs_are_refused_unless_allowed(stopped: Path) -> None:
    config = None
    other = tiny.write_text(stopped / "other.txt", TEXT[1:])
    with pytest.raises(ElmoError, match="ELMO-E057.*input files are not those"):
        pretrain([other], stopped / "run", config, resume=True)
    with pytest.raises(ElmoError, match="ELMO-E057"):
        pretrain([stopped / "gone.txt"], stopped / "run", config, resume=True)
    with pytest.warns(ElmoWarning, match="ELMO-W050.*input files"):
        pretrain([other], stopped / "run", config, resume=True, allow_changed_corpus=True)
    assert load_checkpoint(stopped / "run").facts["step"] == 12


def test_a_file_that_was_edited_is_noticed_without_naming_it(stopped: Path) -> None:
    tiny.write_text(stopped / "in.txt", TEXT[::-1])
    with pytest.raises(ElmoError, match="ELMO-E057"):
        pretrain([], stopped / "run", resume=True)


def test_inputs_that_are_gone_are_not_needed(stopped: Path) -> None:
    (stopped / "in.txt").unlink()
    (stopped / "held.txt").unlink()
    pretrain([], stopped / "run", resume=True)
    assert load_checkpoint(stopped / "run").facts["step"] == 12


def test_another_prepared_text_is_always_refused(stopped: Path) -> None:
    other = tiny.write_text(stopped / "other.txt", TEXT[1:])
    prepare([other], stopped / "run" / "data" / "train")
    for allow in (False, True):
        with pytest.raises(ElmoError, match="ELMO-E057.*prepared text"):
            pretrain([], stopped / "run", resume=True, allow_changed_corpus=allow)
