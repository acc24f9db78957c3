"""The inference engine gives what the plain path gives, in bounded memory and on any threads."""

import copy
import pickle
from dataclasses import replace
from typing import Any, List, Optional, Tuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM, BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm import engine as engine_module
from spacy_elmo.bilm.io.paging import move_to_file, page_out
from spacy_elmo.bilm.lm import init_bilm
from spacy_elmo.errors import ElmoError

TEXT = """
The old bank of the river was washed away by the flood of 1952 .
Ms. Ngọc-Ánh O'Brien-Łukasiewicz ( née Müller ) deposited €3,000 at the bank yesterday !
lol u r sooo right @maria_93 https://t.co/xYz #throwback
Thou shalt not , quoth he , haue anie othere goddes before mee .
I saw her duck .
Wait
Supercalifragilisticexpialidocious-and-then-some-more-letters-to-go-beyond-the-limit it is .
""".strip().split("\n")
SENTENCES = [line.split() for line in TEXT]


def make(seed: int = 0, initial_state: str = "zero", gain: float = 2.0, **lstm: Any) -> BiLM:
    settings_: Any = {"cell_dim": 24, "projection_dim": 16, "n_layers": 2, **lstm}
    cnn = CharCNNConfig(((1, 8), (2, 8), (3, 16)), embedding_dim=4, max_characters=30)
    model = BiLM(BiLMConfig(cnn, LSTMConfig(**settings_), initial_state=initial_state)).eval()
    init_bilm(model, model.config, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for p in [*model.forward_lstm.parameters(), *model.backward_lstm.parameters()]:
            # By default larger than a new model's, so that clips fire and gates saturate.
            p.mul_(gain)
    return model


def plain(model: BiLM, sentences: List[List[str]], boundaries: bool = False) -> List[np.ndarray]:
    """By the path that training takes."""
    with torch.no_grad():
        flat = model(sentences).numpy()
    edges = np.cumsum([0, *(len(s) + 2 for s in sentences)])
    cut = slice(None) if boundaries else slice(1, -1)
    return [flat[:, a:b][:, cut] for a, b in zip(edges, edges[1:])]


def difference(found: List[np.ndarray], expected: List[np.ndarray]) -> float:
    assert [a.shape for a in found] == [b.shape for b in expected]
    return max((float(np.abs(a - b).max(initial=0)) for a, b in zip(found, expected)), default=0)


def relative(found: List[np.ndarray], expected: List[np.ndarray]) -> float:
    """Size of the error relative to the size of the vectors, over all of a text."""
    error = sum(float(((a - b) ** 2).sum()) for a, b in zip(found, expected))
    return float(np.sqrt(error / sum(float((b**2).sum()) for b in expected)))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(0, 1000),
    st.sampled_from([(24, 16), (16, 16), (7, 5)]),
    st.integers(1, 3),
    st.sampled_from([None, 0.3, 3.0]),
    st.sampled_from([None, 0.2, 3.0]),
    st.booleans(),
    st.sampled_from(["zero", "primed"]),
    st.booleans(),
    st.lists(st.lists(st.text(max_size=12), max_size=9), max_size=8),
)
def test_float32_equals_the_plain_path(
    seed: int,
    dims: Tuple[int, int],
    n_layers: int,
    cell_clip: Optional[float],
    proj_clip: Optional[float],
    skip: bool,
    initial_state: str,
    boundaries: bool,
    sentences: List[List[str]],
) -> None:
    model = make(
        seed,
        initial_state,
        cell_dim=dims[0],
        projection_dim=dims[1],
        n_layers=n_layers,
        cell_clip=cell_clip,
        proj_clip=proj_clip,
        skip_connections=skip,
    )
    expected = plain(model, sentences, boundaries)
    assert difference(model.embed(sentences, boundaries=boundaries), expected) <= 1e-5


def test_large_matrices_take_the_packed_kernel_and_agree() -> None:
    # 4 · 1024 · 256 elements are enough to be laid out anew.
    model = make(gain=1.0, cell_dim=1024, projection_dim=256)
    assert difference(model.embed(SENTENCES), plain(model, SENTENCES)) <= 1e-5
    without = model.engine("float32", plain=True).embed(SENTENCES)
    assert difference(without, plain(model, SENTENCES)) <= 1e-5


@pytest.mark.parametrize("kernels", ["packed", "plain"])
def test_lower_precisions_stay_close_on_real_text(kernels: str) -> None:
    model = BiLM.load("en_mini")
    expected = model.embed(SENTENCES)
    half = model.engine("float16", plain=kernels == "plain").embed(SENTENCES)
    assert difference(half, expected) <= 2e-3
    whole = model.engine("int8", plain=kernels == "plain").embed(SENTENCES)
    # Rounded, but not too much.
    assert 1e-4 < relative(whole, expected) <= 5e-2


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_one_sentence_through_large_layers_has_all_threads(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(gain=1.0)
    expected = model.embed(SENTENCES, precision=precision)
    threads: List[int] = []
    original = engine_module._Layer.run

    def run(self: Any, x: torch.Tensor, sizes: Any, state: Any) -> Any:
        threads.append(torch.get_num_threads())
        return original(self, x, sizes, state)

    monkeypatch.setattr(engine_module._Layer, "run", run)
    monkeypatch.setattr(engine_module, "HALF_FITTING_BYTES", (1, 1 << 20))
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        alone = [model.embed([s], precision=precision)[0] for s in SENTENCES]
        assert set(threads) == {5}
        threads.clear()
        together = model.embed(SENTENCES, precision=precision)
        assert set(threads) == {2}
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)
    assert difference(alone, expected) <= 1e-5
    assert difference(together, expected) <= 1e-5


def test_float16_of_weights_that_it_does_not_hold() -> None:
    # The built-in weights are stored in float16, which holds them exactly; others are rounded.
    files = BiLM.load("en_mini").to_files()
    generator = torch.Generator().manual_seed(0)
    files.tensors = {
        name: t * (1 + 5e-4 * torch.rand(t.shape, generator=generator))
        for name, t in files.tensors.items()
    }
    model = BiLM.from_files(files)
    expected, found = model.embed(SENTENCES), model.embed(SENTENCES, precision="float16")
    assert 1e-5 < relative(found, expected) <= 5e-4
    assert difference(found, expected) <= 5e-3


def test_float16_rounds_weights() -> None:
    model = make()
    assert 1e-5 < relative(model.embed(SENTENCES, precision="float16"), plain(model, SENTENCES))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_without_the_kernels_the_numbers_are_the_same(precision: str) -> None:
    model = BiLM.load("en_mini")
    packed = model.engine(precision).embed(SENTENCES)
    without = model.engine(precision, plain=True).embed(SENTENCES)
    assert relative(without, packed) < (1e-5 if precision == "float16" else 1e-2)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("use_plain", [False, True])
def test_company_does_not_matter_in_any_precision(precision: str, use_plain: bool) -> None:
    model = BiLM.load("en_mini")
    engine = model.engine(precision, plain=use_plain)
    together = engine.embed(SENTENCES)
    for sentence, expected in zip(SENTENCES, together):
        (alone,) = engine.embed([sentence])
        # Rounding to whole steps may go either way where a value stands between two.
        tolerance = 1e-5 if precision != "int8" else 5e-2
        assert difference([alone], [expected]) <= tolerance
    small_batches = engine.embed(SENTENCES, batch_tokens=1)
    assert difference(small_batches, together) <= tolerance


def test_a_long_sentence_goes_through_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = [f"w{i % 37}" for i in range(900)]
    expected = plain(make(gain=1.0), [sentence])
    found = make(gain=1.0).embed([sentence, ["short"]], batch_tokens=64)
    assert difference(found[:1], expected) <= 1e-5
    model = make(gain=1.0)
    rows: List[int] = []
    original = engine_module._Layer.run

    def run(self: Any, x: torch.Tensor, sizes: Any, state: Any) -> Any:
        rows.append(len(x))
        return original(self, x, sizes, state)

    monkeypatch.setattr(engine_module._Layer, "run", run)
    monkeypatch.setattr(
        engine_module.Engine.__init__, "__kwdefaults__", {"plain": False, "block_rows": 7}
    )
    assert difference(model.embed([sentence]), expected) <= 1e-5
    # What is in memory at a time does not depend on the length.
    assert max(rows) == 7


def test_vectors_do_not_depend_on_what_was_cached() -> None:
    fresh = BiLM.load("en_mini").embed(SENTENCES)
    used = BiLM.load("en_mini")
    for sentence in reversed(SENTENCES):
        used.embed([sentence[:2], sentence])
    again = used.embed(SENTENCES)
    for a, b in zip(again, fresh):
        np.testing.assert_array_equal(a, b)


def test_the_word_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(engine_module, "WORD_CACHE_BYTES", 4 * 16 * 10)
    encoded: List[str] = []
    original = model.characters.encode

    def encode(words: List[str]) -> Any:
        encoded.extend(words)
        return original(words)

    monkeypatch.setattr(model.characters, "encode", encode)
    words = [f"word{i}" for i in range(30)]
    model.embed([words])
    assert encoded == words
    model.embed([words[25:]])
    assert len(encoded) == 30  # the last ten were kept
    model.embed([words[:5]])
    assert encoded[30:] == words[:5]
    model.embed([words[25:]])
    # Five newer ones pushed out the least recently used, which these are not.
    assert len(encoded) == 35
    expected = plain(make(), [words])
    assert difference(model.embed([words]), expected) <= 1e-5


def test_changed_weights_are_seen() -> None:
    model = make(gain=1.0)
    before = model.embed(SENTENCES)
    with torch.no_grad():
        model.forward_lstm[0].bias.add_(0.5)
    after = model.embed(SENTENCES)
    assert difference(after, before) > 1e-2
    assert difference(after, plain(model, SENTENCES)) <= 1e-5


def test_threads_do_not_matter_and_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(BiLM.load("en_mini").embed(SENTENCES))
            assert torch.get_num_threads() == count
        assert difference(results[0], results[1]) <= 1e-5
        assert difference(results[0], results[2]) <= 1e-5
        torch.set_num_threads(2)
        model = make()
        monkeypatch.setattr(engine_module._Layer, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.embed(SENTENCES)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_model_with_an_engine_can_be_copied_and_pickled() -> None:
    model = make()
    expected = model.embed(SENTENCES, precision="int8")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert difference(other.embed(SENTENCES, precision="int8"), expected) == 0


def test_memory_that_is_given_back_comes_again(tmp_path: Any) -> None:
    model = make(cell_dim=256, projection_dim=64)
    model.save(tmp_path / "model")
    for kind in (model, BiLM.load(tmp_path / "model")):
        expected = {name: p.detach().clone() for name, p in kind.named_parameters()}
        move_to_file(kind)
        page_out(kind)
        for name, p in kind.named_parameters():
            assert torch.equal(p, expected[name]), name
        with torch.no_grad():
            # A private copy: writing does not reach a file.
            kind.forward_lstm[0].bias.add_(1.0)
    fresh = BiLM.load(tmp_path / "model")
    assert not torch.equal(fresh.forward_lstm[0].bias, model.forward_lstm[0].bias)


def test_unknown_precisions_and_unsuitable_weights_are_refused() -> None:
    model = make()
    with pytest.raises(ElmoError, match="ELMO-E160.*int4.*float32, float16, int8"):
        model.embed(SENTENCES, precision="int4")
    with pytest.raises(ElmoError, match="ELMO-E161.*float64.*int8"):
        make().double().embed(SENTENCES, precision="int8")
    carry = make()
    carry.config = replace(carry.config, initial_state="carry")
    with pytest.raises(ElmoError, match="ELMO-E161.*carry"):
        carry.embed(SENTENCES, precision="float16")
    # float64 itself is served, without the engine.
    assert make().double().embed([["a"]])[0].dtype == np.float64
