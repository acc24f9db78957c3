"""What is kept of a biLM's layers: all of them, or one vector a token."""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ..errors import ElmoError, Errors

KINDS = ("all", "top", "average", "mix")
#: Added to a token's variance, as in the mixes that are trained.
EPSILON = 1e-8


@dataclass(frozen=True)
class Selection:
    """All layers, the top one, their plain mean, or a weighted sum.

    A mix is ``γ · Σ_j s_j · h_j`` (Peters et al. 2018, equation 1), with a layer norm
    ``γ · (g · Σ_j s_j · (h_j − μ_j) / σ_j + b)``, mean and deviation being those of one vector.

    :param kind: "all", "top", "average" or "mix".
    :param weights: ``s``, one for each layer, the token layer first; used as they are.
    :param gamma: ``γ``.
    :param gain: ``g``, one for each dimension, if the mix has a layer norm.
    :param bias: ``b``, with `gain`.
    :param source: Where a trained mix is from; for the record.
    :raises ElmoError: E035 for another kind, E132 for weights that are no finite numbers.
    """

    kind: str = "all"
    weights: Tuple[float, ...] = ()
    gamma: float = 1.0
    gain: Optional[Tuple[float, ...]] = None
    bias: Optional[Tuple[float, ...]] = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ElmoError(
                Errors.E035.format(name="kind", found=self.kind, expected=", ".join(KINDS))
            )
        if not all(map(math.isfinite, (*self.weights, self.gamma))):
            problem = "its weights are not all finite"
            raise ElmoError(Errors.E132.format(spec=self.source or self.weights, problem=problem))

    def check(self, n_layers: int, width: int) -> None:
        """Check that the mix fits a model.

        :raises ElmoError: E132 if it has not a weight for each layer, or another width.
        """
        if self.kind != "mix":
            return
        problem = ""
        if len(self.weights) != n_layers:
            problem = f"it has {len(self.weights)} weights, but the model has {n_layers} layers"
        elif self.gain is not None and len(self.gain) != width:
            problem = f"its layer norm is {len(self.gain)} wide, but the model's vectors {width}"
        if problem:
            spec = self.source or ",".join(map(str, self.weights))
            raise ElmoError(Errors.E132.format(spec=spec, problem=problem))

    def shape(self, n_layers: int, n_tokens: int, width: int) -> Tuple[int, ...]:
        """Shape of what is kept of a sentence."""
        return (n_layers, n_tokens, width) if self.kind == "all" else (n_tokens, width)

    def apply(self, layers: np.ndarray) -> np.ndarray:
        """Select. *(L + 1, n_tokens, width)* to that, or to *(n_tokens, width)*."""
        if self.kind == "all":
            return layers
        if self.kind == "top":
            return layers[-1]
        if self.kind == "average":
            mean: np.ndarray = layers.mean(axis=0)
            return mean
        if self.gain is not None:
            centred = layers - layers.mean(axis=-1, keepdims=True)
            layers = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        mixed: np.ndarray = np.tensordot(np.array(self.weights, layers.dtype), layers, axes=1)
        if self.gain is not None:
            mixed = mixed * np.array(self.gain, layers.dtype)
            mixed = mixed + np.array(self.bias, layers.dtype)
        return mixed * layers.dtype.type(self.gamma)

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready, with the parameters of a mix."""
        facts: Dict[str, Any] = {"kind": self.kind}
        if self.kind == "mix":
            facts.update(weights=list(self.weights), gamma=self.gamma)
            if self.gain is not None and self.bias is not None:
                facts.update(gain=list(self.gain), bias=list(self.bias))
            if self.source:
                facts["source"] = self.source
        return facts


def explicit_mix(spec: str) -> Optional[Selection]:
    """The mix of "0.2,0.5,0.3"; None if the text is no list of numbers."""
    try:
        weights = tuple(float(part) for part in spec.split(","))
    except ValueError:
        return None
    return Selection("mix", weights)
