"""Model files of the other implementations, written from the description of their formats.

Independent of the package, so that tests do not check a writer against its own mistakes.
"""

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import numpy as np
import torch

Arrays = Dict[str, np.ndarray]

OPTIONS: Dict[str, Any] = {
    "lstm": {
        "cell_clip": 3,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 4,
        "dim": 6,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 2], [2, 5]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 12,
        "activation": "relu",
    },
}

ARCHITECTURE: Dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 4,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 6,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 2], [2, 5]],
        "n_highway": 2,
        "word_dim": 3,
        "char_dim": 5,
        "max_characters_per_token": 12,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}

CHARACTERS = ["a", "b", "é", "中", "\u3000", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "Zürich", "中文"]


def bilm_arrays(options: Dict[str, Any], seed: int = 0) -> Arrays:
    """Random arrays under the names that bilm-tf gives them."""
    rng = np.random.default_rng(seed)
    cnn, lstm = options["char_cnn"], options["lstm"]
    d, p, c = cnn["embedding"]["dim"], lstm["projection_dim"], lstm["dim"]
    f = sum(n for _, n in cnn["filters"])
    shapes: Dict[str, Tuple[int, ...]] = {"char_embed": (261, d)}
    for i, (width, n) in enumerate(cnn["filters"]):
        shapes[f"CNN/W_cnn_{i}"] = (1, width, d, n)
        shapes[f"CNN/b_cnn_{i}"] = (n,)
    for k in range(cnn.get("n_highway") or 0):
        for part in ("carry", "transform"):
            shapes[f"CNN_high_{k}/W_{part}"] = (f, f)
            shapes[f"CNN_high_{k}/b_{part}"] = (f,)
    if f != p:
        shapes["CNN_proj/W_proj"] = (f, p)
        shapes["CNN_proj/b_proj"] = (p,)
    for direction in range(2):
        for layer in range(lstm.get("n_layers", 1)):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes[f"{cell}/W_0"] = (p + p, 4 * c)
            shapes[f"{cell}/B"] = (4 * c,)
            if c != p:
                shapes[f"{cell}/W_P_0"] = (c, p)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_hdf5(path: Path, arrays: Arrays) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def read_hdf5(path: Path) -> Arrays:
    import h5py

    arrays: Arrays = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[...]}) if hasattr(item, "shape") else None
        )
    return arrays


def write_bilm_folder(
    folder: Path,
    options: Optional[Dict[str, Any]] = None,
    arrays: Optional[Arrays] = None,
    names: Tuple[str, str] = ("options.json", "model.hdf5"),
) -> Path:
    options = OPTIONS if options is None else options
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(json.dumps(options), encoding="utf-8")
    write_hdf5(folder / names[1], bilm_arrays(options) if arrays is None else arrays)
    return folder


def many_langs_states(
    architecture: Dict[str, Any], n_characters: int, n_words: int, seed: int = 0
) -> Tuple[Dict[str, torch.Tensor], Dict[str, torch.Tensor]]:
    """Random state dicts of the token embedder and of the encoder."""
    rng = np.random.default_rng(seed)
    embedder, encoder = architecture["token_embedder"], architecture["encoder"]
    d, w = embedder["char_dim"], embedder["word_dim"]
    p, c = encoder["projection_dim"], encoder["dim"]
    f = sum(n for _, n in embedder["filters"])
    token: Dict[str, Tuple[int, ...]] = {}
    if w:
        token["word_emb_layer.embedding.weight"] = (n_words, w)
    token["char_emb_layer.embedding.weight"] = (n_characters, d)
    for i, (width, n) in enumerate(embedder["filters"]):
        token[f"convolutions.{i}.weight"] = (n, d, width)
        token[f"convolutions.{i}.bias"] = (n,)
    for k in range(embedder["n_highway"]):
        token[f"highways._layers.{k}.weight"] = (2 * f, f)
        token[f"highways._layers.{k}.bias"] = (2 * f,)
    token["projection.weight"] = (p, w + f)
    token["projection.bias"] = (p,)
    layers: Dict[str, Tuple[int, ...]] = {}
    for layer in range(encoder["n_layers"]):
        for direction in ("forward", "backward"):
            name = f"{direction}_layer_{layer}"
            layers[f"{name}.input_linearity.weight"] = (4 * c, p)
            layers[f"{name}.state_linearity.weight"] = (4 * c, p)
            layers[f"{name}.state_linearity.bias"] = (4 * c,)
            layers[f"{name}.state_projection.weight"] = (p, c)
    token_state, layer_state = (
        OrderedDict(
            (name, torch.from_numpy(rng.normal(size=shape).astype(np.float32)))
            for name, shape in shapes.items()
        )
        for shapes in (token, layers)
    )
    return token_state, layer_state


def write_many_langs_folder(
    folder: Path,
    architecture: Optional[Dict[str, Any]] = None,
    *,
    config_path: str = "/home/author/configs/arch.json",
    architecture_name: Optional[str] = "arch.json",
    legacy_pickle: bool = False,
) -> Path:
    """A model folder as their training command leaves it."""
    architecture = ARCHITECTURE if architecture is None else architecture
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {"seed": 1, "gpu": 0, "config_path": config_path, "model": "/home/author/out"}
    (folder / "config.json").write_text(json.dumps(arguments), encoding="utf-8")
    if architecture_name is not None:
        path = folder / architecture_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(architecture), encoding="utf-8")
    for name, symbols in (("char.dic", CHARACTERS), ("word.dic", WORDS)):
        lines = [f"{symbol}\t{i}".strip() + "\n" for i, symbol in enumerate(symbols)]
        (folder / name).write_bytes("".join(lines).encode())
    token, encoder = many_langs_states(architecture, len(CHARACTERS), len(WORDS))
    for name, state in (("token_embedder.pkl", token), ("encoder.pkl", encoder)):
        torch.save(state, folder / name, _use_new_zipfile_serialization=not legacy_pickle)
    return folder
