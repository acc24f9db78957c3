"""Mixes of a pipeline as numbers, their logger, and their figures."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np
import pytest
import spacy
from PIL import Image
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop

from spacy_elmo.errors import ElmoError, ElmoWarning
from spacy_elmo.pipeline.logger import build_mix_logger_v1, read_history
from spacy_elmo.pipeline.mix_plots import plot_history, plot_mixes
from spacy_elmo.pipeline.mixes import Mix, pipeline_mixes

from .conftest import LISTENER, examples, mixes, train

WITH_OUTPUT = {
    "model": {
        "@architectures": "spacy.Tagger.v2",
        "tok2vec": {
            "@architectures": "spacy-elmo.ConcatEmbed.v1",
            "width": 12,
            "elmo": LISTENER,
            "encode": {
                "@architectures": "spacy.MaxoutWindowEncoder.v2",
                "width": 12,
                "window_size": 1,
                "maxout_pieces": 2,
                "depth": 1,
            },
            "output_mix": True,
        },
    }
}


def test_shares_and_gamma_of_every_task(make_nlp: Callable[..., Any]) -> None:
    nlp = make_nlp("tagger", "ner")
    assert pipeline_mixes(nlp) == []
    train(nlp, 0)
    for mix, name in zip(pipeline_mixes(nlp), ["tagger", "ner"]):
        assert mix == Mix(name, "input", pytest.approx([1 / 3] * 3), 1.0, True, True)
    node = mixes(nlp, "ner")[0]
    node.set_param("w", np.log(np.array([1.0, 2.0, 5.0], np.float32)))
    node.set_param("gamma", np.array([0.5], np.float32))
    tagger, ner = pipeline_mixes(nlp)
    assert tagger.initial and not ner.initial
    assert ner.weights == pytest.approx([1 / 8, 2 / 8, 5 / 8]) and ner.gamma == 0.5


def test_any_change_is_seen(make_nlp: Callable[..., Any]) -> None:
    nlp = make_nlp("tagger")
    train(nlp, 1)
    # The tagger's output layer begins at zero: nothing comes through it in the first update.
    assert pipeline_mixes(nlp)[0].weights == pytest.approx([1 / 3] * 3, abs=1e-6)
    train(nlp, 3)
    mix = pipeline_mixes(nlp)[0]
    assert not mix.initial and mix.gamma != 1.0
    assert max(mix.weights) - min(mix.weights) > 1e-3


def test_own_start_values_and_fixed_mixes(weights: str) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": weights})
    listener = {**LISTENER, "init_weights": [0.0, 0.0, 3.0], "trainable": False}
    nlp.add_pipe(
        "tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}}
    )
    train(nlp, 3)
    (mix,) = pipeline_mixes(nlp)
    assert mix.initial and not mix.trainable
    assert mix.weights[2] == pytest.approx(np.exp(3) / (2 + np.exp(3)))


def test_output_mix_replaced_listeners_and_disabled_components(weights: str) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": weights})
    nlp.add_pipe("tagger", config=WITH_OUTPUT)
    nlp.add_pipe(
        "tagger",
        name="second",
        config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}},
    )
    train(nlp, 3)
    before = pipeline_mixes(nlp)
    assert [(m.component, m.position) for m in before] == [
        ("tagger", "input"),
        ("tagger", "output"),
        ("second", "input"),
    ]
    assert before[0].weights != before[1].weights
    nlp.replace_listeners("elmo", "second", ["model.tok2vec"])
    nlp.disable_pipe("second")
    assert pipeline_mixes(nlp) == before


def run_logger(nlp: Any, path: Path) -> str:
    """Log a training of three evaluations; gives what the console showed."""
    out = io.StringIO()
    log, finish = build_mix_logger_v1(str(path))(nlp, out, out)
    node = mixes(nlp, "tagger")[0]
    for step in range(4):
        if step == 3:
            log(None)
            continue
        node.set_param("gamma", np.array([1.0 + step], np.float32))
        losses = {name: 0.0 for name in nlp.pipe_names}
        info = {"losses": losses, "other_scores": {}, "score": step / 10}
        log({"epoch": 0, "step": 10 * step, **info})
    finish()
    return out.getvalue()


def test_logger_writes_each_evaluation(make_nlp: Callable[..., Any], tmp_path: Path) -> None:
    nlp = make_nlp("tagger")
    train(nlp, 0)
    path = tmp_path / "new" / "log.jsonl"
    console = run_logger(nlp, path)
    # The console logger's table is there as ever.
    assert "LOSS TAGGER" in console and len(console.splitlines()) == 5
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert [line["mixes"][0]["gamma"] for line in lines] == [1.0, 2.0, 3.0]
    records = read_history(path)
    assert records[2].score == 0.2 and records[2].mixes == pipeline_mixes(nlp)
    # A second training begins the file anew.
    run_logger(nlp, path)
    assert len(read_history(path)) == 3


def test_logger_is_registered_and_used_by_the_trainer(
    make_nlp: Callable[..., Any], tmp_path: Path
) -> None:
    registered = spacy.registry.get("loggers", "spacy-elmo.MixLogger.v1")
    assert registered is build_mix_logger_v1
    config = make_nlp("tagger").config
    gold = [example.reference for example in examples(spacy.blank("en"))]
    DocBin(docs=gold).to_disk(tmp_path / "data.spacy")
    config["paths"].update(train=str(tmp_path / "data.spacy"), dev=str(tmp_path / "data.spacy"))
    config["training"].update(
        max_steps=12,
        eval_frequency=4,
        logger={"@loggers": "spacy-elmo.MixLogger.v1", "path": str(tmp_path / "log.jsonl")},
    )
    config["training"]["optimizer"]["learn_rate"] = 0.05
    nlp = init_nlp(config)
    out = io.StringIO()
    (tmp_path / "out").mkdir()
    train_loop(nlp, tmp_path / "out", stdout=out, stderr=out)
    # The console's table goes on as ever.
    assert len(re.findall(r"^ +\d+ +\d+ +\d", out.getvalue(), re.MULTILINE)) == 4
    records = read_history(tmp_path / "log.jsonl")
    assert [record.step for record in records] == [0, 4, 8, 12]
    epochs = [record.epoch for record in records]
    assert epochs == sorted(epochs) and epochs[-1] > epochs[0] == 0
    # What the trainer found at each evaluation, and how the mix stood then.
    best = spacy.load(tmp_path / "out" / "model-best")
    scores = [record.score for record in records]
    assert max(scores) == pytest.approx(best.meta["performance"]["tag_acc"], rel=1e-6)
    assert max(scores) > scores[0]
    last = pipeline_mixes(spacy.load(tmp_path / "out" / "model-last"))
    assert records[-1].mixes == last and [mix.component for mix in last] == ["tagger"]
    assert len({record.mixes[0].gamma for record in records[1:]}) == 3


def test_logger_warns_without_mixes_and_refuses_a_bad_path(
    make_nlp: Callable[..., Any], tmp_path: Path
) -> None:
    nlp = make_nlp()
    with pytest.warns(ElmoWarning, match="ELMO-W121"):
        build_mix_logger_v1(str(tmp_path / "log.jsonl"))(nlp, io.StringIO(), io.StringIO())
    (tmp_path / "file").write_text("")
    with pytest.raises(ElmoError, match="ELMO-E039"), pytest.warns(ElmoWarning):
        build_mix_logger_v1(str(tmp_path / "file" / "log.jsonl"))(nlp, io.StringIO(), io.StringIO())


@pytest.mark.parametrize(
    "text", ["", "{}\n", "no json\n", "5\n", '{"epoch": 0, "step": 0, "score": 0, "mixes": []}\n']
)
def test_other_files_are_no_history(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(ElmoError, match="ELMO-E125"):
        read_history(tmp_path / "log.jsonl")
    with pytest.raises(ElmoError, match="ELMO-E125"):
        read_history(tmp_path / "none.jsonl")


def example(name: str, *weights: float, **settings: Any) -> Mix:
    values = {"gamma": 1.25, "initial": False, "trainable": True, **settings}
    return Mix(name, "input", list(weights), **values)


def svg_texts(path: Path) -> str:
    """Texts of a figure; matplotlib keeps them as comments beside the outlines."""
    ElementTree.parse(path)
    return path.read_text(encoding="utf-8")


def test_figure_shows_each_share(tmp_path: Path) -> None:
    panels = [
        ("ner", example("ner", 0.125, 0.25, 0.625)),
        ("a$b", example("tagger", 1 / 3, 1 / 3, 1 / 3, initial=True)),
    ]
    plot_mixes(panels, tmp_path / "mixes.svg")
    text = svg_texts(tmp_path / "mixes.svg")
    for shown in ("0.125", "0.625", "LSTM 2", "token layer", "not trained", "ner"):
        assert f"<!-- {shown}" in text or shown in text, shown
    plot_mixes(panels, tmp_path / "mixes.png")
    with Image.open(tmp_path / "mixes.png") as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    # Bars in the colour of the palette, on white.
    assert (pixels == (0x00, 0x72, 0xB2)).all(axis=1).mean() > 0.03
    assert (pixels == 255).all(axis=1).mean() > 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mixes.png", "mixes.svg"]


def frames(path: Path) -> List[Tuple[float, float, float, float]]:
    """Left, top, right and bottom of each axes' background in an SVG."""
    svg = "{http://www.w3.org/2000/svg}"
    found = []
    for group in ElementTree.parse(path).iter(f"{svg}g"):
        if group.get("id", "").startswith("axes_"):
            outline = next(group.iter(f"{svg}path")).get("d", "")
            numbers = [float(number) for number in re.findall(r"[\d.]+", outline)]
            x, y = numbers[::2], numbers[1::2]
            found.append((min(x), min(y), max(x), max(y)))
    return found


def test_panels_stand_side_by_side(make_nlp: Callable[..., Any], tmp_path: Path) -> None:
    panels = [("ner", example("ner", 0.1, 0.2, 0.7)), ("tagger", example("tagger", 0.5, 0.3, 0.2))]
    plot_mixes(panels, tmp_path / "mixes.svg")
    first, second = frames(tmp_path / "mixes.svg")
    # In one row, the first on the left, and as large as each other.
    assert first[1::2] == second[1::2] and first[2] < second[0]
    assert first[2] - first[0] == pytest.approx(second[2] - second[0], rel=0.01)
    text = svg_texts(tmp_path / "mixes.svg")
    assert text.index("<!-- ner") < text.index('id="axes_2"') < text.index("<!-- tagger")
    # Of a training: a column for each mix, gamma below the shares.
    nlp = make_nlp("tagger", "ner")
    train(nlp, 0)
    run_logger(nlp, tmp_path / "log.jsonl")
    plot_history(read_history(tmp_path / "log.jsonl"), tmp_path / "moved.svg")
    above, beside, below, last = frames(tmp_path / "moved.svg")
    assert above[1::2] == beside[1::2] and below[1::2] == last[1::2] and above[3] < below[1]
    assert above[::2] == below[::2] and beside[::2] == last[::2] and above[2] < beside[0]
    text = svg_texts(tmp_path / "moved.svg")
    assert text.index("<!-- tagger") < text.index('id="axes_2"') < text.index("<!-- ner")
    assert text.index("<!-- ner") < text.index('id="axes_3"') < text.index("<!-- training step")


def test_history_figure_has_a_line_a_layer(make_nlp: Callable[..., Any], tmp_path: Path) -> None:
    nlp = make_nlp("tagger")
    train(nlp, 0)
    run_logger(nlp, tmp_path / "log.jsonl")
    plot_history(read_history(tmp_path / "log.jsonl"), tmp_path / "moved.svg")
    text = svg_texts(tmp_path / "moved.svg").lower()
    for colour in ("#0072b2", "#d55e00", "#009e73"):
        assert f"stroke: {colour}" in text
    assert "training step" in text


def test_figures_that_cannot_be_written(tmp_path: Path) -> None:
    panels = [("ner", example("ner", 0.5, 0.5))]
    for name, code in (("a.gif", "E128"), ("a", "E128"), ("file/a.png", "E039")):
        (tmp_path / "file").write_text("")
        with pytest.raises(ElmoError, match=f"ELMO-{code}"):
            plot_mixes(panels, tmp_path / name)
