"""Settings of a pre-training run."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Mapping, Optional

from ..bilm.config import PRESETS, BiLMConfig, CharCNNConfig, LSTMConfig
from ..errors import ElmoError, Errors


@dataclass(frozen=True)
class TrainingConfig:
    """How a biLM is trained. What the defaults were chosen by stands in docs/pretraining.md.

    :param unit: "sentence": every sentence starts from the zero state, as at inference.
        "stream": sentences are packed end to end and states carried on (as in bilm-tf).
    :param batch_tokens: Predictions of one direction in a batch.
    :param accumulate: Batches whose gradients are summed for one step, which is then one of so
        many times the predictions in the memory of a single batch.
    :param stream_steps: Length of the pieces that streams are cut into.
    :param epochs: Passes over the text.
    :param max_steps: Stop (and end the learn-rate schedule) after so many steps, 0 for none.
    :param max_minutes: The same by the clock, 0 for none. The learn rate falls in time, whatever
        the machine's speed; but two such runs are not equal to the bit.
    :param vocabulary_size: Words of the softmax at most, the three special ones included.
    :param min_count: Rarer words are left out of the softmax.
    :param n_negatives: Expected sample of the softmax; 0 for the full softmax.
    :param sampling_power: Words are sampled in proportion to count ** power.
    :param optimizer: "adam", "adagrad" (bilm-tf's recipe) or "muon" (for the LSTMs' weights and
        the projections, with Adam for all else).
    :param learn_rate: Highest learn rate.
    :param softmax_learn_rate_factor: The softmax's learn rate relative to the encoder's.
    :param warmup_steps: Steps of linear increase from 0.
    :param schedule: "cosine", "linear" (both fall to `final_learn_rate`) or "constant".
    :param final_learn_rate: What the learn rate falls to, relative to the highest.
    :param beta1: Adam's decay of the mean.
    :param beta2: Adam's decay of the mean square.
    :param eps: Adam's epsilon.
    :param initial_accumulator: Adagrad's start value.
    :param clip_norm: Gradients are scaled down to this global norm, 0 for no clipping.
    :param loss_scale: Factor on the mean loss (bilm-tf: its unroll steps, 20).
    :param dropout: Rate on every layer's input and on the top output.
    :param freeze_steps: The encoder rests for so many steps (with `--init`).
    :param eval_every: Steps between evaluations on held-out text.
    :param eval_tokens: Held-out tokens used for these; the last evaluation takes all.
    :param patience: Evaluations without a better result before stopping, 0 for no such stop.
    :param checkpoint_every: Steps between checkpoints.
    :param log_every: Steps between lines of the log.
    :param max_sentence_length: Longer sentences are cut into pieces.
    :param seed: Start of all random numbers.
    :param bf16: Matrix products in bfloat16 (on a GPU).
    """

    unit: str = "sentence"
    batch_tokens: int = 2560
    accumulate: int = 1
    stream_steps: int = 20
    epochs: int = 1
    max_steps: int = 0
    max_minutes: float = 0.0
    vocabulary_size: int = 50_003
    min_count: int = 1
    n_negatives: int = 8192
    sampling_power: float = 0.75
    optimizer: str = "muon"
    learn_rate: float = 2e-3
    softmax_learn_rate_factor: float = 1.0
    warmup_steps: int = 200
    schedule: str = "cosine"
    final_learn_rate: float = 0.02
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    initial_accumulator: float = 1.0
    clip_norm: float = 1.0
    loss_scale: float = 1.0
    dropout: float = 0.0
    freeze_steps: int = 0
    eval_every: int = 1000
    eval_tokens: int = 20_000
    patience: int = 0
    checkpoint_every: int = 500
    log_every: int = 50
    max_sentence_length: int = 128
    seed: int = 0
    bf16: bool = False

    def validate(self) -> "TrainingConfig":
        """Check all values and give the settings back.

        :raises ElmoError: E051, listing everything that is wrong at once.
        """
        problems: List[str] = []
        for name, allowed in (
            ("unit", ("sentence", "stream")),
            ("optimizer", ("adam", "adagrad", "muon")),
            ("schedule", ("cosine", "linear", "constant")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                problems.append(f"{name} is {value!r}, it must be one of {', '.join(allowed)}")
        for name in (
            "batch_tokens",
            "accumulate",
            "stream_steps",
            "epochs",
            "min_count",
            "eval_every",
            "eval_tokens",
            "checkpoint_every",
            "log_every",
            "max_sentence_length",
        ):
            if getattr(self, name) < 1:
                problems.append(f"{name} is {getattr(self, name)}, it must be 1 or more")
        for name in (
            "max_steps",
            "n_negatives",
            "warmup_steps",
            "freeze_steps",
            "patience",
            "seed",
        ):
            if getattr(self, name) < 0:
                problems.append(f"{name} is {getattr(self, name)}, it must be 0 or more")
        if self.vocabulary_size < 4:
            problems.append(f"vocabulary_size is {self.vocabulary_size}, it must be 4 or more")
        if self.unit == "stream" and 0 < self.batch_tokens < self.stream_steps:
            problems.append(
                f"batch_tokens is {self.batch_tokens}, less than stream_steps ({self.stream_steps})"
            )
        # Written so that NaN fails as well.
        for name in ("dropout", "beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                problems.append(f"{name} is {getattr(self, name)}, it must be from 0 to below 1")
        if not 0.0 <= self.final_learn_rate <= 1.0:
            problems.append(f"final_learn_rate is {self.final_learn_rate}, it must be from 0 to 1")
        for name in ("learn_rate", "eps", "loss_scale"):
            if not 0.0 < getattr(self, name) < math.inf:
                problems.append(f"{name} is {getattr(self, name)}, it must be above 0 and finite")
        for name in (
            "max_minutes",
            "sampling_power",
            "softmax_learn_rate_factor",
            "initial_accumulator",
            "clip_norm",
        ):
            if not 0.0 <= getattr(self, name) < math.inf:
                problems.append(f"{name} is {getattr(self, name)}, it must be 0 or more and finite")
        if problems:
            raise ElmoError(Errors.E051.format(problems="; ".join(problems)))
        return self

    def learn_rate_at(self, step: int, progress: float) -> float:
        """Learn rate of a step.

        :param step: Number of the step, from 0.
        :param progress: Share of the run's predictions that lie behind, 0 to 1.
        """
        rate = self.learn_rate
        if self.schedule == "linear":
            rate *= 1.0 - (1.0 - self.final_learn_rate) * min(1.0, progress)
        elif self.schedule == "cosine":
            wave = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
            rate *= self.final_learn_rate + (1.0 - self.final_learn_rate) * wave
        return rate * min(1.0, (step + 1) / max(1, self.warmup_steps))


@dataclass(frozen=True)
class PretrainConfig:
    """Shape of the model and settings of the run.

    :param model: Shape; a preset or one of your own.
    :param training: Settings of the run.
    """

    model: BiLMConfig = PRESETS["mini"]
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready values."""
        return {"model": self.model.to_dict(), "training": asdict(self.training)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PretrainConfig":
        """Read sections ``model`` and ``training``; what is missing keeps its default.

        ``model.preset`` names the shape that ``model.char_cnn`` and ``model.lstm`` change.

        :raises ElmoError: E051 for unknown keys or wrong types, E010 for a wrong shape.
        """
        problems = [f"unknown section {k!r}" for k in data if k not in ("model", "training")]
        shape = _section(data, "model", "", problems)
        preset = shape.pop("preset", "mini")
        if preset not in list(PRESETS):
            problems.append(f"model.preset is {preset!r}, known are {', '.join(PRESETS)}")
            preset = "mini"
        base = PRESETS[preset].to_dict()
        for part, kind in (("char_cnn", CharCNNConfig), ("lstm", LSTMConfig)):
            values = _section(shape, part, "model.", problems)
            base[part].update(_checked(kind, values, f"model.{part}", problems))
            shape.pop(part, None)
        base.update(_checked(BiLMConfig, shape, "model", problems))
        settings = _section(data, "training", "", problems)
        training = _checked(TrainingConfig, settings, "training", problems)
        if problems:
            raise ElmoError(Errors.E051.format(problems="; ".join(problems)))
        return cls(BiLMConfig.from_dict(base), replace(TrainingConfig(), **training).validate())


def _section(
    data: Mapping[str, Any], name: str, prefix: str, problems: List[str]
) -> Dict[str, Any]:
    values = data.get(name, {})
    if isinstance(values, Mapping):
        return dict(values)
    problems.append(f"{prefix}{name} is {values!r}, a section is expected")
    return {}


#: What a value of each annotated type must be, and how messages call it.
_KINDS: Dict[Any, Any] = {
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    Optional[float]: ((int, float, type(None)), "a number or null"),
    bool: (bool, "true or false"),
    str: (str, "a string"),
    Dict[str, Any]: (Mapping, "a section"),
}


def _checked(
    kind: Any, values: Mapping[str, Any], section: str, problems: List[str]
) -> Dict[str, Any]:
    """The values with whole numbers as floats where these are meant; notes what is wrong."""
    known = {f.name: f.type for f in fields(kind)}
    checked: Dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            names = ", ".join(sorted(known))
            problems.append(f"unknown key {section}.{name}, known are {names}")
            continue
        wanted, described = _KINDS.get(known[name], (None, "a list of [width, count] pairs"))
        if wanted is None:
            good = _are_filters(value)
        else:
            good = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
        if not good:
            problems.append(
                f"{section}.{name} is {value!r} ({type(value).__name__}), {described} is expected"
            )
        elif known[name] in (float, Optional[float]) and value is not None:
            value = float(value)
        checked[name] = value
    return checked


def _are_filters(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(type(n) is int for n in pair)
        for pair in value
    )
