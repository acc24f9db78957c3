"""Whole runs: what is written, what is told before, vocabularies, starting from other models."""

import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import PRESETS
from spacy_elmo.errors import ElmoError, ElmoWarning
from spacy_elmo.training.config import PretrainConfig, TrainingConfig
from spacy_elmo.training.corpus import open_prepared
from spacy_elmo.training.pretrain import pretrain
from spacy_elmo.training.vocabulary import Vocabulary

from . import tiny
from .conftest import TEXT, train


def test_what_a_run_leaves(source: Path, tmp_path: Path) -> None:
    output = train(source, tmp_path / "deep" / "run")
    assert sorted(path.name for path in output.iterdir()) == [
        "checkpoint.safetensors",
        "data",
        "lock",
        "log.jsonl",
        "model-best",
        "model-last",
        "run.json",
        "vocabulary.txt",
    ]
    words = Vocabulary.load(output / "vocabulary.txt")
    counted = tiny.vocabulary(TEXT)
    assert words == counted
    for name in ("model-best", "model-last"):
        model = BiLM.load(output / name, softmax=True)
        assert model.vocabulary == list(zip(words.words, words.counts.tolist()))
        assert model.embed([["the", "unseen", "cat"]])[0].shape == (3, 3, 16)
        assert model.config.initial_state == "zero"
    run = json.loads((output / "run.json").read_text(encoding="utf-8"))
    assert PretrainConfig.from_dict(run["config"]) == tiny.config()


def test_runs_are_equal_to_the_bit_and_seeds_differ(source: Path, tmp_path: Path) -> None:
    a, b, c = (
        tiny.tensors(train(source, tmp_path / name, tiny.config(seed=seed)) / "model-last")
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    tiny.assert_equal(a, b)
    assert not torch.equal(a["softmax.weight"], c["softmax.weight"])
    assert not torch.equal(a["forward_lstm.0.bias"], c["forward_lstm.0.bias"])


def test_the_default_shape_is_not_changed_by_a_run(source: Path, tmp_path: Path) -> None:
    before = PRESETS["mini"].to_dict()
    settings = TrainingConfig(max_steps=1, batch_tokens=4, eval_tokens=1)
    train(source, tmp_path / "run", PretrainConfig(training=settings))
    assert PRESETS["mini"].to_dict() == before == PretrainConfig().model.to_dict()


def test_the_order_of_a_vocabulary_does_not_matter(source: Path, tmp_path: Path) -> None:
    expected = tiny.tensors(train(source, tmp_path / "counted") / "model-last")
    lines = (tmp_path / "counted" / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    rng = np.random.default_rng(0)
    for name, given in (
        ("shuffled", lines),
        ("other", lines),
        ("without counts", [line.split("\t")[0] for line in lines]),
    ):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(rng.permutation(given)) + "\n", encoding="utf-8")
        output = train(source, tmp_path / name, vocabulary=path)
        tiny.assert_equal(tiny.tensors(output / "model-last"), expected)


def test_a_vocabulary_is_limited(source: Path, tmp_path: Path) -> None:
    config = tiny.config(vocabulary_size=20, min_count=2)
    with pytest.warns(ElmoWarning, match="ELMO-W010"):
        output = train(source, tmp_path / "run", config)
    words = Vocabulary.load(output / "vocabulary.txt")
    assert len(words) == 20
    assert int(words.counts[2]) == sum(w not in words for s in TEXT for w in s)


def test_what_is_told_before_the_first_step(source: Path, tmp_path: Path) -> None:
    long = tiny.write_text(source, [*TEXT, ["Donaudampfschifffahrt", "überlang-überlang"]])
    told: List[str] = []

    def report(progress: Any) -> None:
        told.append("step")

    config = tiny.config(vocabulary_size=40, accumulate=2)
    train(long, tmp_path / "run", config, announce=told.append, report=report)
    before = "\n".join(told[: told.index("step")])
    corpus = open_prepared(tmp_path / "run" / "data" / "train")
    words = Vocabulary.load(tmp_path / "run" / "vocabulary.txt")
    n_oov = sum(count for word, count in corpus.counts() if word not in words)
    assert f"201 sentences, {corpus.n_tokens:,} tokens" in before
    assert f"Out of vocabulary       {n_oov} tokens ({n_oov / corpus.n_tokens:.2%})" in before
    assert "Longer than 12 bytes    2 types" in before
    assert "Softmax: 0 MiB with optimiser" in before
    assert "About 12 steps of 128 predictions" in before


@pytest.mark.parametrize(
    "optimizer, copies",
    [("adam", 3), ("adagrad", 2), ("muon", 3)],
    ids=["adam", "adagrad", "muon"],
)
def test_the_memory_that_the_softmax_needs(
    optimizer: str, copies: int, source: Path, tmp_path: Path
) -> None:
    # Of 8 numbers and a bias each.
    words = "".join(f"w{i}\n" for i in range(30_000))
    (tmp_path / "words.txt").write_text("the\n.\n" + words)
    told: List[str] = []
    config = tiny.config(optimizer=optimizer, max_steps=1, n_negatives=50)
    with pytest.warns(ElmoWarning, match="ELMO-W010"):
        train(
            source,
            tmp_path / "run",
            config,
            vocabulary=tmp_path / "words.txt",
            announce=told.append,
        )
    mib = 30_005 * 9 * 4 * copies / 2**20
    assert f"Softmax: {mib:,.0f} MiB with optimiser" in "\n".join(told)


# -- held-out text ---------------------------------------------------------------------------


def test_without_held_out_text_every_hundredth_sentence_is_held_out(tmp_path: Path) -> None:
    source = tiny.write_text(tmp_path / "in.txt", tiny.sentences(250))
    output = train(source, tmp_path / "run", heldout=[])
    train_, held = (open_prepared(output / "data" / part) for part in ("train", "heldout"))
    text = tiny.sentences(250)
    assert held.sentences(np.arange(2)) == [text[99], text[199]] and len(held) == 2
    assert train_.sentences(np.arange(len(train_))) == [
        s for i, s in enumerate(text) if i not in (99, 199)
    ]
    assert {line["n_sentences"] for line in tiny.read_log(output, "heldout")} == {2}


def test_too_little_text_to_hold_any_out(tmp_path: Path) -> None:
    source = tiny.write_text(tmp_path / "in.txt", TEXT[:99])
    with pytest.raises(ElmoError, match="ELMO-E082.*only 99 sentences.*every 100th"):
        train(source, tmp_path / "run", heldout=[])
    tiny.write_text(source, TEXT[:100])
    train(source, tmp_path / "run", tiny.config(max_steps=1), heldout=[])


# -- bad input -------------------------------------------------------------------------------


def assert_nothing_was_trained(output: Path) -> None:
    assert not (output / "log.jsonl").exists()
    assert not list(output.glob("model-*")) and not (output / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("where", ["input", "heldout"])
def test_bad_text_is_found_before_the_first_step(where: str, source: Path, tmp_path: Path) -> None:
    bad = tmp_path / "latin-1.txt"
    bad.write_bytes("ein Satz .\nund noch einer für später .\n".encode("latin-1"))
    options: Dict[str, Any] = {"heldout": [tmp_path / "held.txt"]}
    inputs = [source, bad]
    if where == "heldout":
        inputs, options = [source], {"heldout": [bad]}
    with pytest.raises(ElmoError, match=r"ELMO-E064.*latin-1.txt, line 2: .*byte 17.*0xfc"):
        pretrain(inputs, tmp_path / "run", tiny.config(), **options)
    assert_nothing_was_trained(tmp_path / "run")


def test_an_empty_shard_is_found_before_the_first_step(source: Path, tmp_path: Path) -> None:
    (tmp_path / "in-2.txt").write_text("\n\n")
    with pytest.raises(ElmoError, match="ELMO-E067.*in-2.txt"):
        pretrain([tmp_path / "in*.txt"], tmp_path / "run", tiny.config())
    assert_nothing_was_trained(tmp_path / "run")


@pytest.mark.parametrize(
    "options, code",
    [
        ({"init": "no/such/model"}, "E020"),
        ({"vocabulary": "no-such-file.txt"}, "E073"),
    ],
)
def test_other_files_are_checked_before_the_text_is_read(
    options: Any, code: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(ElmoError, match=f"ELMO-{code}"):
        train(source, tmp_path / "run", **options)
    assert not (tmp_path / "run" / "data").exists()


def test_the_output_must_be_a_folder(source: Path, tmp_path: Path) -> None:
    # The output folder was forgotten: the last input is taken for it.
    with pytest.raises(ElmoError, match="ELMO-E083.*held.txt cannot be made.*folder of the run"):
        pretrain([source], tmp_path / "held.txt", tiny.config())


def test_a_text_too_short_for_streams(source: Path, tmp_path: Path) -> None:
    config = tiny.config(unit="stream", batch_tokens=10_000)
    with pytest.raises(ElmoError, match="ELMO-E080"):
        train(source, tmp_path / "run", config)


def test_dictionaries_cannot_be_configured(source: Path, tmp_path: Path) -> None:
    shape = {"char_cnn": {"unit": "codepoint", "n_characters": 99}}
    config = PretrainConfig.from_dict({"model": shape})
    with pytest.raises(ElmoError, match="ELMO-E051.*dictionaries"):
        train(source, tmp_path / "run", config)


def test_a_run_that_never_reached_a_checkpoint_can_be_begun_again(
    source: Path, tmp_path: Path
) -> None:
    def stop(progress: Any) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "run", report=stop)
    assert tiny.read_log(tmp_path / "run")
    train(source, tmp_path / "run")
    train(source, tmp_path / "whole")
    logs = [tiny.without_times(tiny.read_log(tmp_path / name)) for name in ("run", "whole")]
    assert logs[0] == logs[1]
