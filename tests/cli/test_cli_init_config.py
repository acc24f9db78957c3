"""`elmo init-config` as a user runs it."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.cli.init_config import fill_config
from spacy.tokens import Doc, DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_nlp
from thinc.api import Config
from typer.testing import CliRunner

from spacy_elmo.cli import elmo_cli
from spacy_elmo.cli.init_config import make_config
from spacy_elmo.pipeline.mixes import pipeline_mixes

#: All components that `spacy init config` has templates for, and senter.
LISTENING = (
    "tagger",
    "morphologizer",
    "trainable_lemmatizer",
    "parser",
    "senter",
    "ner",
    "spancat",
    "spancat_singlelabel",
    "span_finder",
    "textcat",
    "textcat_multilabel",
    "entity_linker",
)


def run(*args: Any) -> Any:
    result = CliRunner().invoke(elmo_cli, ["init-config", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def listeners(config: Config, name: str) -> int:
    text = Config({"x": config["components"][name]}).to_str()
    return text.count("spacy-elmo.ElmoListener.v1")


@pytest.mark.parametrize("optimize", ["efficiency", "accuracy"])
def test_all_components_listen(optimize: str) -> None:
    config = make_config("en", LISTENING, optimize)
    assert config["nlp"]["pipeline"] == ["elmo", *LISTENING]
    assert {name: listeners(config, name) for name in LISTENING} == dict.fromkeys(LISTENING, 1)
    text = config.to_str()
    # Nothing is left that would listen to a tok2vec that is not there.
    assert "Tok2VecListener" not in text and "components.tok2vec" not in text
    width = {"efficiency": 96, "accuracy": 256}[optimize]
    tok2vec = config["components"]["ner"]["model"]["tok2vec"]
    assert tok2vec["encode"]["width"] == tok2vec["embed"]["width"] == width
    vectors = config["paths"]["vectors"] is not None
    assert vectors == (optimize == "accuracy")
    assert tok2vec["embed"]["embed"]["include_static_vectors"] == vectors


def test_written_config_is_complete(tmp_path: Path) -> None:
    result = run(tmp_path / "new" / "a.cfg", "--pipeline", "ner,tagger,sentencizer", "-l", "en")
    assert result.exit_code == 0 and "spacy train" in result.output
    path = tmp_path / "new" / "a.cfg"
    before, after = fill_config(tmp_path / "b.cfg", path, silent=True)
    assert before.to_str() == after.to_str()
    assert before["components"]["sentencizer"]["factory"] == "sentencizer"
    assert before["training"]["score_weights"]["ents_f"] > 0
    assert [p.name for p in path.parent.iterdir()] == ["a.cfg"]
    printed = run("-", "--pipeline", "ner,tagger,sentencizer")
    assert Config().from_str(printed.output, interpolate=False).to_str() == before.to_str()


@pytest.mark.parametrize("lang", ["xx", "de", "fi"])
def test_any_language(lang: str, tmp_path: Path) -> None:
    result = run(tmp_path / "a.cfg", "-l", lang, "-p", "ner", "-o", "accuracy")
    assert result.exit_code == 0
    # The built-in model is an English one.
    assert "[ELMO-W120]" in result.output
    assert Config().from_disk(tmp_path / "a.cfg")["nlp"]["lang"] == lang


def test_weights_of_ones_own(tmp_path: Path) -> None:
    spacy.blank("en").add_pipe("elmo").bilm.save(tmp_path / "mine")
    result = run(tmp_path / "a.cfg", "-l", "de", "-p", "ner", "--weights", tmp_path / "mine")
    assert result.exit_code == 0 and "W120" not in result.output
    config = Config().from_disk(tmp_path / "a.cfg")
    assert config["components"]["elmo"]["weights"] == str(tmp_path / "mine")


def test_encoders_in_the_list_are_left_out() -> None:
    config = make_config("en", ["tok2vec", "elmo", "ner", "ner", "transformer"])
    assert config["nlp"]["pipeline"] == ["elmo", "ner"]


def test_written_config_trains(tmp_path: Path) -> None:
    assert run(tmp_path / "a.cfg", "-p", "ner,tagger").exit_code == 0
    vocab = spacy.blank("en").vocab
    docs = [
        Doc(
            vocab,
            words=f"{who} met her in {place} .".split(),
            tags=["N", "V", "P", "I", "N", "."],
            ents=["B-PER", "O", "O", "O", "B-LOC", "O"],
        )
        for who, place in [("Paul", "London"), ("Mary", "Paris"), ("Eve", "Rome")]
    ]
    DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    config = Config().from_disk(tmp_path / "a.cfg", interpolate=False)
    config["paths"].update(train=str(tmp_path / "a.spacy"), dev=str(tmp_path / "a.spacy"))
    config["training"].update(max_steps=40, eval_frequency=20)
    nlp = init_nlp(config)
    (tmp_path / "out").mkdir()
    _, best = train_nlp(nlp, tmp_path / "out")
    trained = spacy.load(best)
    assert [mix.component for mix in pipeline_mixes(trained)] == ["ner", "tagger"]
    assert not any(mix.initial for mix in pipeline_mixes(trained))
    doc = trained(Doc(trained.vocab, words="Mary met her in Paris .".split()))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Mary", "PER"), ("Paris", "LOC")]


def test_mistakes_are_one_message(tmp_path: Path) -> None:
    (tmp_path / "a.cfg").write_text("mine")
    for arguments, code in (
        ([tmp_path / "a.cfg"], "E126"),
        ([tmp_path / "a.cfg" / "b.cfg"], "E039"),
        ([tmp_path / "b.cfg", "-l", "zzz"], "E127"),
        ([tmp_path / "b.cfg", "-p", "nerr"], "E127"),
        ([tmp_path / "b.cfg", "-p", "elmo"], "E127"),
        ([tmp_path / "b.cfg", "-w", tmp_path / "none"], "E020"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and f"[ELMO-{code}]" in result.output, (code, result.output)
        assert "Traceback" not in result.output
    assert (tmp_path / "a.cfg").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.cfg"]
    assert run(tmp_path / "a.cfg", "--force", "-p", "tagger").exit_code == 0
