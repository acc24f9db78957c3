"""The two JSON files of an ELMoForManyLangs folder ↔ :class:`BiLMConfig`."""

import copy
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ...errors import ElmoError, Errors
from ..config import ACTIVATIONS, BiLMConfig, CharCNNConfig, LSTMConfig
from ..fields import Fields
from ..options import SOURCE_FORMAT, SOURCE_OPTIONS, read_initial_state, with_initial_state
from .sniff import read_json

FORMAT_NAME = "many-langs"
CONFIG_NAME = "config.json"
#: `meta` key for the arguments of the training command (`config.json` of the folder).
SOURCE_CONFIG = "source_config"
SAMPLE_NAME = "cnn_50_100_512_4096_sample.json"

#: Architecture of the published models, which often come without the file that describes it.
SAMPLE: Dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}


def read_architecture(folder: Path) -> Tuple[Dict[str, Any], Dict[str, Any], Path]:
    """Find the architecture of a model folder.

    ``config.json`` names it by the path it had on the author's machine. It is looked for under
    this path inside the folder, then by its bare name, and is the sample of the project if
    neither is there.

    :returns: The architecture, ``config.json``, and the file that the architecture is from.
    :raises ElmoError: E023 for files that are not JSON, E025 for a wrong ``config_path`` or a
        wrong initial state in our own section of ``config.json``.
    """
    config_path = folder / CONFIG_NAME
    arguments = read_json(config_path, "the arguments of an ELMoForManyLangs training")
    named = arguments.get("config_path", SAMPLE_NAME)
    problems: List[str] = []
    if not isinstance(named, str) or not named:
        problems.append(f"config_path is {named!r}, expected the path of a file")
    read_initial_state(Fields(arguments, problems))
    if problems:
        raise ElmoError(Errors.E025.format(path=config_path, problems="; ".join(problems)))
    for candidate in (folder / named, folder / _base_name(named)):
        # A folder whose config.json names itself would otherwise describe no network at all.
        if candidate.is_file() and candidate != config_path:
            return read_json(candidate, "the architecture of a model"), arguments, candidate
    return copy.deepcopy(SAMPLE), arguments, Path(SAMPLE_NAME)


def config_from_architecture(
    architecture: Mapping[str, Any],
    path: Path,
    n_characters: int = 1,
    n_words: int = 1,
    arguments: Optional[Mapping[str, Any]] = None,
) -> BiLMConfig:
    """Read the architecture of an ELMoForManyLangs model.

    :param path: Named in messages.
    :param n_characters: Rows of the table of characters.
    :param n_words: Rows of the table of words, if the model has word vectors.
    :param arguments: ``config.json``, kept for an export; may name the initial state.
    :raises ElmoError: E031 for networks that are not supported, E025, E010.
    """
    problems: List[str] = []
    fields = Fields(architecture, problems)
    token, encoder = fields.section("token_embedder"), fields.section("encoder")
    for part, section, expected in (("token embedder", token, "cnn"), ("encoder", encoder, "elmo")):
        name = section.values.get("name", expected)
        if str(name).lower() != expected:
            raise ElmoError(
                Errors.E031.format(path=path, part=f"the {part}", found=name, expected=expected)
            )
    char_dim, word_dim = token.integer("char_dim"), token.integer("word_dim", 0)
    if char_dim < 1:
        raise ElmoError(
            Errors.E031.format(
                path=path, part="char_dim", found=char_dim, expected="a model with characters"
            )
        )
    filters = token.filters("filters")
    cell_dim, projection_dim = encoder.integer("dim"), encoder.integer("projection_dim")
    meta: Dict[str, Any] = {
        SOURCE_FORMAT: FORMAT_NAME,
        SOURCE_OPTIONS: copy.deepcopy(dict(architecture)),
    }
    if arguments is not None:
        meta[SOURCE_CONFIG] = copy.deepcopy(dict(arguments))
    config = BiLMConfig(
        CharCNNConfig(
            filters=filters,
            embedding_dim=char_dim,
            max_characters=token.integer("max_characters_per_token"),
            n_highway=token.integer("n_highway"),
            activation=token.text("activation", ACTIVATIONS),
            unit="codepoint",
            n_characters=n_characters,
            n_words=n_words if word_dim > 0 else 0,
            word_dim=max(word_dim, 0),
            always_project=word_dim < 1 and sum(n for _, n in filters) == projection_dim,
        ),
        LSTMConfig(
            cell_dim=cell_dim,
            projection_dim=projection_dim,
            n_layers=encoder.integer("n_layers"),
            # 0 switches a clip off in this family.
            cell_clip=encoder.number("cell_clip") or None,
            proj_clip=encoder.number("proj_clip") or None,
            skip_connections=True,
            forget_bias=0.0,
            always_project=cell_dim == projection_dim,
        ),
        initial_state=read_initial_state(Fields(arguments or {}, problems)),
        meta=meta,
    )
    if problems:
        raise ElmoError(Errors.E025.format(path=path, problems="; ".join(problems)))
    return config.validate()


def architecture_from_config(config: BiLMConfig) -> Tuple[Dict[str, Any], Dict[str, Any], str]:
    """Give the files of a model that ELMoForManyLangs is to read.

    :returns: The architecture, ``config.json``, and the name of the architecture file.
    :raises ElmoError: E029 for models that this family does not have.
    """
    _check_describable(config)
    cnn, lstm, meta = config.char_cnn, config.lstm, config.meta
    own = meta.get(SOURCE_FORMAT) == FORMAT_NAME
    source = meta.get(SOURCE_OPTIONS) if own else None
    if isinstance(source, Mapping) and _same_shape(config, source):
        architecture = copy.deepcopy(dict(source))
    else:
        architecture = copy.deepcopy(SAMPLE)
        architecture["encoder"].update(
            projection_dim=lstm.projection_dim,
            cell_clip=lstm.cell_clip or 0,
            proj_clip=lstm.proj_clip or 0,
            dim=lstm.cell_dim,
            n_layers=lstm.n_layers,
        )
        architecture["token_embedder"].update(
            activation=cnn.activation,
            filters=[list(pair) for pair in cnn.filters],
            n_highway=cnn.n_highway,
            word_dim=cnn.word_dim,
            char_dim=cnn.embedding_dim,
            max_characters_per_token=cnn.max_characters,
        )
    arguments = copy.deepcopy(dict(meta.get(SOURCE_CONFIG) or {})) if own else {}
    name = _base_name(str(arguments.get("config_path") or ""))
    if not name.endswith(".json") or name == CONFIG_NAME:
        name = f"cnn_{cnn.embedding_dim}_{cnn.word_dim}_{lstm.projection_dim}_{lstm.cell_dim}.json"
    # The file lies beside config.json, wherever it lay when the model was trained.
    arguments["config_path"] = name
    return architecture, with_initial_state(arguments, config.initial_state), name


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _check_describable(config: BiLMConfig) -> None:
    cnn, lstm = config.char_cnn, config.lstm
    problems = []
    if cnn.unit != "codepoint":
        problems.append("its characters are bytes, not code points of a dictionary")
    if not lstm.skip_connections:
        problems.append("it has no skip connections")
    if lstm.forget_bias:
        problems.append(f"its forget bias ({lstm.forget_bias}) is not part of the stored bias")
    if not lstm.has_projection or not config.has_cnn_projection:
        problems.append("it lacks a projection")
    if problems:
        raise ElmoError(Errors.E029.format(format=FORMAT_NAME, problems="; ".join(problems)))


def _same_shape(config: BiLMConfig, architecture: Mapping[str, Any]) -> bool:
    cnn = config.char_cnn
    try:
        original = config_from_architecture(
            architecture, Path(SAMPLE_NAME), cnn.n_characters, cnn.n_words
        )
    except ElmoError:
        return False
    return (original.char_cnn, original.lstm) == (config.char_cnn, config.lstm)
