"""Settings: what is refused, the schedule of the learn rate, presets, the example file."""

import math
import re
from dataclasses import asdict, fields, replace
from typing import Any, Dict

import pytest
import torch
from confection import Config

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import PRESETS
from spacy_elmo.errors import ElmoError
from spacy_elmo.training.config import PretrainConfig, TrainingConfig

from ..util import ROOT


def test_the_example_file_holds_exactly_the_defaults() -> None:
    values = Config().from_disk(ROOT / "configs" / "pretrain.cfg")
    assert PretrainConfig.from_dict(values) == PretrainConfig()
    # And every one of them, so that it can serve as the list of settings.
    assert list(values["training"]) == [f.name for f in fields(TrainingConfig)]


@pytest.mark.parametrize("name", ["en_mini.cfg", "pretrain.cfg"])
def test_files_of_settings_can_be_read(name: str) -> None:
    path = ROOT / "configs" / name
    if path.exists():
        PretrainConfig.from_dict(Config().from_disk(path))


def test_nothing_given_is_the_default_and_dictionaries_come_back() -> None:
    assert PretrainConfig.from_dict({}) == PretrainConfig()
    changed = PretrainConfig(
        replace(PRESETS["small"], initial_state="primed"),
        TrainingConfig(unit="stream", learn_rate=0.5, max_minutes=1.5, seed=3),
    )
    assert PretrainConfig.from_dict(changed.to_dict()) == changed


def test_a_shape_is_a_preset_with_changes() -> None:
    found = PretrainConfig.from_dict(
        {
            "model": {
                "preset": "small",
                "lstm": {"cell_dim": 99, "cell_clip": None, "proj_clip": 5},
                "char_cnn": {"filters": [[1, 2], [3, 4]]},
            },
            "training": {"max_minutes": 3},
        }
    )
    small = PRESETS["small"]
    assert found.model.lstm == replace(small.lstm, cell_dim=99, cell_clip=None, proj_clip=5.0)
    assert found.model.char_cnn == replace(small.char_cnn, filters=((1, 2), (3, 4)))
    assert isinstance(found.training.max_minutes, float)
    assert PRESETS["small"].lstm.cell_dim == 1024


@pytest.mark.parametrize(
    "values, message",
    [
        ({"trainig": {}}, "unknown section 'trainig'"),
        ({"training": 3}, "training is 3, a section is expected"),
        ({"model": {"preset": "huge"}}, "model.preset is 'huge', known are mini, small"),
        ({"model": {"preset": [1]}}, "model.preset is [1]"),
        ({"model": {"cell_dim": 3}}, "unknown key model.cell_dim"),
        ({"model": {"lstm": {"cells": 3}}}, "unknown key model.lstm.cells, known are"),
        ({"model": {"lstm": 3}}, "model.lstm is 3, a section is expected"),
        ({"model": {"lstm": {"cell_dim": "3"}}}, "model.lstm.cell_dim is '3' (str), an integer"),
        ({"model": {"char_cnn": {"filters": [3]}}}, "a list of [width, count] pairs is expected"),
        ({"training": {"lr": 1}}, "unknown key training.lr, known are accumulate, batch_tokens"),
        ({"training": {"epochs": 1.5}}, "training.epochs is 1.5 (float), an integer is expected"),
        ({"training": {"epochs": True}}, "training.epochs is True (bool), an integer"),
        ({"training": {"learn_rate": "fast"}}, "'fast' (str), a number is expected"),
        ({"training": {"bf16": 1}}, "training.bf16 is 1 (int), true or false is expected"),
        ({"training": {"unit": 1}}, "training.unit is 1 (int), a string is expected"),
    ],
)
def test_unknown_names_and_wrong_types_are_refused(values: Dict[str, Any], message: str) -> None:
    with pytest.raises(ElmoError, match=r"ELMO-E051.*" + re.escape(message)):
        PretrainConfig.from_dict(values)


@pytest.mark.parametrize(
    "setting",
    [
        {"unit": "paragraph"},
        {"optimizer": "sgd"},
        {"schedule": "step"},
        {"batch_tokens": 0},
        {"accumulate": 0},
        {"epochs": 0},
        {"eval_every": 0},
        {"checkpoint_every": 0},
        {"log_every": -1},
        {"max_steps": -1},
        {"seed": -1},
        {"n_negatives": -8},
        {"vocabulary_size": 3},
        {"dropout": 1.0},
        {"dropout": math.nan},
        {"beta2": 1.0},
        {"learn_rate": 0.0},
        {"learn_rate": math.nan},
        {"learn_rate": math.inf},
        {"final_learn_rate": 1.5},
        {"eps": 0.0},
        {"clip_norm": -1.0},
        {"loss_scale": 0.0},
        {"max_minutes": -1.0},
        {"unit": "stream", "batch_tokens": 19},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(setting: Dict[str, Any]) -> None:
    name = list(setting)[-1]
    with pytest.raises(ElmoError, match=f"ELMO-E051.*{name} is "):
        PretrainConfig.from_dict({"training": setting})


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ElmoError) as error:
        PretrainConfig.from_dict({"training": {"epochs": 0, "patience": -1, "dropout": 2.0}})
    assert all(name in str(error.value) for name in ("epochs", "patience", "dropout"))
    with pytest.raises(ElmoError, match="ELMO-E010.*cell_dim.*max_characters"):
        model = {"lstm": {"cell_dim": 0}, "char_cnn": {"max_characters": 2}}
        PretrainConfig.from_dict({"model": model})


def test_learn_rates_rise_and_fall() -> None:
    base = TrainingConfig(learn_rate=1.0, warmup_steps=10, final_learn_rate=0.1)
    cosine, linear, constant = (
        replace(base, schedule=schedule).learn_rate_at
        for schedule in ("cosine", "linear", "constant")
    )
    assert [constant(step, 0.0) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1, 1])
    assert constant(100, 1.0) == 1.0
    progress = (0.0, 0.25, 0.5, 1.0, 1.5)
    assert [linear(100, p) for p in progress] == pytest.approx([1, 0.775, 0.55, 0.1, 0.1])
    quarter = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4))
    assert [cosine(100, p) for p in progress] == pytest.approx([1, quarter, 0.55, 0.1, 0.1])
    # Both at once: warm-up and fall multiply.
    assert linear(4, 0.5) == pytest.approx(0.275)
    assert replace(base, warmup_steps=0).learn_rate_at(0, 0.0) == 1.0


@pytest.mark.parametrize(
    "name, n_parameters",
    [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)],
)
def test_presets_have_the_size_of_the_published_models(name: str, n_parameters: int) -> None:
    model = BiLM(PRESETS[name], device=torch.device("meta"))
    assert sum(p.numel() for p in model.parameters()) == n_parameters


def test_defaults_are_valid() -> None:
    assert TrainingConfig().validate() == TrainingConfig(**asdict(TrainingConfig()))
    for shape in PRESETS.values():
        shape.validate()
