"""What is kept of the layers, with mixes given as numbers or learned by a task."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy

from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, embed_corpus, read_embeddings
from spacy_elmo.embedding.learned import learned_mix
from spacy_elmo.embedding.selection import Selection, explicit_mix
from spacy_elmo.errors import ElmoError

from .corpus import LINES, direct, write_lines

LAYERS = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)


def test_kinds() -> None:
    assert Selection("all").apply(LAYERS) is LAYERS
    np.testing.assert_array_equal(Selection("top").apply(LAYERS), LAYERS[2])
    np.testing.assert_allclose(
        Selection("average").apply(LAYERS), (LAYERS[0] + LAYERS[1] + LAYERS[2]) / 3, atol=1e-6
    )
    mix = Selection("mix", (0.2, 0.5, -0.3), gamma=2.0).apply(LAYERS)
    np.testing.assert_allclose(
        mix, 2 * (0.2 * LAYERS[0] + 0.5 * LAYERS[1] - 0.3 * LAYERS[2]), atol=1e-6
    )
    assert mix.dtype == np.float32
    with pytest.raises(ElmoError, match="E035"):
        Selection("best")


def test_numbers() -> None:
    assert explicit_mix("0.2, .5,3e-1") == Selection("mix", (0.2, 0.5, 0.3))
    assert explicit_mix("model:ner") is None
    for spec in ("nan,1,1", "inf,0,0"):
        with pytest.raises(ElmoError, match="E132"):
            explicit_mix(spec)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_learned_mix_gives_what_the_task_sees(
    layer_norm: bool, bilm: BiLM, tmp_path: Path
) -> None:
    nlp = pipeline(bilm, tmp_path, layer_norm)
    nlp.to_disk(tmp_path / "trained")
    selection, own = learned_mix(f"{tmp_path / 'trained'}:tagger")
    source = write_lines(tmp_path / "in.txt", ["the cat sees a dog .", "", "the old\u00a0dog !"])
    embed_corpus(own, source, tmp_path / "a.npz", EmbedOptions(selection, lang="en"))
    mix = scalar_mix(nlp, "tagger")
    for item, line in zip(
        read_embeddings(tmp_path / "a.npz"), source.read_text("utf-8").split("\n")
    ):
        doc = nlp.get_pipe("elmo")(nlp.make_doc(line.strip()))
        (expected,) = mix.predict([doc._.elmo_layers])
        np.testing.assert_allclose(item.vectors, expected, atol=2e-5)
    # The component's own mix is there as well.
    own_mix, _ = learned_mix(f"{tmp_path / 'trained'}:elmo")
    np.testing.assert_allclose(own_mix.weights, [1 / 3] * 3, atol=1e-6)
    # The only task needs no name.
    assert learned_mix(str(tmp_path / "trained"))[0].weights == selection.weights


def scalar_mix(nlp: Any, name: str) -> Any:
    return next(n for n in nlp.get_pipe(name).model.walk() if n.name == "elmo_scalar_mix")


def pipeline(bilm: BiLM, folder: Path, layer_norm: bool = False, *more: str) -> Any:
    """A pipeline whose tasks have mixes of their own."""
    bilm.save(folder / "weights")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(folder / "weights")})
    listener = {"@architectures": "spacy-elmo.ElmoListener.v1", "layer_norm": layer_norm}
    for name in ("tagger", *more):
        config = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}}
        nlp.add_pipe("tagger", name=name, config=config).add_label("N")
    nlp.initialize()
    rng = np.random.default_rng(1)
    for name in ("tagger", *more):
        mix = scalar_mix(nlp, name)
        for parameter in ("w", "gamma", *(("G", "b") if layer_norm else ())):
            shape = mix.get_param(parameter).shape
            mix.set_param(parameter, rng.normal(size=shape).astype(np.float32))
    return nlp


def test_mixes_that_cannot_be_found(bilm: BiLM, tmp_path: Path) -> None:
    pipeline(bilm, tmp_path, False, "other").to_disk(tmp_path / "two")
    spacy.blank("en").to_disk(tmp_path / "blank")
    for spec, problem in (
        (str(tmp_path / "two"), "2 components.*tagger, other"),
        (f"{tmp_path / 'two'}:ner", "no component 'ner'.*tagger, other"),
        (str(tmp_path / "blank"), "0 components"),
        (str(tmp_path / "none"), "cannot be loaded"),
    ):
        with pytest.raises(ElmoError, match=f"E132.*{problem}"):
            learned_mix(spec)


def test_mixes_that_do_not_fit(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    for mix, problem in (
        (Selection("mix", (0.5, 0.5)), "2 weights, but the model has 3 layers"),
        (Selection("mix", (1.0, 0.0, 0.0), gain=(1.0,) * 4, bias=(0.0,) * 4), "4 wide"),
    ):
        with pytest.raises(ElmoError, match=f"E132.*{problem}"):
            embed_corpus(bilm, source, tmp_path / "a.npz", EmbedOptions(mix))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def test_a_mix_of_a_corpus(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    mix = Selection("mix", (0.2, 0.5, 0.3))
    embed_corpus(bilm, source, tmp_path / "a.hdf5", EmbedOptions(mix))
    for item, layers in zip(read_embeddings(tmp_path / "a.hdf5"), direct(bilm, LINES)):
        expected = np.tensordot([0.2, 0.5, 0.3], layers, 1)
        np.testing.assert_allclose(item.vectors, expected, atol=1e-5)


def test_of_two_mixes_of_a_task_the_one_at_its_input_is_meant(bilm: BiLM, tmp_path: Path) -> None:
    bilm.save(tmp_path / "weights")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": str(tmp_path / "weights")})
    tok2vec = {
        "@architectures": "spacy-elmo.ConcatEmbed.v1",
        "width": 8,
        "output_mix": True,
        "elmo": {"@architectures": "spacy-elmo.ElmoListener.v1"},
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2",
            "width": 8,
            "attrs": ["NORM"],
            "rows": [50],
            "include_static_vectors": False,
        },
        "encode": {
            "@architectures": "spacy.MaxoutWindowEncoder.v2",
            "width": 8,
            "depth": 1,
            "window_size": 1,
            "maxout_pieces": 2,
        },
    }
    config = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}}
    nlp.add_pipe("tagger", config=config).add_label("N")
    nlp.initialize()
    concat = next(n for n in nlp.get_pipe("tagger").model.walk() if n.name == "elmo_concat_embed")
    for part, w in (("elmo", [3.0, 2.0, 1.0]), ("output", [0.0, 0.0, 9.0])):
        node = next(n for n in concat.get_ref(part).walk() if n.name == "elmo_scalar_mix")
        node.set_param("w", np.array(w, np.float32))
    nlp.to_disk(tmp_path / "trained")
    selection, _ = learned_mix(str(tmp_path / "trained"))
    expected = np.exp([3.0, 2.0, 1.0]) / np.exp([3.0, 2.0, 1.0]).sum()
    np.testing.assert_allclose(selection.weights, expected, atol=1e-6)
