"""The configs in configs/ are complete, valid, and work with spaCy's own commands."""

import json
from pathlib import Path
from typing import Any, List

import pytest
import spacy
from spacy.cli import setup_cli  # noqa: F401  (registers the commands)
from spacy.cli._util import app
from spacy.cli.init_config import fill_config
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_config, load_model_from_config
from thinc.api import Config
from typer.testing import CliRunner

from spacy_elmo.pipeline.mixes import pipeline_mixes

from .util import ROOT

CONFIGS = sorted(
    path
    for path in (ROOT / "configs").glob("*.cfg")
    if "[nlp]" in path.read_text(encoding="utf-8").splitlines()
)
SENTENCES = [
    ("Paul met Mary in Paris .", "N V N I N .", "B-PER O B-PER O B-LOC O", [1, 1, 1, 1, 3, 1]),
    ("Rome is old .", "N V A .", "B-LOC O O O", [1, 1, 1, 1]),
    ("She lives in London now .", "P V I N R .", "O O O B-LOC O O", [1, 1, 1, 2, 1, 1]),
]


def run(*arguments: Any, codes: List[int] = [0]) -> str:  # noqa: B006
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in codes, result.output
    return " ".join(result.output.split())


def names() -> List[str]:
    return [path.stem for path in CONFIGS]


def test_all_are_there() -> None:
    expected = {"ner", "ner_cnn", "tagger", "tagger_cnn", "shared", "finetune", "conll2003"}
    assert expected <= set(names())


@pytest.mark.parametrize("path", CONFIGS, ids=names())
def test_filling_a_config_changes_nothing(path: Path, tmp_path: Path) -> None:
    before, after = fill_config(tmp_path / "filled.cfg", path, silent=True)
    assert before.to_str() == after.to_str()
    assert Config().from_disk(tmp_path / "filled.cfg", interpolate=False).to_str() == after.to_str()


@pytest.mark.parametrize("path", CONFIGS, ids=names())
def test_spacy_finds_a_config_valid(path: Path) -> None:
    output = run("debug", "config", path, "--paths.train", "a.spacy", "--paths.dev", "b.spacy")
    assert "Config is valid" in output


@pytest.mark.parametrize("task", ["ner", "tagger"])
def test_the_baseline_has_the_same_task_head(task: str) -> None:
    """What stands in front of the head is tuned for each; the head and the steps are not."""
    with_elmo, baseline = (
        load_config(ROOT / "configs" / f"{name}.cfg", interpolate=True)
        for name in (task, f"{task}_cnn")
    )
    assert with_elmo["nlp"]["pipeline"] == ["elmo", task]
    assert baseline["nlp"]["pipeline"] == [task]
    ours, theirs = with_elmo["components"][task], baseline["components"][task]
    tok2vecs = [str(section["model"].pop("tok2vec")) for section in (ours, theirs)]
    assert ours == theirs
    assert ["ElmoListener" in text for text in tok2vecs] == [True, False]
    for key in ("max_steps", "batcher", "eval_frequency"):
        assert with_elmo["training"][key] == baseline["training"][key]


def test_only_finetune_has_a_trainable_encoder() -> None:
    for path in CONFIGS:
        elmo = Config().from_disk(path)["components"].get("elmo")
        if elmo is not None:
            assert elmo["trainable"] is (path.stem == "finetune")
            assert elmo["trainable"] is False or elmo["learn_rate_factor"] < 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Training data, and a pipeline of three tasks that spacy train made of shared.cfg."""
    path: Path = tmp_path_factory.mktemp("shared")
    vocab = spacy.blank("en").vocab
    docs = []
    for text, tags, ents, heads in SENTENCES:
        deps = ["ROOT" if head == i else "dep" for i, head in enumerate(heads)]
        docs.append(
            Doc(
                vocab,
                words=text.split(),
                tags=tags.split(),
                ents=ents.split(),
                heads=heads,
                deps=deps,
            )
        )
    DocBin(docs=docs).to_disk(path / "data.spacy")
    output = run(
        "train",
        ROOT / "configs" / "shared.cfg",
        *("--output", path / "out"),
        *("--paths.train", path / "data.spacy", "--paths.dev", path / "data.spacy"),
        *("--training.max_steps", 30, "--training.eval_frequency", 30),
        # Labels that are this rare are no labels by default.
        *("--components.parser.min_action_freq", 1),
        *("--training.logger.@loggers", "spacy-elmo.MixLogger.v1"),
        *("--training.logger.path", path / "mixes.jsonl"),
    )
    assert "Pipeline: ['elmo', 'tagger', 'parser', 'ner']" in output
    return path


def test_train_with_three_tasks_on_one_encoder(folder: Path) -> None:
    nlp = spacy.load(folder / "out" / "model-last")
    found = pipeline_mixes(nlp)
    assert [mix.component for mix in found] == ["tagger", "parser", "ner"]
    assert not any(mix.initial for mix in found)
    assert nlp.get_pipe("elmo").listening_components == ["tagger", "parser", "ner"]
    lines = (folder / "mixes.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 30]


def test_evaluate(folder: Path) -> None:
    metrics = folder / "metrics.json"
    run("evaluate", folder / "out" / "model-last", folder / "data.spacy", "-o", metrics)
    scores = json.loads(metrics.read_text())
    assert scores["tag_acc"] > 0.9 and scores["ents_f"] > 0.8 and scores["dep_uas"] > 0.5


def test_apply(folder: Path) -> None:
    run("apply", folder / "out" / "model-last", folder / "data.spacy", folder / "applied.spacy")
    nlp = spacy.load(folder / "out" / "model-last")
    docs = list(DocBin().from_disk(folder / "applied.spacy").get_docs(nlp.vocab))
    assert len(docs) == 3 and all(doc.has_annotation("TAG") for doc in docs)


def test_benchmark_speed(folder: Path) -> None:
    arguments = ("--batches", 30, "--batch-size", 2, "--warmup", 1)
    output = run(
        "benchmark", "speed", folder / "out" / "model-last", folder / "data.spacy", *arguments
    )
    assert "words/s" in output


def test_debug_data(folder: Path) -> None:
    # It ends with 1 whenever there are so few examples, and says so.
    data = folder / "data.spacy"
    output = run(
        *("debug", "data", ROOT / "configs" / "shared.cfg"),
        *("--paths.train", data, "--paths.dev", data),
        codes=[1],
    )
    assert "Pipeline can be initialized with data" in output
    assert "Low number of examples to train a new pipeline" in output
    assert "Training pipeline: elmo, tagger, parser, ner" in output


def test_finetuning_moves_the_encoder(folder: Path) -> None:
    nlp = load_model_from_config(load_config(ROOT / "configs" / "finetune.cfg"))
    docs = list(DocBin().from_disk(folder / "data.spacy").get_docs(nlp.vocab))
    examples = [Example(Doc(nlp.vocab, words=[token.text for token in doc]), doc) for doc in docs]
    optimizer = nlp.initialize(lambda: examples)
    elmo = nlp.get_pipe("elmo")
    before = {name: p.detach().clone() for name, p in elmo.bilm.named_parameters()}
    for _ in range(3):
        nlp.update(examples, sgd=optimizer)
    after = dict(elmo.bilm.named_parameters())
    assert all(bool((after[name].detach() != before[name]).any()) for name in before)
