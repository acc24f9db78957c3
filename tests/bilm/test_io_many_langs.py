"""ELMoForManyLangs folders: every rule for finding the parts, and nothing is ever unpickled."""

import copy
import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch

from spacy_elmo.bilm.config import BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.io import (
    ModelFiles,
    expected_shapes,
    read_many_langs,
    read_model,
    write_many_langs,
    write_native,
)
from spacy_elmo.errors import ElmoError, ElmoWarning

from .writers import ARCHITECTURE, CHARACTERS, WORDS, many_langs_states, write_many_langs_folder


def changed(part: str, **values: Any) -> Dict[str, Any]:
    architecture = copy.deepcopy(ARCHITECTURE)
    architecture[part].update(values)
    return architecture


def test_config_is_read(tmp_path: Path) -> None:
    files = read_model(write_many_langs_folder(tmp_path))
    assert files.format == "many-langs"
    assert files.config.char_cnn == CharCNNConfig(
        ((1, 2), (2, 5)), 5, 12, 2, "relu", "codepoint", len(CHARACTERS), len(WORDS), 3
    )
    # Its forget bias is inside the stored one, nothing may be added.
    assert files.config.lstm == LSTMConfig(6, 4, 2, 3.0, 3.0, True, 0.0)
    assert files.config.initial_state == "primed"


def test_tensors_are_renamed_reordered_and_negated(tmp_path: Path) -> None:
    token, encoder = many_langs_states(ARCHITECTURE, len(CHARACTERS), len(WORDS))
    tensors = read_model(write_many_langs_folder(tmp_path)).tensors
    same = {
        "token_encoder.char_embedding": token["char_emb_layer.embedding.weight"],
        "token_encoder.word_embedding": token["word_emb_layer.embedding.weight"],
        "token_encoder.conv.1.weight": token["convolutions.1.weight"],
        "token_encoder.conv.1.bias": token["convolutions.1.bias"],
        "token_encoder.projection.weight": token["projection.weight"],
        "token_encoder.projection.bias": token["projection.bias"],
        "backward_lstm.1.projection_weight": encoder["backward_layer_1.state_projection.weight"],
    }
    for name, tensor in same.items():
        assert torch.equal(tensors[name], tensor), name
    c = 6
    for ours, theirs in (
        ("input_weight", "input_linearity.weight"),
        ("recurrent_weight", "state_linearity.weight"),
        ("bias", "state_linearity.bias"),
    ):
        source = encoder[f"forward_layer_1.{theirs}"]
        blocks = tensors[f"forward_lstm.1.{ours}"]
        # Theirs: input, forget, candidate, output. Ours: input, forget, output, candidate.
        assert torch.equal(blocks[: 2 * c], source[: 2 * c])
        assert torch.equal(blocks[2 * c : 3 * c], source[3 * c :])
        assert torch.equal(blocks[3 * c :], source[2 * c : 3 * c])


def test_highway_computes_the_same(tmp_path: Path) -> None:
    token, _ = many_langs_states(ARCHITECTURE, len(CHARACTERS), len(WORDS))
    tensors = read_model(write_many_langs_folder(tmp_path)).tensors
    x = torch.randn(9, 7, generator=torch.Generator().manual_seed(0))
    weight, bias = (token[f"highways._layers.1.{part}"] for part in ("weight", "bias"))
    both = x @ weight.T + bias
    gate = torch.sigmoid(both[:, 7:])
    theirs = gate * x + (1 - gate) * torch.relu(both[:, :7])
    name = "token_encoder.highway.1"
    g = torch.sigmoid(x @ tensors[f"{name}.gate.weight"].T + tensors[f"{name}.gate.bias"])
    y = torch.relu(x @ tensors[f"{name}.transform.weight"].T + tensors[f"{name}.transform.bias"])
    torch.testing.assert_close(g * y + (1 - g) * x, theirs)


@pytest.mark.parametrize(
    "config_path, architecture_name",
    [
        ("configs/arch.json", "configs/arch.json"),
        ("/home/author/ELMo/configs/arch.json", "arch.json"),
        ("..\\configs\\arch.json", "arch.json"),
    ],
)
def test_architecture_is_found_by_path_then_by_name(
    tmp_path: Path, config_path: str, architecture_name: str
) -> None:
    architecture = changed("token_embedder", n_highway=1)
    folder = write_many_langs_folder(
        tmp_path, architecture, config_path=config_path, architecture_name=architecture_name
    )
    assert read_model(folder).config.char_cnn.n_highway == 1


def test_path_comes_before_name(tmp_path: Path) -> None:
    folder = write_many_langs_folder(
        tmp_path, config_path="configs/arch.json", architecture_name="configs/arch.json"
    )
    (folder / "arch.json").write_text(json.dumps(changed("encoder", dim=7)))
    assert read_model(folder).config.lstm.cell_dim == 6


@pytest.mark.parametrize("config_path", ["cnn_50_100_512_4096_sample.json", "gone.json", None])
def test_built_in_sample_where_the_architecture_is_missing(
    tmp_path: Path, config_path: Any
) -> None:
    # The published shape does not fit the tiny weights: the message shows what was assumed.
    folder = write_many_langs_folder(tmp_path, config_path=config_path, architecture_name=None)
    if config_path is None:
        (folder / "config.json").write_text("{}")
    shown = r"char_emb_layer.embedding.weight is \(11, 5\), expected \(11, 50\)"
    with pytest.raises(ElmoError, match=f"E024.*{shown}") as caught:
        read_model(folder)
    assert "projection.weight is (4, 10), expected (512, 2148)" in str(caught.value)


def test_dictionaries(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    # The writer has stripped the symbol of this line, as theirs did.
    assert b"\n4\n" in (folder / "char.dic").read_bytes()
    files = read_model(folder)
    assert files.characters == {c: i for i, c in enumerate(CHARACTERS)}
    assert files.characters["\u3000"] == 4
    assert files.words == {w: i for i, w in enumerate(WORDS)}


def test_dictionary_quirks(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    path = folder / "char.dic"
    # Windows line ends, a no-break space (which stripping takes away too), an empty last line,
    # a line separator inside of a line, and a symbol that is there twice.
    text = path.read_text("utf-8").replace("a\t0", "\u00a0\t0").replace("b\t1", "x\u2028y\t1")
    path.write_bytes((text + "é\t3\n\n").replace("\n", "\r\n").encode())
    characters = read_model(folder).characters
    assert characters is not None
    assert characters["\u3000"] == 4 and "\u00a0" not in characters
    assert characters["x\u2028y"] == 1
    assert characters["é"] == 3


@pytest.mark.parametrize(
    "name, line, code, shown",
    [
        ("char.dic", "x\ty\t3", "E032", r"char\.dic, line 12"),
        ("word.dic", "x\t-1", "E032", r"word\.dic, line 8.*symbol<TAB>index"),
        ("word.dic", "x\t٣", "E032", r"word\.dic, line 8"),
        ("char.dic", "x\t11", "E033", r"beyond the 11 rows of the weights.*'x' \(11\)"),
    ],
)
def test_damaged_dictionaries(tmp_path: Path, name: str, line: str, code: str, shown: str) -> None:
    path = write_many_langs_folder(tmp_path) / name
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(ElmoError, match=f"{code}.*{shown}"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    "name, symbol, shown",
    [("char.dic", "<eow>", "it has no <eow>"), ("word.dic", "<oov>", "<oov>")],
)
def test_dictionaries_need_their_marks(tmp_path: Path, name: str, symbol: str, shown: str) -> None:
    path = write_many_langs_folder(tmp_path) / name
    path.write_bytes(path.read_bytes().replace(symbol.encode(), b"x"))
    with pytest.raises(ElmoError, match=f"E033.*{name}.*{shown}"):
        read_model(tmp_path)


@pytest.mark.parametrize("name", ["char.dic", "word.dic", "encoder.pkl", "config.json"])
def test_missing_parts_are_named(tmp_path: Path, name: str) -> None:
    (write_many_langs_folder(tmp_path) / name).unlink()
    with pytest.raises(ElmoError, match=f"E02[13].*{name}"):
        read_many_langs(tmp_path)


def test_dictionary_in_another_encoding(tmp_path: Path) -> None:
    path = write_many_langs_folder(tmp_path) / "word.dic"
    path.write_bytes(path.read_text("utf-8").replace("中文", "x").encode("latin-1"))
    with pytest.raises(ElmoError, match=r"E023.*word\.dic.*UTF-8"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    "part, values, code, shown",
    [
        ("token_embedder", {"name": "lstm"}, "E031", "token embedder 'lstm'.*cnn"),
        ("encoder", {"name": "LSTM"}, "E031", "encoder 'LSTM'.*elmo"),
        ("token_embedder", {"char_dim": 0}, "E031", "char_dim 0"),
        ("encoder", {"dim": None}, "E025", "encoder.dim is missing"),
        ("token_embedder", {"activation": "gelu"}, "E025", "activation is 'gelu'"),
    ],
)
def test_unsupported_networks(
    tmp_path: Path, part: str, values: Dict[str, Any], code: str, shown: str
) -> None:
    folder = write_many_langs_folder(tmp_path)
    (folder / "arch.json").write_text(json.dumps(changed(part, **values)))
    with pytest.raises(ElmoError, match=f"{code}.*{shown}"):
        read_model(folder)


@pytest.mark.parametrize("legacy_pickle", [False, True])
@pytest.mark.parametrize(
    "part, values",
    [
        ("token_embedder", {}),
        ("token_embedder", {"word_dim": 0}),
        ("token_embedder", {"word_dim": 0, "filters": [[1, 4]]}),
        ("token_embedder", {"n_highway": 0, "activation": "tanh"}),
        ("encoder", {"dim": 4, "n_layers": 1}),
        ("encoder", {"cell_clip": 0, "proj_clip": 2.5}),
    ],
)
def test_round_trip_through_native(
    tmp_path: Path, part: str, values: Dict[str, Any], legacy_pickle: bool
) -> None:
    architecture = changed(part, **values)
    folder = write_many_langs_folder(tmp_path / "in", architecture, legacy_pickle=legacy_pickle)
    files = read_model(folder)
    assert {n: tuple(t.shape) for n, t in files.tensors.items()} == expected_shapes(files.config)
    write_native(files, tmp_path / "native")
    write_many_langs(read_model(tmp_path / "native"), tmp_path / "out")
    for name in ("char.dic", "word.dic", "arch.json"):
        before, after = ((folder_ / name).read_bytes() for folder_ in (folder, tmp_path / "out"))
        same = json.loads(before) == json.loads(after) if name == "arch.json" else before == after
        assert same, name
    expected = {**json.loads((folder / "config.json").read_text()), "config_path": "arch.json"}
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == expected
    states = many_langs_states(architecture, len(CHARACTERS), len(WORDS))
    for name, source in zip(("token_embedder.pkl", "encoder.pkl"), states):
        written = torch.load(tmp_path / "out" / name, weights_only=True)
        assert written.keys() == source.keys()
        for key, tensor in source.items():
            assert torch.equal(written[key], tensor), key
            # Not a view that drags the storage of another tensor along.
            assert written[key].untyped_storage().nbytes() == tensor.nbytes
    assert read_model(tmp_path / "out").config.lstm == files.config.lstm


def test_zero_switches_a_clip_off(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path, changed("encoder", cell_clip=0))
    assert read_model(folder).config.lstm.cell_clip is None


def test_mismatching_state_lists_both_shapes(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    state["encoder.forward_layer_0.bias"] = torch.ones(3)
    state["backward_layer_0.state_projection.weight"] = torch.ones(5, 6)
    del state["forward_layer_1.input_linearity.weight"]
    torch.save(state, folder / "encoder.pkl")
    with pytest.raises(ElmoError, match=r"E024.*encoder\.pkl") as caught:
        read_model(folder)
    for shown in (
        "wrong: backward_layer_0.state_projection.weight is (5, 6), expected (4, 6)",
        "missing: forward_layer_1.input_linearity.weight (24, 4)",
        "unexpected: encoder.forward_layer_0.bias (3,)",
    ):
        assert shown in str(caught.value)


def test_names_of_parallel_training_are_accepted(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    torch.save({f"module.{name}": t for name, t in state.items()}, folder / "encoder.pkl")
    assert "forward_lstm.0.bias" in read_model(folder).tensors


# -- softmax ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["softmax", "sampled_softmax"])
def test_plain_classifier_becomes_the_softmax(tmp_path: Path, kind: str) -> None:
    folder = write_many_langs_folder(tmp_path / "in", changed("classifier", name=kind))
    n = len(WORDS)
    weight, bias = torch.randn(n, 4), torch.randn(n)
    if kind == "softmax":
        state = {"hidden2tag.weight": weight, "hidden2tag.bias": bias}
    else:
        state = {
            "column_emb.weight": weight,
            "column_bias.weight": bias[:, None],
            "oov_column": torch.zeros(4, 1),
        }
    torch.save(state, folder / "classifier.pkl")
    assert not read_model(folder).has_softmax
    files = read_model(folder, softmax=True)
    assert torch.equal(files.tensors["softmax.weight"], weight)
    assert torch.equal(files.tensors["softmax.bias"], bias)
    assert files.vocabulary == [(word, 0) for word in WORDS]
    write_native(files, tmp_path / "native")
    write_many_langs(read_model(tmp_path / "native", softmax=True), tmp_path / "out")
    written = torch.load(tmp_path / "out" / "classifier.pkl", weights_only=True)
    assert written.keys() == state.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    "state, problem",
    [
        ({"M": torch.ones(4, 2), "corr.weight": torch.ones(7, 2)}, "no plain softmax"),
        ({"hidden2tag.weight": torch.ones(7, 5), "hidden2tag.bias": torch.ones(7)}, r"\(7, 5\)"),
        ({"hidden2tag.weight": torch.ones(9, 4), "hidden2tag.bias": torch.ones(9)}, "9 words"),
    ],
)
def test_other_classifiers_are_left_out(
    tmp_path: Path, state: Dict[str, torch.Tensor], problem: str
) -> None:
    folder = write_many_langs_folder(tmp_path)
    torch.save(state, folder / "classifier.pkl")
    with pytest.warns(ElmoWarning, match=rf"ELMO-W003.*classifier\.pkl.*{problem}"):
        assert not read_model(folder, softmax=True).has_softmax


def test_softmax_over_other_words_is_left_out_of_an_export(tmp_path: Path) -> None:
    files = read_model(write_many_langs_folder(tmp_path / "in"))
    files.tensors.update({"softmax.weight": torch.ones(2, 4), "softmax.bias": torch.ones(2)})
    files.vocabulary = [("x", 2), ("y", 1)]
    with pytest.warns(ElmoWarning, match="ELMO-W002.*2 words"):
        write_many_langs(files, tmp_path / "out")
    assert not (tmp_path / "out" / "classifier.pkl").exists()


# -- export -----------------------------------------------------------------------------------


def codepoint_model(**changes: Any) -> ModelFiles:
    cnn: Dict[str, Any] = {"unit": "codepoint", "n_characters": len(CHARACTERS)}
    lstm: Dict[str, Any] = {"forget_bias": 0.0}
    for name, value in changes.items():
        (lstm if name in LSTMConfig.__dataclass_fields__ else cnn)[name] = value
    config = BiLMConfig(
        CharCNNConfig(cnn.pop("filters", ((1, 3),)), embedding_dim=3, **cnn),
        LSTMConfig(lstm.pop("cell_dim", 6), 4, **lstm),
    )
    rng = np.random.default_rng(0)
    tensors = {
        name: torch.from_numpy(rng.normal(size=shape).astype(np.float32))
        for name, shape in expected_shapes(config).items()
    }
    return ModelFiles(config, tensors, characters={c: i for i, c in enumerate(CHARACTERS)})


def test_models_of_our_own_are_exported(tmp_path: Path) -> None:
    files = codepoint_model(cell_clip=None, n_highway=1)
    write_many_langs(files, tmp_path / "out")
    arguments = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (tmp_path / "out" / arguments["config_path"]).is_file()
    read = read_model(tmp_path / "out")
    assert (read.config.char_cnn, read.config.lstm) == (files.config.char_cnn, files.config.lstm)
    assert read.characters == files.characters
    assert all(torch.equal(read.tensors[name], t) for name, t in files.tensors.items())


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"skip_connections": False}, "no skip connections"),
        ({"forget_bias": 1.0}, "forget bias"),
        ({"cell_dim": 4}, "lacks a projection"),
        ({"unit": "byte", "n_characters": 261}, "bytes"),
    ],
)
def test_export_refuses_what_the_family_does_not_have(
    tmp_path: Path, changes: Dict[str, Any], problem: str
) -> None:
    with pytest.raises(ElmoError, match=f"E029.*'many-langs'.*{problem}"):
        write_many_langs(codepoint_model(**changes), tmp_path / "out")


def test_symbols_that_a_dictionary_file_would_lose(tmp_path: Path) -> None:
    files = codepoint_model()
    symbols: List[str] = [*CHARACTERS[1:], "\t"]
    files.characters = {symbol: i for i, symbol in enumerate(symbols)}
    with pytest.raises(ElmoError, match="E03[23].*char.dic"):
        write_many_langs(files, tmp_path / "out")
