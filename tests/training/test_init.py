"""Adapting other models: what is taken over, what rests, what is left unchanged."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest
import torch
from typer.testing import CliRunner

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import PRESETS
from spacy_elmo.bilm.io import read_model, write_model
from spacy_elmo.bilm.scoring import perplexity
from spacy_elmo.cli import elmo_cli
from spacy_elmo.training.checkpoint import load_checkpoint
from spacy_elmo.training.pretrain import build_model

from ..bilm.writers import write_many_langs_folder
from . import tiny
from .conftest import HELD, TEXT, train

#: What is said of the old model.
OLD: Dict[str, Any] = {
    "name": "old_en",
    "licence": "CC0; see README.md for the texts",
    "training": {"steps": 10**6},
}


def hashes(folder: Path) -> Dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def old_model(folder: Path, format: str = "native", state: str = "zero") -> Path:
    """A model with the words of another text, and a fact of its own."""
    words = tiny.vocabulary([[*sentence, "zebra"] for sentence in TEXT[:30]])
    model = tiny.model(words, seed=5)
    files = model.to_files()
    files.config = replace(files.config, meta={**OLD, "language": "en"})
    if format == "bilm":
        files.tensors = {n: t for n, t in files.tensors.items() if not n.startswith("softmax.")}
        files.vocabulary = None
    write_model(files, folder, format)
    if state != "zero":
        config = json.loads((folder / "config.json").read_text())
        config["initial_state"] = state
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def encoder(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    return {name: t for name, t in tensors.items() if not name.startswith("softmax.")}


def test_rows_of_shared_words_are_taken_over(tmp_path: Path) -> None:
    init = old_model(tmp_path / "old")
    old = BiLM.load(init, softmax=True)
    words = tiny.vocabulary([*TEXT, ["brand", "new", "words"]])
    model, config = build_model(tiny.config(PRESETS["small"]), words, init)
    assert config.model.lstm == model.config.lstm == tiny.SHAPE.lstm  # the old model's shape
    rows = {word: k for k, (word, _) in enumerate(old.vocabulary or [])}
    assert "zebra" in rows and "zebra" not in words and "brand" not in rows
    fresh, _ = build_model(tiny.config(), words)
    for k, word in enumerate(words.words):
        if word in rows:
            expected = old.softmax.weight[rows[word]], old.softmax.bias[rows[word]]
        else:
            expected = fresh.softmax.weight[k], fresh.softmax.bias[k]
        assert torch.equal(model.softmax.weight[k], expected[0]), word
        assert torch.equal(model.softmax.bias[k], expected[1]), word
    tiny.assert_equal(encoder(model.state_dict()), encoder(old.state_dict()))


def test_the_vocabulary_of_a_model_keeps_all_rows_of_its_softmax(
    source: Path, tmp_path: Path
) -> None:
    text = [["\\", "C:\\temp", *sentence] for sentence in TEXT]
    tiny.model(tiny.vocabulary(text), seed=5).save(tmp_path / "old")
    old = BiLM.load(tmp_path / "old", softmax=True)
    output = train(
        source,
        tmp_path / "run",
        tiny.config(max_steps=1, learn_rate=0.0),
        init=tmp_path / "old",
        vocabulary=tmp_path / "old" / "vocabulary.txt",
    )
    model = BiLM.load(output / "model-last", softmax=True)
    assert model.vocabulary == old.vocabulary and "C:\\temp" in dict(old.vocabulary or ())
    assert torch.equal(model.softmax.weight, old.softmax.weight)
    assert torch.equal(model.softmax.bias, old.softmax.bias)


def test_a_model_without_any_shared_word_gets_a_fresh_softmax(tmp_path: Path) -> None:
    init = old_model(tmp_path / "old")
    # A softmax of other origin may even lack the boundaries.
    text = (init / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    renamed = [f"#{k}\t{line.split(chr(9))[1]}" for k, line in enumerate(text)]
    (init / "vocabulary.txt").write_text("\n".join(renamed) + "\n", encoding="utf-8")
    words = tiny.vocabulary(TEXT)
    model, _ = build_model(tiny.config(), words, init)
    fresh, _ = build_model(tiny.config(), words)
    assert torch.equal(model.softmax.weight, fresh.softmax.weight)


@pytest.mark.parametrize("format", ["native", "bilm"])
def test_the_encoder_rests_for_some_steps_and_then_moves(
    format: str, source: Path, tmp_path: Path
) -> None:
    init = old_model(tmp_path / "old", format)
    before = hashes(init)
    start = encoder(BiLM.load(init).state_dict())
    for max_steps in (3, 4):
        config = tiny.config(max_steps=max_steps, freeze_steps=3)
        output = train(source, tmp_path / f"run{max_steps}", config, init=init)
        last = BiLM.load(output / "model-last", softmax=True)
        same = [torch.equal(t, start[n]) for n, t in encoder(last.state_dict()).items()]
        # A character that the text does not have never moves.
        assert all(same) if max_steps == 3 else not any(same)
        assert last.softmax is not None
    # The weights are mapped from the file; training must not have written into it.
    assert hashes(init) == before
    assert last.config.meta["training"]["steps"] == 4


@pytest.mark.parametrize("unit, state", [("sentence", "zero"), ("stream", "primed")])
@pytest.mark.parametrize("old_state", ["primed", "carry", "zero"])
def test_the_initial_state_is_that_of_the_new_training(
    unit: str, state: str, old_state: str, source: Path, tmp_path: Path
) -> None:
    init = old_model(tmp_path / "old", state=old_state)
    assert BiLM.load(init).config.initial_state == old_state
    output = train(source, tmp_path / "run", tiny.config(unit=unit, max_steps=2), init=init)
    model = BiLM.load(output / "model-last", softmax=True)
    assert model.config.initial_state == state
    final = tiny.read_log(output, "heldout")[-1]
    assert perplexity(model, HELD).average == pytest.approx(final["average"], rel=1e-5)


def test_adapting_lowers_perplexity_in_the_new_domain(tmp_path: Path) -> None:
    """The same words in another order: only the order is there to be learned."""
    source = tiny.write_text(tmp_path / "in.txt", TEXT)
    tiny.write_text(tmp_path / "held.txt", HELD)
    general = train(source, tmp_path / "general", tiny.config(max_steps=40))
    model = general / "model-last"
    new = [sentence[::-1] for sentence in TEXT]
    tiny.write_text(source, new)
    tiny.write_text(tmp_path / "held.txt", [sentence[::-1] for sentence in HELD])
    before = perplexity(BiLM.load(model, softmax=True), [s[::-1] for s in HELD])
    adapted = train(
        source,
        tmp_path / "adapted",
        tiny.config(max_steps=40),
        init=model,
        vocabulary=general / "vocabulary.txt",
    )
    after = tiny.read_log(adapted, "heldout")[-1]
    assert after["average"] < 0.8 * before.average
    assert after["oov_rate"] == before.oov_rate and after["n_words"] == before.n_words


def test_a_many_langs_model_is_adapted_with_its_dictionaries(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = write_many_langs_folder(tmp_path / "old")
    tiny.write_text(source, [["the", "Zürich", *sentence] for sentence in TEXT])
    before, start = hashes(init), BiLM.load(init)
    monkeypatch.chdir(tmp_path)
    train(source, tmp_path / "whole", init="old")

    def stop(progress: Any) -> None:
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "run", init="old", report=stop)
    # Resumed from elsewhere: the model is found although a relative path was given.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(source, tmp_path / "run", resume=True)
    last = tiny.tensors(tmp_path / "run" / "model-last")
    tiny.assert_equal(last, tiny.tensors(tmp_path / "whole" / "model-last"))
    assert hashes(init) == before
    # Vectors of words that the text has were trained, those of others were not.
    old, new = start.token_encoder.word_embedding, last["token_encoder.word_embedding"]
    moved = (old != new).any(1).tolist()
    words = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "Zürich", "中文"]
    assert dict(zip(words, moved)) == {
        "<oov>": True,
        "<bos>": True,
        "<eos>": True,
        "<pad>": False,
        "the": True,
        "Zürich": True,
        "中文": False,
    }
    model = BiLM.load(tmp_path / "run" / "model-best", softmax=True)
    assert perplexity(model, HELD).average > 1 and model.config.char_cnn.unit == "codepoint"


def test_a_run_goes_on_without_the_model_it_began_with(source: Path, tmp_path: Path) -> None:
    init = old_model(tmp_path / "old")
    train(source, tmp_path / "whole", init=init)

    def stop(progress: Any) -> None:
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "run", init=init, report=stop)
    shutil.rmtree(init)
    # The settings as they were given, of which the shape was not used, are no change.
    train(source, tmp_path / "run", resume=True)
    tiny.assert_equal(
        tiny.tensors(tmp_path / "run" / "model-last"),
        tiny.tensors(tmp_path / "whole" / "model-last"),
    )
    assert load_checkpoint(tmp_path / "run").facts["step"] == 12
    metas = [BiLM.load(tmp_path / name / "model-last").config.meta for name in ("run", "whole")]
    assert metas[0]["begun_from"] == metas[1]["begun_from"] == OLD


def test_a_model_is_not_the_one_that_it_was_begun_from(source: Path, tmp_path: Path) -> None:
    init = old_model(tmp_path / "old")
    first = train(source, tmp_path / "first", tiny.config(max_steps=2), init=init)
    meta = BiLM.load(first / "model-last").config.meta
    assert meta["begun_from"] == OLD
    assert "name" not in meta and meta["language"] == "en" and meta["training"]["steps"] == 2
    assert meta["licence"] == "see the card of old_en, which this model was begun from"
    card = (first / "model-last" / "README.md").read_text(encoding="utf-8")
    assert "# biLM\n" in card and "| Begun from | old_en |" in card
    assert f"| Licence | {meta['licence']} |" in card and "README.md" not in card
    # A model without a name is called as its folder; what it was begun from is not lost.
    second = train(source, tmp_path / "second", tiny.config(max_steps=3), init=first / "model-last")
    found = BiLM.load(second / "model-last").config.meta
    del meta["language"]
    assert found["begun_from"] == {"name": "model-last", **meta}
    result = CliRunner().invoke(elmo_cli, ["info", str(second / "model-last")])
    told = " ".join(result.output.split())
    assert "begun from model-last, begun from old_en" in told
    assert "licence see the card of model-last" in told and "name old_en" not in told


@pytest.mark.parametrize("kind", ["bilm", "many-langs"])
def test_a_model_of_other_origin_is_named_and_can_be_written_back(
    kind: str, source: Path, tmp_path: Path
) -> None:
    if kind == "bilm":
        init = old_model(tmp_path / "old_bilm", "bilm")
    else:
        init = write_many_langs_folder(tmp_path / "old_many")
    output = train(source, tmp_path / "run", tiny.config(max_steps=2), init=init)
    files = read_model(output / "model-last")
    assert files.config.meta["begun_from"]["name"] == init.name
    assert files.config.meta["begun_from"]["source_format"] == kind
    assert not {"name", "licence", "source_format"} & set(files.config.meta)
    card = (output / "model-last" / "README.md").read_text(encoding="utf-8")
    assert "| Licence | not stated" in card and "Converted from" not in card
    write_model(files, tmp_path / "back", kind)
    assert torch.equal(
        read_model(tmp_path / "back").tensors["forward_lstm.0.bias"],
        files.tensors["forward_lstm.0.bias"],
    )
