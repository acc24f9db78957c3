"""Settings of a pre-training run."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Mapping, Optional

from ..bilm.config import PRESETS, BiLMConfig
from ..errors import ElmoError, Errors


@dataclass(frozen=True)
class TrainingConfig:
    """How a biLM is trained. What the defaults were chosen by stands in docs/pretraining.md.

    :param unit: "sentence": every sentence starts from the zero state, as at inference.
        "stream": sentences are packed end to end and states carried on (as in bilm-tf).
    :param batch_tokens: Predictions of one direction in a batch.
    :param stream_steps: Length of the pieces that streams are cut into.
    :param epochs: Passes over the text.
    :param max_steps: Stop (and end the learn-rate schedule) after so many steps, 0 for none.
    :param max_minutes: The same by the clock, 0 for none. The learn rate falls in time, whatever
        the machine's speed; but two such runs are not equal to the bit.
    :param vocabulary_size: Words of the softmax at most, the three special ones included.
    :param min_count: Rarer words are left out of the softmax.
    :param n_negatives: Expected sample of the softmax; 0 for the full softmax.
    :param sampling_power: Words are sampled in proportion to count ** power.
    :param optimizer: "adam" or "adagrad" (bilm-tf's recipe).
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
    stream_steps: int = 20
    epochs: int = 1
    max_steps: int = 0
    max_minutes: float = 0.0
    vocabulary_size: int = 50_003
    min_count: int = 1
    n_negatives: int = 8192
    sampling_power: float = 0.75
    optimizer: str = "adam"
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
            ("optimizer", ("adam", "adagrad")),
            ("schedule", ("cosine", "linear", "constant")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                problems.append(f"{name} is {value!r}, it must be one of {', '.join(allowed)}")
        for name in (
            "batch_tokens",
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
        for name in ("max_steps", "n_negatives", "warmup_steps", "freeze_steps", "patience"):
            if getattr(self, name) < 0:
                problems.append(f"{name} is {getattr(self, name)}, it must be 0 or more")
        if self.vocabulary_size < 4:
            problems.append(f"vocabulary_size is {self.vocabulary_size}, it must be 4 or more")
        if not 0.0 <= self.dropout < 1.0:
            problems.append(f"dropout is {self.dropout}, it must be from 0 to below 1")
        if self.max_minutes < 0:
            problems.append(f"max_minutes is {self.max_minutes}, it must be 0 or more")
        if self.learn_rate <= 0:
            problems.append(f"learn_rate is {self.learn_rate}, it must be above 0")
        if problems:
            raise ElmoError(Errors.E051.format(problems="; ".join(problems)))
        return self

    def learn_rate_at(self, step: int, progress: float) -> float:
        """Learn rate of a step.

        :param step: Number of the step, from 0.
        :param progress: Share of the run's predictions that lie behind, 0 to 1.
        """
        import math

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
        shape = dict(data.get("model", {}))
        preset = shape.pop("preset", "mini")
        if preset not in PRESETS:
            problems.append(f"model.preset is {preset!r}, known are {', '.join(PRESETS)}")
        training = _checked(dict(data.get("training", {})), problems)
        if problems:
            raise ElmoError(Errors.E051.format(problems="; ".join(problems)))
        base = PRESETS[preset].to_dict()
        for part in ("char_cnn", "lstm"):
            base[part].update(shape.pop(part, {}))
        base.update(shape)
        return cls(BiLMConfig.from_dict(base), replace(TrainingConfig(), **training).validate())


def _checked(values: Dict[str, Any], problems: List[str]) -> Dict[str, Any]:
    known = {f.name: f.type for f in fields(TrainingConfig)}
    checked: Dict[str, Any] = {}
    for name, value in values.items():
        kind: Optional[Any] = known.get(name)
        if kind is None:
            problems.append(f"unknown key training.{name}, known are {', '.join(sorted(known))}")
            continue
        wanted = kind if isinstance(kind, type) else {"int": int, "float": float}.get(kind, str)
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            problems.append(
                f"training.{name} is {value!r} ({type(value).__name__}), "
                f"a value of type {wanted.__name__} is expected"
            )
        checked[name] = value
    return checked
