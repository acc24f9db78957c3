"""Torch's global defaults for new tensors change nothing: neither their type nor their device.

thinc sets them when it takes a GPU, and so do users' notebooks.
"""

import ast
import contextlib
from pathlib import Path
from typing import Any, Iterator, List

import numpy as np
import pytest
import spacy
import torch

from spacy_elmo.analysis.probe import LinearProbe
from spacy_elmo.bilm import BiLM, ScalarMix
from spacy_elmo.bilm.kernels import PRECISIONS, has_kernel
from spacy_elmo.bilm.predict import LanguageModel
from spacy_elmo.compat.allennlp import Elmo, batch_to_ids
from spacy_elmo.training.pretrain import pretrain

from .bilm.writers import write_bilm_folder, write_many_langs_folder
from .pipeline.conftest import TAGGER, train
from .training import tiny
from .util import ROOT

SENTENCES = [["A", "bank", "."], ["Straße", "am", "Fluss", "und", "mehr"], ["A", "x"]]
# Tensors on "meta" have no values: whatever is put there by mistake is found out.
KINDS = ["float64", "meta"]


@contextlib.contextmanager
def defaults(kind: str) -> Iterator[None]:
    """Another default; what was found out under the usual one is forgotten, and afterwards."""
    has_kernel.cache_clear()
    try:
        if kind == "meta":
            torch.set_default_device(kind)
        else:
            torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        has_kernel.cache_clear()


def assert_same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "precision, state", [*((p, "primed") for p in PRECISIONS), ("float32", "carry")]
)
def test_vectors(precision: str, state: str, kind: str) -> None:
    def embed() -> List[np.ndarray]:
        model = BiLM.load("en_mini", initial_state=state)
        # The second time words come from the cache.
        return [v for _ in range(2) for v in model.embed(SENTENCES, precision=precision)]

    expected, kernel = embed(), has_kernel(precision)
    with defaults(kind):
        assert_same(embed(), expected)
        assert has_kernel(precision) == kernel


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable", [False, True])
def test_the_component(trainable: bool, kind: str, tmp_path: Path) -> None:
    tiny.model(tiny.vocabulary(tiny.sentences(60), 60)).save(tmp_path / "model")

    def run() -> List[np.ndarray]:
        nlp = spacy.blank("en")
        settings = {"weights": str(tmp_path / "model"), "trainable": trainable}
        nlp.add_pipe("elmo", config=settings)
        nlp.add_pipe("tagger", config=TAGGER)
        train(nlp, 1)
        copy = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
        docs = [pipeline("She saw the old ship .") for pipeline in (nlp, copy)]
        scores = nlp.get_pipe("tagger").model.predict(docs)
        return [*(doc._.elmo_layers for doc in docs), *scores]

    expected = run()
    with defaults(kind):
        assert_same(run(), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer, unit", [("adam", "stream"), ("adagrad", "sentence")])
def test_a_step_of_training(optimizer: str, unit: str, kind: str, tmp_path: Path) -> None:
    source = tiny.write_text(tmp_path / "in.txt", tiny.sentences(120))
    held = tiny.write_text(tmp_path / "held.txt", tiny.sentences(10, seed=7))

    def run(output: Path) -> None:
        settings = tiny.config(optimizer=optimizer, unit=unit, max_steps=1, dropout=0.1)
        common = {"heldout": [held], "threads": 1}
        pretrain([source], output / "run", settings, **common)
        settings = tiny.config(optimizer="muon", max_steps=1, freeze_steps=0)
        pretrain([source], output / "next", settings, init=output / "run/model-last", **common)
        pretrain([], output / "next", resume=True, threads=1)

    run(tmp_path / "usual")
    with defaults(kind):
        run(tmp_path / "other")
    for name in ("model-last", "checkpoint.safetensors"):
        for part in ("run", "next"):
            found, expected = (
                tiny.tensors(tmp_path / output / part / name) for output in ("other", "usual")
            )
            tiny.assert_equal(found, expected)
            assert {n: t.dtype for n, t in found.items()} == {
                n: t.dtype for n, t in expected.items()
            }


@pytest.mark.parametrize("kind", KINDS)
def test_files(kind: str, tmp_path: Path) -> None:
    write_bilm_folder(tmp_path / "bilm")
    write_many_langs_folder(tmp_path / "many-langs")

    def run(output: Path) -> List[np.ndarray]:
        vectors = []
        for format in ("bilm", "many-langs"):
            for target in (format, "native"):
                BiLM.load(tmp_path / format).save(output / target, format=target)
                vectors += BiLM.load(output / target).embed(SENTENCES)
        return vectors

    expected = run(tmp_path / "usual")
    with defaults(kind):
        assert_same(run(tmp_path / "other"), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_built_upon_the_model(kind: str) -> None:
    text = tiny.sentences(60)
    made = tiny.model(tiny.vocabulary(text, 60)).to_files()
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)

    def run() -> List[np.ndarray]:
        model = BiLM.from_files(made)
        lm = LanguageModel(model)
        fits = lm.substitutes(text[0], 1, 3, prior_power=0.5)
        elmo = Elmo(None, None, 2, dropout=0.0, module=model)
        mixed = elmo(batch_to_ids(text[:3]))["elmo_representations"]
        mix = ScalarMix(3, layer_norm=True, width=4, init_weights=[0.0, 1.0, 2.0])
        probe = LinearProbe(0.01).fit(x, (x[:, 0] > 0).astype(np.int64), 2)
        return [
            *model.embed(text[:3]),
            np.array([s.log_prob for s in fits]),
            *(m.detach().numpy() for m in mixed),
            mix(torch.from_numpy(x[:3, None, :4])).detach().numpy(),
            probe.predict(x),
            *(score.forward for score in lm.score(text[:5])),
        ]

    expected = run()
    with defaults(kind):
        assert_same(run(), expected)


#: What makes tensors on the default device; what the second line names, of the default type too.
_MAKERS = {"tensor", "as_tensor", "asarray", "arange", "linspace", "randint", "randperm"}
_UNTYPED = {"empty", "zeros", "ones", "full", "rand", "randn", "eye", "normal"}


def test_all_tensors_are_made_with_a_device() -> None:
    found = []
    for path in sorted((ROOT / "spacy_elmo").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name, owner = node.func.attr, node.func.value
            if not isinstance(owner, ast.Name) or owner.id != "torch":
                continue
            given = {keyword.arg for keyword in node.keywords}
            needed = {"device", "dtype"} if name in _UNTYPED else {"device"}
            if name in _MAKERS | _UNTYPED and not needed <= given:
                found.append(f"{path.name}:{node.lineno} torch.{name}")
    assert not found
