"""Configuration of a biLM: frozen dataclasses, checks, presets and ``options.json``.

The layout and defaults follow the published models of Peters et al. (2018), "Deep
contextualized word representations", as written by bilm-tf.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import ElmoError, Errors

INITIAL_STATES = ("zero", "primed", "carry")
UNITS = ("byte", "codepoint")
ACTIVATIONS = ("relu", "tanh")
#: Rows of the character table of byte models: 256 bytes, four boundary marks, the pad.
N_BYTE_CHARACTERS = 261


@dataclass(frozen=True)
class CharCNNConfig:
    """The token encoder: characters, convolutions, highway layers, projection.

    :param filters:
        ``(width, count)`` of each convolution, in the order of the output features.
    :param embedding_dim:
        Width D of a character vector.
    :param max_characters:
        Positions of a word, both word markers included; longer words are cut.
    :param n_highway:
        Highway layers, 0 for none.
    :param activation:
        Applied after the maximum over positions: "relu" or "tanh".
    :param unit:
        What a character is: "byte" (UTF-8 bytes, fixed table) or "codepoint" (a dictionary
        that belongs to the model, as in ELMoForManyLangs).
    :param n_characters:
        Rows of the character table.
    :param n_words:
        Rows of the table of word vectors that are joined to the convolutions' output, 0 for
        none (only ELMoForManyLangs models have them).
    :param word_dim:
        Width of these word vectors, 0 for none.
    :param always_project:
        End in a projection even where F equals P and bilm-tf has none (the other
        implementations always have one).
    """

    filters: Tuple[Tuple[int, int], ...]
    embedding_dim: int = 16
    max_characters: int = 50
    n_highway: int = 1
    activation: str = "relu"
    unit: str = "byte"
    n_characters: int = N_BYTE_CHARACTERS
    n_words: int = 0
    word_dim: int = 0
    always_project: bool = False

    @property
    def n_filters(self) -> int:
        """Number F of features that the convolutions yield."""
        return sum(count for _, count in self.filters)

    @property
    def max_width(self) -> int:
        """Width of the widest convolution, in characters."""
        return max(width for width, _ in self.filters)


@dataclass(frozen=True)
class LSTMConfig:
    """The recurrent layers of one direction; both directions have the same shape.

    :param cell_dim:
        Width C of the cell state.
    :param projection_dim:
        Width P of the output (and of the token vectors). Where it equals ``cell_dim`` there is
        no projection, as in bilm-tf.
    :param n_layers:
        Layers per direction.
    :param cell_clip:
        The cell state is clamped to ±this before the output gate; ``None`` for no clamp.
    :param proj_clip:
        The projected output is clamped to ±this before it is used; ``None`` for no clamp.
    :param skip_connections:
        From the second layer up a layer's input is added to its output.
    :param forget_bias:
        Added to the forget gate at run time. 1.0 where the stored bias leaves it out (bilm-tf),
        0.0 where it is inside the stored bias.
    :param always_project:
        Have a projection even where C equals P and bilm-tf has none (the other implementations
        always have one).
    """

    cell_dim: int
    projection_dim: int
    n_layers: int = 2
    cell_clip: Optional[float] = 3.0
    proj_clip: Optional[float] = 3.0
    skip_connections: bool = True
    forget_bias: float = 1.0
    always_project: bool = False

    @property
    def has_projection(self) -> bool:
        """Whether the layers have a projection matrix."""
        return self.always_project or self.cell_dim != self.projection_dim


@dataclass(frozen=True)
class BiLMConfig:
    """Everything that describes a biLM besides its weights and its dictionaries.

    :param char_cnn: The token encoder.
    :param lstm: The recurrent layers.
    :param initial_state:
        State in which a sentence starts and for which the model was trained: "zero", "primed"
        (a fixed state, made by running empty sentences) or "carry" (each row of a batch goes on
        from what the row left in the call before, as the original implementations do).
    :param meta:
        Free-form facts about the model: name, licence, training, source options.
    """

    char_cnn: CharCNNConfig
    lstm: LSTMConfig
    initial_state: str = "zero"
    meta: Dict[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Width of a layer's vectors: both directions together, 2P."""
        return 2 * self.lstm.projection_dim

    @property
    def n_layers(self) -> int:
        """Number of layers that the encoder gives: the token layer and L LSTM layers."""
        return self.lstm.n_layers + 1

    @property
    def has_cnn_projection(self) -> bool:
        """Whether the token encoder ends in a linear projection to P."""
        c = self.char_cnn
        different = c.n_filters != self.lstm.projection_dim
        return c.always_project or c.word_dim > 0 or different

    def validate(self) -> "BiLMConfig":
        """Check all values and give the configuration back.

        :raises ElmoError: E010, listing everything that is wrong at once.
        """
        problems: List[str] = []
        c, r = self.char_cnn, self.lstm
        if not c.filters:
            problems.append("char_cnn.filters is empty, at least one [width, count] is needed")
        for width, count in c.filters:
            if width < 1 or count < 1:
                problems.append(f"char_cnn.filters has [{width}, {count}], both must be 1 or more")
        _positive(problems, "char_cnn.embedding_dim", c.embedding_dim)
        _positive(problems, "char_cnn.n_characters", c.n_characters)
        _positive(problems, "lstm.cell_dim", r.cell_dim)
        _positive(problems, "lstm.projection_dim", r.projection_dim)
        _positive(problems, "lstm.n_layers", r.n_layers)
        if c.max_characters < 3:
            problems.append(
                f"char_cnn.max_characters is {c.max_characters}, at least 3 are needed "
                "(two word markers and a character)"
            )
        elif c.filters and c.max_width > c.max_characters:
            problems.append(
                f"char_cnn.filters has a width of {c.max_width}, more than "
                f"char_cnn.max_characters ({c.max_characters})"
            )
        if c.n_highway < 0:
            problems.append(f"char_cnn.n_highway is {c.n_highway}, it must be 0 or more")
        if (c.n_words > 0) != (c.word_dim > 0):
            problems.append("char_cnn.n_words and char_cnn.word_dim must both be 0 or neither")
        _choice(problems, "char_cnn.activation", c.activation, ACTIVATIONS)
        _choice(problems, "char_cnn.unit", c.unit, UNITS)
        _choice(problems, "initial_state", self.initial_state, INITIAL_STATES)
        if c.unit == "byte" and c.n_characters != N_BYTE_CHARACTERS:
            problems.append(
                f"char_cnn.n_characters is {c.n_characters}, byte models have {N_BYTE_CHARACTERS}"
            )
        for name, clip in (("cell_clip", r.cell_clip), ("proj_clip", r.proj_clip)):
            if clip is not None and not (clip > 0 and math.isfinite(clip)):
                problems.append(f"lstm.{name} is {clip}, it must be above 0 or absent")
        if problems:
            raise ElmoError(Errors.E010.format(problems="; ".join(problems)))
        return self

    def to_dict(self) -> Dict[str, Any]:
        """The configuration as JSON-ready values (what ``config.json`` holds)."""
        data = asdict(self)
        data["char_cnn"]["filters"] = [list(pair) for pair in self.char_cnn.filters]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BiLMConfig":
        """Read what :meth:`to_dict` wrote.

        :raises ElmoError: E010 for missing, unknown or wrong values.
        """
        problems: List[str] = []
        parts: Dict[str, Any] = {}
        for name, part in (("char_cnn", CharCNNConfig), ("lstm", LSTMConfig)):
            values = data.get(name)
            if not isinstance(values, Mapping):
                problems.append(f"section {name} is missing")
                continue
            known = {f.name for f in fields(part)}
            unknown = sorted(set(values) - known)
            if unknown:
                problems.append(f"{name} has unknown keys {unknown}, known are {sorted(known)}")
                continue
            values = dict(values)
            if name == "char_cnn" and "filters" in values:
                values["filters"] = tuple((int(w), int(n)) for w, n in values["filters"])
            try:
                parts[name] = part(**values)
            except TypeError as err:
                problems.append(f"{name}: {err}")
        if problems:
            raise ElmoError(Errors.E010.format(problems="; ".join(problems)))
        return cls(
            char_cnn=parts["char_cnn"],
            lstm=parts["lstm"],
            initial_state=data.get("initial_state", "zero"),
            meta=dict(data.get("meta", {})),
        ).validate()


def _positive(problems: List[str], name: str, value: int) -> None:
    if value < 1:
        problems.append(f"{name} is {value}, it must be 1 or more")


def _choice(problems: List[str], name: str, value: str, allowed: Tuple[str, ...]) -> None:
    if value not in allowed:
        problems.append(f"{name} is {value!r}, it must be one of {', '.join(allowed)}")


_FILTERS_SMALL = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512))
_FILTERS_FULL = (*_FILTERS_SMALL, (7, 1024))

#: Shapes by name. `small`, `medium` and `original` are those of the published models
#: (13.6, 28.0 and 93.6 million parameters), `mini` is made for an afternoon on a laptop.
PRESETS: Dict[str, BiLMConfig] = {
    "mini": BiLMConfig(CharCNNConfig(_FILTERS_SMALL), LSTMConfig(512, 128)),
    "small": BiLMConfig(CharCNNConfig(_FILTERS_FULL), LSTMConfig(1024, 128)),
    "medium": BiLMConfig(CharCNNConfig(_FILTERS_FULL), LSTMConfig(2048, 256)),
    "original": BiLMConfig(CharCNNConfig(_FILTERS_FULL, n_highway=2), LSTMConfig(4096, 512)),
}
