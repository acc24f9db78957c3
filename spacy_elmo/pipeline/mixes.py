"""The scalar mixes of a pipeline as numbers: what each task takes from which layer."""

from typing import Any, Dict, List, NamedTuple

import numpy as np
from spacy.language import Language
from thinc.api import Model

from ..layers.concat import find_mixes
from ..layers.scalar_mix import shares


class Mix(NamedTuple):
    """A scalar mix of a component (Peters et al. 2018, equation 1).

    component (str): The component's name.
    position (str): "input", or "output" for the mix that is joined to the encoder's output.
    weights (List[float]): softmax(w), the share of each layer, L + 1 numbers that sum to one.
        Layer 0 is that of the token vectors, the last the uppermost LSTM.
    gamma (float): Scale of the sum.
    initial (bool): Whether weights and gamma still are what they were set to at the start.
    trainable (bool): Whether training changes them.
    """

    component: str
    position: str
    weights: List[float]
    gamma: float
    initial: bool
    trainable: bool

    def to_dict(self) -> Dict[str, Any]:
        """As plain types, for JSON."""
        return self._asdict()


def pipeline_mixes(nlp: Language) -> List[Mix]:
    """All mixes of a pipeline, disabled components included, in the order of the components.

    Those of listeners, and those that `nlp.replace_listeners` left with an encoder of their own.
    A component that was not initialised has none yet.

    nlp (Language): The pipeline.
    """
    found: List[Mix] = []
    for name, component in nlp.components:
        model = getattr(component, "model", None)
        if isinstance(model, Model):
            found.extend(_mix(name, position, node) for position, node in find_mixes(model))
    return found


def _mix(name: str, position: str, node: Model) -> Mix:
    w = node.ops.to_numpy(node.get_param("w"))
    gamma = float(node.get_param("gamma")[0])
    start = np.array(node.attrs["init_weights"] or [0.0] * len(w), np.float32)
    return Mix(
        component=name,
        position=position,
        weights=[float(share) for share in node.ops.to_numpy(shares(node))],
        gamma=gamma,
        initial=gamma == 1.0 and bool((w == start).all()),
        trainable=bool(node.attrs["mix_trainable"]),
    )
