"""Model folders of ELMoForManyLangs, read and written.

Its gates are in the order input, forget, candidate, output (ours: input, forget, output,
candidate) with the forget bias inside the bias. Its highway gate multiplies the input and ours
the ReLU branch: as sigmoid(-x) = 1 - sigmoid(x), the gate changes sign on the way, exactly.
"""

import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor

from ...errors import ElmoWarning, Warnings
from ..config import BiLMConfig
from .atomic import replace_folder
from .dictionaries import (
    WORDS_NAME,
    dictionary_files,
    dump_dictionary,
    parse_dictionary,
    read_dictionaries,
)
from .many_langs_config import (
    CONFIG_NAME,
    FORMAT_NAME,
    architecture_from_config,
    config_from_architecture,
    read_architecture,
)
from .pickles import load_state_dict
from .sniff import dump_json, foreign_file
from .weights import (
    SOFTMAX_BIAS,
    SOFTMAX_WEIGHT,
    ModelFiles,
    Shape,
    check_files,
    check_shapes,
    to_float32,
)

TOKEN_NAME = "token_embedder.pkl"
ENCODER_NAME = "encoder.pkl"
CLASSIFIER_NAME = "classifier.pkl"

_CHARACTERS = "char_emb_layer.embedding.weight"
_WORDS = "word_emb_layer.embedding.weight"
_DIRECTIONS = ("forward", "backward")
#: Position in the file of each of our gates; the order is its own inverse.
_GATES = (0, 1, 3, 2)
#: Weight and bias of the classifiers that are one linear layer over the vocabulary.
_CLASSIFIERS = {
    "softmax": ("hidden2tag.weight", "hidden2tag.bias"),
    "sampled_softmax": ("column_emb.weight", "column_bias.weight"),
}


def read_many_langs(path: Union[str, Path], softmax: bool = False) -> ModelFiles:
    """Read a model folder of ELMoForManyLangs.

    :param softmax: Read ``classifier.pkl`` too, if it is there and is a plain softmax; warns
        (W003) if it cannot be used.
    :raises ElmoError: E023 for absent, truncated or foreign files, E030 for pickles with more
        than tensors, E024 for weights that do not fit, E025, E031 for networks that are not
        supported, E032, E033 for the dictionaries.
    """
    folder = Path(path)
    architecture, arguments, source = read_architecture(folder)
    # Before the big files: whether the network is supported at all.
    config = config_from_architecture(architecture, source, arguments=arguments)
    token = load_state_dict(folder / TOKEN_NAME)
    rows = [len(token[name]) if name in token else 1 for name in (_CHARACTERS, _WORDS)]
    config = config_from_architecture(architecture, source, rows[0], rows[1], arguments)
    token_shapes, encoder_shapes = state_shapes(config)
    _check(token, token_shapes, folder / TOKEN_NAME)
    encoder = load_state_dict(folder / ENCODER_NAME)
    _check(encoder, encoder_shapes, folder / ENCODER_NAME)
    tensors = {**_import_token_encoder(config, token), **_import_layers(config, encoder)}
    files = ModelFiles(config, tensors, format=FORMAT_NAME)
    read_dictionaries(folder, files)
    if softmax and (folder / CLASSIFIER_NAME).exists():
        _read_classifier(folder, files)
    return files


def write_many_langs(files: ModelFiles, path: Union[str, Path]) -> None:
    """Write a folder that ELMoForManyLangs can read.

    :raises ElmoError: E029 for models that this family does not have, E010, E024, E033, E038
        for an incomplete model, E034, E039 if the folder cannot be written.
    """
    architecture, arguments, name = architecture_from_config(files.config)
    check_files(files, path)
    token, encoder = _export(files.config, files.tensors)
    states = {TOKEN_NAME: token, ENCODER_NAME: encoder}
    texts = {
        **dictionary_files(files),
        CONFIG_NAME: dump_json(arguments),
        name: dump_json(architecture),
    }
    if files.has_softmax:
        words = [word for word, _ in files.vocabulary or ()]
        texts.setdefault(WORDS_NAME, dump_dictionary({w: i for i, w in enumerate(words)}))
        if parse_dictionary(texts[WORDS_NAME], WORDS_NAME) == {w: i for i, w in enumerate(words)}:
            states[CLASSIFIER_NAME] = _export_classifier(files, architecture)
        else:
            # The family has one dictionary for both the word vectors and the softmax.
            message = Warnings.W002.format(n_words=len(words), format=FORMAT_NAME)
            warnings.warn(message, ElmoWarning, stacklevel=2)
    with replace_folder(path, (*states, *texts, CLASSIFIER_NAME, WORDS_NAME)) as folder:
        for file_name, state in states.items():
            torch.save(state, folder / file_name)
        for file_name, text in texts.items():
            (folder / file_name).write_bytes(text)


def state_shapes(config: BiLMConfig) -> Tuple[Dict[str, Shape], Dict[str, Shape]]:
    """Names and shapes of the tensors in ``token_embedder.pkl`` and in ``encoder.pkl``."""
    cnn, lstm = config.char_cnn, config.lstm
    d, f, p, c = cnn.embedding_dim, cnn.n_filters, lstm.projection_dim, lstm.cell_dim
    token: Dict[str, Shape] = {_CHARACTERS: (cnn.n_characters, d)}
    if cnn.word_dim:
        token[_WORDS] = (cnn.n_words, cnn.word_dim)
    for i, (width, count) in enumerate(cnn.filters):
        token[f"convolutions.{i}.weight"] = (count, d, width)
        token[f"convolutions.{i}.bias"] = (count,)
    for k in range(cnn.n_highway):
        token[f"highways._layers.{k}.weight"] = (2 * f, f)
        token[f"highways._layers.{k}.bias"] = (2 * f,)
    token["projection.weight"] = (p, cnn.word_dim + f)
    token["projection.bias"] = (p,)
    encoder: Dict[str, Shape] = {}
    for direction in _DIRECTIONS:
        for layer in range(lstm.n_layers):
            name = f"{direction}_layer_{layer}"
            encoder[f"{name}.input_linearity.weight"] = (4 * c, p)
            encoder[f"{name}.state_linearity.weight"] = (4 * c, p)
            encoder[f"{name}.state_linearity.bias"] = (4 * c,)
            encoder[f"{name}.state_projection.weight"] = (p, c)
    return token, encoder


def _check(state: Dict[str, Tensor], expected: Dict[str, Shape], path: Path) -> None:
    check_shapes({name: tensor.shape for name, tensor in state.items()}, expected, path)
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            raise foreign_file(path, "weights of a model", f"{name} has type {tensor.dtype}")


def _import_token_encoder(config: BiLMConfig, state: Dict[str, Tensor]) -> Dict[str, Tensor]:
    cnn, name = config.char_cnn, "token_encoder"
    renamed = {_CHARACTERS: "char_embedding"}
    if cnn.word_dim:
        renamed[_WORDS] = "word_embedding"
    for part in ("weight", "bias"):
        renamed[f"projection.{part}"] = f"projection.{part}"
        for i in range(len(cnn.filters)):
            renamed[f"convolutions.{i}.{part}"] = f"conv.{i}.{part}"
    tensors = {f"{name}.{new}": to_float32(state[old]) for old, new in renamed.items()}
    for k in range(cnn.n_highway):
        for part in ("weight", "bias"):
            # Both halves copied, so that nothing keeps the whole of the two alive.
            transform, gate = to_float32(state[f"highways._layers.{k}.{part}"]).chunk(2)
            tensors[f"{name}.highway.{k}.transform.{part}"] = transform.clone()
            tensors[f"{name}.highway.{k}.gate.{part}"] = -gate
    return tensors


def _import_layers(config: BiLMConfig, state: Dict[str, Tensor]) -> Dict[str, Tensor]:
    tensors: Dict[str, Tensor] = {}
    for direction in _DIRECTIONS:
        for layer in range(config.lstm.n_layers):
            old, new = f"{direction}_layer_{layer}", f"{direction}_lstm.{layer}"
            for source, target in _LAYER_NAMES.items():
                # Taken out of the state, so that no more than one tensor is held twice.
                tensor = to_float32(state.pop(f"{old}.{source}"))
                if not source.startswith("state_projection"):
                    tensor = _reorder_gates(tensor)
                tensors[f"{new}.{target}"] = tensor
    return tensors


_LAYER_NAMES = {
    "input_linearity.weight": "input_weight",
    "state_linearity.weight": "recurrent_weight",
    "state_linearity.bias": "bias",
    "state_projection.weight": "projection_weight",
}


def _reorder_gates(tensor: Tensor) -> Tensor:
    """Between the two orders of gates. *Shape:* ``(4C, ...)``"""
    blocks = tensor.chunk(4)
    return torch.cat([blocks[gate] for gate in _GATES])


def _read_classifier(folder: Path, files: ModelFiles) -> None:
    path = folder / CLASSIFIER_NAME
    state = load_state_dict(path)
    for weight, bias in _CLASSIFIERS.values():
        if weight in state and bias in state:
            break
    else:
        _ignore_classifier(path, f"it is no plain softmax (it has {', '.join(sorted(state))})")
        return
    p = files.config.lstm.projection_dim
    n_words = len(state[weight])
    vocabulary = _vocabulary(folder, files, n_words)
    if vocabulary is None:
        _ignore_classifier(path, f"{WORDS_NAME} does not name each of its {n_words} words")
    elif tuple(state[weight].shape) != (n_words, p) or state[bias].numel() != n_words:
        shapes = f"{tuple(state[weight].shape)} and {tuple(state[bias].shape)}"
        _ignore_classifier(path, f"its shapes are {shapes}, not ({n_words}, {p}) and ({n_words},)")
    else:
        files.tensors[SOFTMAX_WEIGHT] = to_float32(state[weight])
        files.tensors[SOFTMAX_BIAS] = to_float32(state[bias]).reshape(n_words)
        files.vocabulary = vocabulary


def _vocabulary(folder: Path, files: ModelFiles, n_words: int) -> Optional[List[Tuple[str, int]]]:
    """Words by id, if each of the ids has one. Counts are not stored in this family."""
    data = files.extra_files.get(WORDS_NAME)
    words = {} if data is None else parse_dictionary(data, folder / WORDS_NAME)
    if sorted(words.values()) != list(range(n_words)):
        return None
    return [(word, 0) for word in sorted(words, key=lambda w: words[w])]


def _ignore_classifier(path: Path, problem: str) -> None:
    warnings.warn(Warnings.W003.format(path=path, problem=problem), ElmoWarning, stacklevel=4)


def _export(
    config: BiLMConfig, tensors: Dict[str, Tensor]
) -> Tuple[Dict[str, Tensor], Dict[str, Tensor]]:
    # Copies: a saved view would take the whole storage behind it along.
    source = {name: to_float32(t.detach().cpu()).clone() for name, t in tensors.items()}
    cnn, name = config.char_cnn, "token_encoder"
    token = {_CHARACTERS: source[f"{name}.char_embedding"]}
    if cnn.word_dim:
        token[_WORDS] = source[f"{name}.word_embedding"]
    for part in ("weight", "bias"):
        for i in range(len(cnn.filters)):
            token[f"convolutions.{i}.{part}"] = source[f"{name}.conv.{i}.{part}"]
        for k in range(cnn.n_highway):
            highway = f"{name}.highway.{k}"
            halves = [source[f"{highway}.transform.{part}"], -source[f"{highway}.gate.{part}"]]
            token[f"highways._layers.{k}.{part}"] = torch.cat(halves)
        token[f"projection.{part}"] = source[f"{name}.projection.{part}"]
    encoder: Dict[str, Tensor] = {}
    for direction in _DIRECTIONS:
        for layer in range(config.lstm.n_layers):
            for target, part in _LAYER_NAMES.items():
                tensor = source[f"{direction}_lstm.{layer}.{part}"]
                if not target.startswith("state_projection"):
                    tensor = _reorder_gates(tensor)
                encoder[f"{direction}_layer_{layer}.{target}"] = tensor
    return token, encoder


def _export_classifier(files: ModelFiles, architecture: Dict[str, Any]) -> Dict[str, Tensor]:
    """The softmax under the names that its kind has there."""
    classifier = architecture.get("classifier")
    kind = str(classifier.get("name")) if isinstance(classifier, dict) else ""
    weight, bias = (files.tensors[n].detach().cpu() for n in (SOFTMAX_WEIGHT, SOFTMAX_BIAS))
    if kind.lower() != "sampled_softmax":
        return dict(zip(_CLASSIFIERS["softmax"], (weight.clone(), bias.clone())))
    state = dict(zip(_CLASSIFIERS["sampled_softmax"], (weight.clone(), bias[:, None].clone())))
    # A parameter of that class which never enters a score, but must be there to load it.
    state["oov_column"] = weight.new_zeros(weight.shape[1], 1)
    return state
