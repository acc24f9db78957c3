"""``options.json`` of bilm-tf, AllenNLP and NLPL models ↔ :class:`BiLMConfig`."""

import copy
from pathlib import Path
from typing import Any, Dict, List, Mapping, Union

from ..errors import ElmoError, Errors
from .config import ACTIVATIONS, INITIAL_STATES, BiLMConfig, CharCNNConfig, LSTMConfig
from .fields import Fields

#: `meta` key under which imported models keep the options they came with.
SOURCE_OPTIONS = "source_options"
SOURCE_FORMAT = "source_format"
#: What other programs' options have no word for. They pass over it.
OWN_SECTION = "spacy_elmo"
#: The array always has 261 rows. Files say 261 after training and 262 (one more for masked
#: positions) once they are meant for prediction.
_N_CHARACTERS = (261, 262)


def config_from_options(
    options: Mapping[str, Any], path: Union[str, Path] = "options.json"
) -> BiLMConfig:
    """Read the options of a bilm-tf model.

    Unknown keys are tolerated. All of them are kept in ``meta``, so that an export writes the
    same options back. Whether there are projections where the widths are equal stands in the
    weights alone: the configuration says what bilm-tf would have written.

    :param options: The parsed file.
    :param path: Named in messages.
    :raises ElmoError: E025 listing missing or wrong values, E026 for word-id input, E010.
    """
    if "char_cnn" not in options and "lstm" in options:
        raise ElmoError(Errors.E026.format(path=path, found=", ".join(sorted(options))))
    problems: List[str] = []
    fields = Fields(options, problems)
    cnn, lstm = fields.section("char_cnn"), fields.section("lstm")
    n_characters = cnn.integer("n_characters", _N_CHARACTERS[-1])
    if n_characters not in _N_CHARACTERS:
        problems.append(
            f"char_cnn.n_characters is {n_characters}, models over bytes have 261 or 262"
        )
    config = BiLMConfig(
        CharCNNConfig(
            filters=cnn.filters("filters"),
            embedding_dim=cnn.section("embedding").integer("dim"),
            max_characters=cnn.integer("max_characters_per_token"),
            n_highway=cnn.integer("n_highway", 0),
            activation=cnn.text("activation", ACTIVATIONS),
        ),
        LSTMConfig(
            cell_dim=lstm.integer("dim"),
            projection_dim=lstm.integer("projection_dim"),
            n_layers=lstm.integer("n_layers", 1),
            cell_clip=lstm.number("cell_clip"),
            proj_clip=lstm.number("proj_clip"),
            # The trainer of bilm-tf takes an absent key for "no".
            skip_connections=lstm.flag("use_skip_connections", False),
            forget_bias=1.0,
        ),
        initial_state=read_initial_state(fields),
        meta={SOURCE_FORMAT: "bilm", SOURCE_OPTIONS: copy.deepcopy(dict(options))},
    )
    if problems:
        raise ElmoError(Errors.E025.format(path=path, problems="; ".join(problems)))
    return config.validate()


def read_initial_state(fields: Fields) -> str:
    """The state that a foreign file names in our own section; without one it is primed."""
    if fields.values.get(OWN_SECTION) is None:
        return "primed"
    return fields.section(OWN_SECTION).text("initial_state", INITIAL_STATES)


def with_initial_state(values: Mapping[str, Any], state: str) -> Dict[str, Any]:
    """The contents of a foreign file, changed to be read with another initial state if need be.

    Other readers pass over our section, and start as their models were trained to.
    """
    if read_initial_state(Fields(values, [])) == state:
        return dict(values)
    others = {name: value for name, value in values.items() if name != OWN_SECTION}
    return others if state == "primed" else {OWN_SECTION: {"initial_state": state}, **others}


def options_from_config(config: BiLMConfig) -> Dict[str, Any]:
    """Give the options of a model that is to be read by bilm-tf or AllenNLP.

    An imported model gives back the options it came with, unless its shape was changed; our own
    section in them says its present initial state.

    :raises ElmoError: E029 for models that these files cannot describe.
    """
    _check_describable(config)
    source = config.meta.get(SOURCE_OPTIONS) if config.meta.get(SOURCE_FORMAT) == "bilm" else None
    if isinstance(source, Mapping) and _same_shape(config, source):
        return with_initial_state(copy.deepcopy(dict(source)), config.initial_state)
    cnn, lstm = config.char_cnn, config.lstm
    clips = {"cell_clip": lstm.cell_clip, "proj_clip": lstm.proj_clip}
    options = {
        "lstm": {
            "dim": lstm.cell_dim,
            "projection_dim": lstm.projection_dim,
            "n_layers": lstm.n_layers,
            **{name: clip for name, clip in clips.items() if clip is not None},
            "use_skip_connections": lstm.skip_connections,
        },
        "char_cnn": {
            "activation": cnn.activation,
            "embedding": {"dim": cnn.embedding_dim},
            "filters": [list(pair) for pair in cnn.filters],
            "max_characters_per_token": cnn.max_characters,
            "n_characters": _N_CHARACTERS[-1],
            "n_highway": cnn.n_highway,
        },
    }
    return with_initial_state(options, config.initial_state)


def _check_describable(config: BiLMConfig) -> None:
    problems = []
    if config.char_cnn.unit != "byte":
        problems.append(f"its characters are {config.char_cnn.unit}s of a dictionary, not bytes")
    if config.char_cnn.word_dim:
        problems.append(f"it has word vectors ({config.char_cnn.word_dim} wide)")
    if config.lstm.forget_bias != 1.0:
        problems.append(
            f"its forget bias is {config.lstm.forget_bias}, readers of the format add 1.0"
        )
    if problems:
        raise ElmoError(Errors.E029.format(format="bilm", problems="; ".join(problems)))


def _same_shape(config: BiLMConfig, options: Mapping[str, Any]) -> bool:
    """Whether options still describe a configuration (which may have been edited since)."""
    try:
        original = config_from_options(options)
    except ElmoError:
        return False
    found, kept = config.to_dict(), original.to_dict()
    for part in ("char_cnn", "lstm"):
        for data in (found, kept):
            # Says something about the weights, not about the options.
            data[part].pop("always_project")
    return all(found[part] == kept[part] for part in ("char_cnn", "lstm"))
