"""``options.json`` + ``weights.hdf5``: models of bilm-tf, AllenNLP and the NLPL repository.

Kernels lie in the file as (in, out), ours are (out, in). A layer's ``W_0`` holds the input part
above the recurrent part. Its four gates lie side by side in the order input, candidate, forget,
output; ours are input, forget, output, candidate.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from ...errors import ElmoError, ElmoWarning, Errors, Warnings
from ..config import BiLMConfig
from ..options import config_from_options, options_from_config
from ..parameters import empty_tensor
from .atomic import replace_folder
from .sniff import dump_json, foreign_file, read_json
from .weights import ModelFiles, Shape, check_files, check_shapes

OPTIONS_NAME = "options.json"
#: The name that the loader of the NLPL repository looks for first.
WEIGHTS_NAME = "model.hdf5"
OWN_FILES = (OPTIONS_NAME, WEIGHTS_NAME)

#: Position in the file of each of our gates.
_GATES = (0, 2, 3, 1)
_DIRECTIONS = ("forward_lstm", "backward_lstm")
#: First parts of the names of arrays that belong to a biLM. Others are left out with a warning.
_OWN_GROUPS = ("char_embed", "CNN", "RNN_")


def read_bilm(options_path: Union[str, Path], weights_path: Union[str, Path]) -> ModelFiles:
    """Read a pair of files as written by bilm-tf.

    :raises ElmoError: E023 for truncated or foreign files, E024 for weights that do not fit the
        options, E025, E026 for options that cannot be used, E028 without h5py.
    """
    options_path, weights_path = Path(options_path), Path(weights_path)
    options = read_json(options_path, "the options of a biLM")
    config = config_from_options(options, options_path)
    h5py = _h5py(weights_path)
    try:
        with h5py.File(weights_path, "r") as file:
            shapes = _shapes(file, weights_path)
            config = _with_projections(config, shapes)
            check_shapes(shapes, dataset_shapes(config), weights_path)

            def load(name: str) -> np.ndarray:
                return np.asarray(file[name][...], dtype=np.float32)

            return ModelFiles(config, _import(config, load), format="bilm")
    except (OSError, RuntimeError, KeyError) as err:
        raise foreign_file(weights_path, "HDF5 weights of a biLM", err) from err


def write_bilm(files: ModelFiles, path: Union[str, Path]) -> None:
    """Write a folder with ``options.json`` and ``model.hdf5``, without the softmax.

    A model that came from such files gets the same options and the same arrays, bit for bit.

    :raises ElmoError: E029 for models that the format cannot hold, E010, E024, E038 for an
        incomplete model, E028 without h5py, E034, E039 if the folder cannot be written.
    """
    options = options_from_config(files.config)
    check_files(files, path)
    h5py = _h5py(Path(path) / WEIGHTS_NAME)
    if files.has_softmax:
        message = Warnings.W002.format(n_words=len(files.vocabulary or ()), format="bilm")
        warnings.warn(message, ElmoWarning, stacklevel=2)
    with replace_folder(path, OWN_FILES) as folder:
        (folder / OPTIONS_NAME).write_bytes(dump_json(options))
        with h5py.File(folder / WEIGHTS_NAME, "w") as file:

            def store(name: str, array: np.ndarray) -> None:
                file.create_dataset(name, data=np.ascontiguousarray(array, dtype=np.float32))

            _export(files.config, files.tensors, store)


def dataset_shapes(config: BiLMConfig) -> Dict[str, Shape]:
    """Names and shapes of the arrays of a model in the file."""
    cnn, lstm = config.char_cnn, config.lstm
    d, f, p, c = cnn.embedding_dim, cnn.n_filters, lstm.projection_dim, lstm.cell_dim
    shapes: Dict[str, Shape] = {"char_embed": (cnn.n_characters, d)}
    for i, (width, count) in enumerate(cnn.filters):
        shapes[f"CNN/W_cnn_{i}"] = (1, width, d, count)
        shapes[f"CNN/b_cnn_{i}"] = (count,)
    for k in range(cnn.n_highway):
        for part in ("transform", "carry"):
            shapes[f"CNN_high_{k}/W_{part}"] = (f, f)
            shapes[f"CNN_high_{k}/b_{part}"] = (f,)
    if config.has_cnn_projection:
        shapes.update({"CNN_proj/W_proj": (f, p), "CNN_proj/b_proj": (p,)})
    for direction in range(2):
        for layer in range(lstm.n_layers):
            cell = _cell(direction, layer)
            shapes.update({f"{cell}/W_0": (2 * p, 4 * c), f"{cell}/B": (4 * c,)})
            if lstm.has_projection:
                shapes[f"{cell}/W_P_0"] = (c, p)
    return shapes


def _cell(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _h5py(path: Path) -> Any:
    # Imported here, since most models need no HDF5 and the import is slow.
    try:
        import h5py
    except ImportError as err:
        raise ElmoError(Errors.E028.format(path=path, problem=err)) from err
    return h5py


def _shapes(file: Any, path: Path) -> Dict[str, Shape]:
    """Shapes of all float arrays of the file that belong to a biLM."""
    shapes: Dict[str, Shape] = {}
    foreign = []

    def visit(name: str, item: Any) -> None:
        if not hasattr(item, "shape"):
            return
        if name.startswith(_OWN_GROUPS) and item.dtype.kind == "f":
            shapes[name] = tuple(item.shape)
        else:
            foreign.append(name)

    file.visititems(visit)
    if foreign and shapes:
        names = ", ".join(foreign[:8]) + (", ..." if len(foreign) > 8 else "")
        warnings.warn(Warnings.W001.format(path=path, names=names), ElmoWarning, stacklevel=4)
    elif foreign:
        # Nothing of a biLM at all: show what there is beside what is missing.
        shapes = {name: tuple(file[name].shape) for name in foreign}
    return shapes


def _with_projections(config: BiLMConfig, shapes: Dict[str, Shape]) -> BiLMConfig:
    """Projections between equal widths: bilm-tf has none, AllenNLP has. The file tells."""
    cnn, lstm = config.char_cnn, config.lstm
    if not config.has_cnn_projection and "CNN_proj/W_proj" in shapes:
        cnn = replace(cnn, always_project=True)
    if not lstm.has_projection and f"{_cell(0, 0)}/W_P_0" in shapes:
        lstm = replace(lstm, always_project=True)
    return replace(config, char_cnn=cnn, lstm=lstm)


def _import(config: BiLMConfig, load: Callable[[str], np.ndarray]) -> Dict[str, Tensor]:
    """All tensors, array by array, so that no more than one is held twice."""
    tensors: Dict[str, Tensor] = {}

    def keep(name: str, array: np.ndarray) -> None:
        # Into memory of torch, which is aligned better than that of numpy.
        tensors[name] = empty_tensor(*array.shape)
        tensors[name].numpy()[...] = array

    token = "token_encoder"
    keep(f"{token}.char_embedding", load("char_embed"))
    for i in range(len(config.char_cnn.filters)):
        # (1, width, in, out) -> (out, in, width)
        keep(f"{token}.conv.{i}.weight", load(f"CNN/W_cnn_{i}")[0].transpose(2, 1, 0))
        keep(f"{token}.conv.{i}.bias", load(f"CNN/b_cnn_{i}"))
    for k in range(config.char_cnn.n_highway):
        for part, source in (("transform", "transform"), ("gate", "carry")):
            name = f"{token}.highway.{k}.{part}"
            keep(f"{name}.weight", load(f"CNN_high_{k}/W_{source}").T)
            keep(f"{name}.bias", load(f"CNN_high_{k}/b_{source}"))
    if config.has_cnn_projection:
        keep(f"{token}.projection.weight", load("CNN_proj/W_proj").T)
        keep(f"{token}.projection.bias", load("CNN_proj/b_proj"))
    for direction, name in enumerate(_DIRECTIONS):
        for layer in range(config.lstm.n_layers):
            cell = _cell(direction, layer)
            parts = ("input_weight", "recurrent_weight")
            for part, weight in zip(parts, _import_gates(load(f"{cell}/W_0"))):
                tensors[f"{name}.{layer}.{part}"] = weight
            blocks = load(f"{cell}/B").reshape(4, -1)
            keep(f"{name}.{layer}.bias", blocks[list(_GATES)].reshape(-1))
            if config.lstm.has_projection:
                keep(f"{name}.{layer}.projection_weight", load(f"{cell}/W_P_0").T)
    return tensors


def _import_gates(kernel: np.ndarray) -> Tuple[Tensor, Tensor]:
    """``(2P, 4C)`` of the file to the two parts, each ``(4C, P)`` in our order of gates."""
    p, c = kernel.shape[0] // 2, kernel.shape[1] // 4
    parts = empty_tensor(4 * c, p), empty_tensor(4 * c, p)
    for half, part in zip((kernel[:p], kernel[p:]), parts):
        for gate, source in enumerate(_GATES):
            part.numpy()[gate * c : (gate + 1) * c] = half[:, source * c : (source + 1) * c].T
    return parts


def _export(
    config: BiLMConfig, tensors: Dict[str, Tensor], store: Callable[[str, np.ndarray], None]
) -> None:
    def array(name: str) -> np.ndarray:
        return tensors[name].detach().cpu().to(torch.float32).numpy()

    token = "token_encoder"
    store("char_embed", array(f"{token}.char_embedding"))
    for i in range(len(config.char_cnn.filters)):
        store(f"CNN/W_cnn_{i}", array(f"{token}.conv.{i}.weight").transpose(2, 1, 0)[None])
        store(f"CNN/b_cnn_{i}", array(f"{token}.conv.{i}.bias"))
    for k in range(config.char_cnn.n_highway):
        for part, target in (("transform", "transform"), ("gate", "carry")):
            name = f"{token}.highway.{k}.{part}"
            store(f"CNN_high_{k}/W_{target}", array(f"{name}.weight").T)
            store(f"CNN_high_{k}/b_{target}", array(f"{name}.bias"))
    if config.has_cnn_projection:
        store("CNN_proj/W_proj", array(f"{token}.projection.weight").T)
        store("CNN_proj/b_proj", array(f"{token}.projection.bias"))
    for direction, name in enumerate(_DIRECTIONS):
        for layer in range(config.lstm.n_layers):
            cell = _cell(direction, layer)
            parts = [array(f"{name}.{layer}.{part}_weight") for part in ("input", "recurrent")]
            kernel, bias = _export_gates(parts, array(f"{name}.{layer}.bias"))
            store(f"{cell}/W_0", kernel)
            store(f"{cell}/B", bias)
            if config.lstm.has_projection:
                store(f"{cell}/W_P_0", array(f"{name}.{layer}.projection_weight").T)


def _export_gates(parts: List[np.ndarray], bias: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Kernel ``(2P, 4C)`` and bias ``(4C,)`` of the file from the two parts and the bias."""
    c, p = len(bias) // 4, parts[0].shape[1]
    kernel = np.empty((2, p, 4, c), np.float32)
    out = np.empty((4, c), np.float32)
    for gate, target in enumerate(_GATES):
        out[target] = bias.reshape(4, c)[gate]
        for row, part in enumerate(parts):
            kernel[row, :, target] = part.reshape(4, c, p)[gate].T
    return kernel.reshape(2 * p, 4 * c), out.reshape(-1)
