"""The stand-in for ``allennlp.modules.elmo``."""

import copy
import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM, ElmoError
from spacy_elmo.compat.allennlp import Elmo, batch_to_ids
from spacy_elmo.errors import ElmoWarning

from ..bilm.reference import bilm_layers
from ..bilm.writers import OPTIONS, Arrays, bilm_arrays, write_bilm_folder, write_many_langs_folder
from ..util import shared

TOLERANCE = 1e-5
BATCH = [["The", "bank", "of", "the", "river"], [], ["naïve", "🙂", "<S>"], ["a" * 60]]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return {name: array * np.float32(0.4) for name, array in bilm_arrays(OPTIONS).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, arrays: Arrays) -> Path:
    return write_bilm_folder(tmp_path_factory.mktemp("model"), OPTIONS, arrays)


@pytest.fixture(scope="module")
def bilm(folder: Path) -> BiLM:
    return BiLM.load(folder, initial_state="zero")


def elmo(folder: Path, n: int = 1, **kwargs: Any) -> Elmo:
    options = (folder / "options.json", folder / "model.hdf5")
    return Elmo(str(options[0]), str(options[1]), n, **{"dropout": 0.0, **kwargs})


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


# -- batch_to_ids ----------------------------------------------------------------------------


def test_ids_are_shifted_and_padded() -> None:
    ids = batch_to_ids([["é", ""], [], ["a" * 49, "b", "<S>"]])
    assert ids.shape == (3, 3, 50) and ids.dtype == torch.int64
    pad = [261]
    assert ids[0, 0].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260] + pad * 46
    assert ids[0, 1].tolist() == [259, 260] + pad * 48
    assert ids[2, 0].tolist() == [259] + [98] * 48 + [260]
    assert ids[2, 2].tolist() == [259, *(b + 1 for b in b"<S>"), 260] + pad * 45
    assert (ids[0, 2] == 0).all() and (ids[1] == 0).all()


@pytest.mark.parametrize("batch, shape", [([], (0, 0, 50)), ([[]], (1, 0, 50))])
def test_ids_of_nothing(batch: List[List[str]], shape: "tuple[int, ...]") -> None:
    assert batch_to_ids(batch).shape == shape


def test_ids_of_another_width() -> None:
    ids = batch_to_ids([["abcdef"]], max_characters=5)
    assert ids[0, 0].tolist() == [259, 98, 99, 100, 260]


# -- vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 10, 37])
def test_the_mean_of_all_layers_meets_allennlp(size: int) -> None:
    fixture, reference = shared("fixtures", "bilm-tiny"), shared("fixtures", "allennlp-reference")
    text = (reference / "bilm-tiny-stateless.json").read_text(encoding="utf-8")
    sentences = json.loads(text)
    module = Elmo(str(fixture / "options.json"), str(fixture / "lm_weights.hdf5"), 2, dropout=0.0)
    with np.load(reference / "bilm-tiny-stateless.npz") as expected:
        for start in range(0, len(sentences), size):
            batch = sentences[start : start + size]
            result = module(batch_to_ids(batch))
            for representation in result["elmo_representations"]:
                for k, sentence in enumerate(batch):
                    mean = expected[str(start + k)].mean(0)
                    found = numpy(representation)[k]
                    np.testing.assert_allclose(found[: len(sentence)], mean, rtol=0, atol=TOLERANCE)
                    assert not found[len(sentence) :].any()


def test_representations_and_mask(folder: Path, bilm: BiLM) -> None:
    module = elmo(folder, 2)
    result = module(batch_to_ids(BATCH))
    assert set(result) == {"elmo_representations", "mask"}
    assert result["mask"].dtype == torch.bool
    assert result["mask"].sum(1).tolist() == [5, 0, 3, 1]
    assert [tuple(r.shape) for r in result["elmo_representations"]] == [(4, 5, 8)] * 2
    assert module.get_output_dim() == 8
    for k, layers in enumerate(bilm.embed(BATCH)):
        found = numpy(result["elmo_representations"][0][k])
        np.testing.assert_allclose(found[: len(BATCH[k])], layers.mean(0), rtol=0, atol=TOLERANCE)
        assert not found[len(BATCH[k]) :].any()
    # Every mix has parameters of its own.
    names = {name.partition(".")[0] for name, p in module.named_parameters() if p.requires_grad}
    assert names == {"scalar_mix_0", "scalar_mix_1"}


NO_HIGHWAY = {name: value for name, value in OPTIONS["char_cnn"].items() if name != "n_highway"}


@pytest.mark.parametrize(
    "char_cnn",
    [OPTIONS["char_cnn"], NO_HIGHWAY, {**NO_HIGHWAY, "filters": [[1, 1], [2, 3]]}],
    ids=["no LSTM projection", "no highway layers either", "no projection at all"],
)
def test_models_of_bare_layers(tmp_path: Path, char_cnn: Dict[str, Any]) -> None:
    """AllenNLP itself asks for projections and highway layers; bilm-tf writes models without."""
    options = {"char_cnn": char_cnn, "lstm": {**OPTIONS["lstm"], "dim": 4}}
    arrays = {name: array * np.float32(0.4) for name, array in bilm_arrays(options).items()}
    assert not any("W_P_0" in name for name in arrays)
    module = elmo(write_bilm_folder(tmp_path, options, arrays))
    result = module(batch_to_ids(BATCH))
    assert module.get_output_dim() == 8
    for k, sentence in enumerate(BATCH):
        found = numpy(result["elmo_representations"][0][k])[: len(sentence)]
        expected = bilm_layers(options, arrays, sentence)[:, 1:-1].mean(0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_calls_do_not_depend_on_each_other(folder: Path) -> None:
    module, ids = elmo(folder), batch_to_ids(BATCH)
    first = numpy(module(ids)["elmo_representations"][0])
    module(batch_to_ids([["other", "words"]] * 4))
    np.testing.assert_array_equal(numpy(module(ids)["elmo_representations"][0]), first)
    carry = elmo(folder, initial_state="carry")
    first_carried = numpy(carry(ids)["elmo_representations"][0])
    np.testing.assert_allclose(first_carried, first, rtol=0, atol=TOLERANCE)
    again = numpy(carry(ids)["elmo_representations"][0])
    assert np.abs(again - first).max() > 1e-3


@pytest.mark.parametrize("keep", [False, True])
def test_inputs_of_more_dimensions(folder: Path, keep: bool) -> None:
    module = elmo(folder, keep_sentence_boundaries=keep)
    ids = batch_to_ids(BATCH)
    flat = module(ids)
    deep = module(ids.view(2, 1, 2, 5, 50))
    n = 7 if keep else 5
    assert deep["mask"].shape == (2, 1, 2, n)
    assert deep["elmo_representations"][0].shape == (2, 1, 2, n, 8)
    torch.testing.assert_close(
        deep["elmo_representations"][0].view(4, n, 8), flat["elmo_representations"][0]
    )


def test_boundaries_are_kept_when_asked_for(folder: Path, bilm: BiLM) -> None:
    result = elmo(folder, keep_sentence_boundaries=True)(batch_to_ids(BATCH))
    assert result["mask"].sum(1).tolist() == [7, 2, 5, 3]
    for k, layers in enumerate(bilm.embed(BATCH, boundaries=True)):
        found = numpy(result["elmo_representations"][0][k])
        np.testing.assert_allclose(found[: layers.shape[1]], layers.mean(0), rtol=0, atol=TOLERANCE)
        assert not found[layers.shape[1] :].any()


@pytest.mark.parametrize("batch", [[], [[]], [[], []]])
def test_batches_of_nothing(folder: Path, batch: List[List[str]]) -> None:
    for keywords in ({}, {"do_layer_norm": True}):
        result = elmo(folder, **keywords)(batch_to_ids(batch))
        assert result["elmo_representations"][0].shape == (len(batch), 0, 8)
        assert result["mask"].shape == (len(batch), 0)


def test_layer_norm_is_that_of_allennlp(folder: Path, bilm: BiLM) -> None:
    """One mean and one deviation for each layer, over all words and boundaries of the batch."""
    result = elmo(folder, do_layer_norm=True)(batch_to_ids(BATCH))
    layers = np.concatenate(bilm.embed(BATCH, boundaries=True), axis=1)
    mean = layers.mean((1, 2))[:, None, None]
    deviation = np.sqrt(((layers - mean) ** 2).mean((1, 2)) + 1e-13)[:, None, None]
    mixed = ((layers - mean) / deviation).mean(0)
    starts = np.cumsum([0, *(len(s) + 2 for s in BATCH)])
    found = numpy(result["elmo_representations"][0])
    for k, sentence in enumerate(BATCH):
        expected = mixed[starts[k] + 1 : starts[k + 1] - 1]
        np.testing.assert_allclose(found[k, : len(sentence)], expected, rtol=0, atol=1e-5)
        assert not found[k, len(sentence) :].any()


@pytest.mark.parametrize("width", [8, 12, 30, 80])
def test_ids_of_any_width(folder: Path, bilm: BiLM, width: int) -> None:
    """The model has 12 positions. Longer words are cut as its own reader cuts them."""
    batch = [["abc", "Ж" * 20, "abcdefghij", "abcdefghijk"]]
    found = numpy(elmo(folder)(batch_to_ids(batch, width))["elmo_representations"][0])
    cut = [[w.encode()[: width - 2].decode() for w in batch[0]]]
    expected = bilm.embed(cut)[0].mean(0)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=TOLERANCE)


def test_hand_made_ids(folder: Path, bilm: BiLM) -> None:
    """Any integer type, no padding inside the words, a word of nothing but padding."""
    module = elmo(folder)
    ids = torch.tensor([[[259, 98, 260], [261, 261, 261]]], dtype=torch.int32)
    result = module(ids)
    assert result["mask"].tolist() == [[True, True]]
    wide = torch.full((1, 2, 50), 261)
    wide[:, :, :3] = ids
    torch.testing.assert_close(
        result["elmo_representations"][0], module(wide)["elmo_representations"][0]
    )
    np.testing.assert_allclose(
        numpy(module(ids[:, :1])["elmo_representations"][0][0]),
        bilm.embed([["a"]])[0].mean(0),
        rtol=0,
        atol=TOLERANCE,
    )


# -- training --------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
def test_gradients_reach_what_they_should(folder: Path, requires_grad: bool) -> None:
    module = elmo(folder, 2, requires_grad=requires_grad)
    first, second = module(batch_to_ids(BATCH))["elmo_representations"]
    (first.square().sum() + second.square().sum()).backward()
    for name, parameter in module.named_parameters():
        if name.startswith("scalar_mix"):
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
        else:
            assert (parameter.grad is not None) is requires_grad, name
    if requires_grad:
        gradient = module.get_submodule("_elmo_lstm").get_parameter("backward_lstm.0.bias").grad
        assert gradient is not None and gradient.abs().sum() > 0


def test_given_mix_parameters_are_fixed(folder: Path, bilm: BiLM) -> None:
    module = elmo(folder, scalar_mix_parameters=[-1e4, -1e4, 1.0])
    assert not any(p.requires_grad for p in module.parameters())
    found = numpy(module(batch_to_ids(BATCH[:1]))["elmo_representations"][0])
    np.testing.assert_allclose(found[0], bilm.embed(BATCH[:1])[0][2], rtol=0, atol=TOLERANCE)


def test_dropout_is_behind_the_mix_and_in_training_only(folder: Path) -> None:
    module, ids = elmo(folder, dropout=0.5), batch_to_ids(BATCH[:1])
    kept = numpy(module.eval()(ids)["elmo_representations"][0])
    torch.manual_seed(0)
    dropped = numpy(module.train()(ids)["elmo_representations"][0])
    zero = dropped == 0
    assert 0 < zero.sum() < zero.size
    np.testing.assert_allclose(dropped[~zero], 2 * kept[~zero], rtol=1e-5)


def test_a_module_instead_of_files(bilm: BiLM) -> None:
    own = copy.deepcopy(bilm)
    module = Elmo(None, None, 1, dropout=0.0, module=own)
    assert not any(p.requires_grad for p in own.parameters())
    found = numpy(module(batch_to_ids(BATCH[:1]))["elmo_representations"][0])
    np.testing.assert_allclose(found[0], bilm.embed(BATCH[:1])[0].mean(0), rtol=0, atol=TOLERANCE)


def test_a_native_folder_instead_of_files(folder: Path, bilm: BiLM, tmp_path: Path) -> None:
    bilm.save(tmp_path / "native")
    module = Elmo(tmp_path / "native", None, 1, dropout=0.0)
    expected = elmo(folder)(batch_to_ids(BATCH))["elmo_representations"][0]
    torch.testing.assert_close(
        module(batch_to_ids(BATCH))["elmo_representations"][0], expected, rtol=0, atol=TOLERANCE
    )


def test_a_vocabulary_to_cache_is_not_needed(folder: Path) -> None:
    with pytest.warns(ElmoWarning, match="ELMO-W090"):
        module = elmo(folder, vocab_to_cache=["The", "bank"])
    ids = batch_to_ids(BATCH)
    word_inputs = torch.zeros(ids.shape[:2], dtype=torch.int64)
    expected = elmo(folder)(ids)["elmo_representations"][0]
    torch.testing.assert_close(module(ids, word_inputs)["elmo_representations"][0], expected)


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad, code", [(["The", "bank"], "ELMO-E001"), ([[b"The"]], "ELMO-E002"), (None, "ELMO-E003")]
)
def test_what_is_no_batch_of_sentences(bad: Any, code: str) -> None:
    with pytest.raises(ElmoError) as caught:
        batch_to_ids(bad)
    assert caught.value.code == code


def test_a_width_without_characters() -> None:
    with pytest.raises(ElmoError, match="max_characters is 2") as caught:
        batch_to_ids([["a"]], max_characters=2)
    assert caught.value.code == "ELMO-E094"


@pytest.mark.parametrize(
    "keywords, code",
    [
        ({"num_output_representations": 0}, "ELMO-E094"),
        ({"dropout": 1.5}, "ELMO-E094"),
        ({"scalar_mix_parameters": [1.0]}, "ELMO-E004"),
        ({"options_file": None, "weight_file": None}, "ELMO-E090"),
        ({"module": torch.nn.Linear(1, 1)}, "ELMO-E090"),
        ({"module": torch.nn.Linear(1, 1), "options_file": None, "weight_file": None}, "ELMO-E090"),
        ({"initial_state": "cold"}, "ELMO-E010"),
    ],
)
def test_arguments_that_do_not_fit(folder: Path, keywords: Dict[str, Any], code: str) -> None:
    files = {"options_file": folder / "options.json", "weight_file": folder / "model.hdf5"}
    with pytest.raises(ElmoError) as caught:
        Elmo(**{**files, "num_output_representations": 1, **keywords})
    assert caught.value.code == code


def test_a_module_has_a_state_of_its_own(bilm: BiLM) -> None:
    with pytest.raises(ElmoError, match="initial_state") as caught:
        Elmo(None, None, 1, module=copy.deepcopy(bilm), initial_state="primed")
    assert caught.value.code == "ELMO-E094"


def test_models_of_dictionaries_take_no_bytes(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="codepoint") as caught:
        Elmo(write_many_langs_folder(tmp_path / "model"), None, 1)
    assert caught.value.code == "ELMO-E093"


def test_inputs_that_are_no_ids(folder: Path) -> None:
    module, ids = elmo(folder), batch_to_ids([["a", "b"], ["c"]])
    for bad in (ids[0], ids.float()):
        with pytest.raises(ElmoError, match=r"batch_to_ids") as caught:
            module(bad)
        assert caught.value.code == "ELMO-E091"
    for value in (-1, 262):
        changed = ids.clone()
        changed[1, 0, 4] = value
        with pytest.raises(ElmoError, match="sentence 1, token 0.*0 to 261") as caught:
            module(changed)
        assert caught.value.code == "ELMO-E092"
    changed = ids.clone()
    changed[0, 1, 4:] = 0
    with pytest.raises(ElmoError, match="sentence 0, token 1.*padded with 261"):
        module(changed)
    changed = ids.clone()
    changed[0, 0] = 0
    with pytest.raises(ElmoError, match="sentence 0, token 0.*words follow"):
        module(changed)
