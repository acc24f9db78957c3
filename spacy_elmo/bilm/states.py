"""States in which sentences start. They are kept beside the weights, never among them."""

from typing import List, Optional, Sequence

import torch

from .lstm import LSTMState
from .packing import Packing

#: Before the first step: by direction, then by layer; None stands for zeros.
InitialStates = List[List[Optional[LSTMState]]]
#: After the last step: by direction, then by layer.
FinalStates = List[List[LSTMState]]


def zero_states(n_layers: int) -> InitialStates:
    """Zeros for both directions."""
    return [[None] * n_layers, [None] * n_layers]


def repeat_states(states: FinalStates, n_sentences: int) -> InitialStates:
    """One state for all sentences of a batch.

    :param states: Of a single sentence. *Shapes:* ``(1, P)``, ``(1, C)``
    """
    return [
        [LSTMState(*(t.expand(n_sentences, -1) for t in state)) for state in direction]
        for direction in states
    ]


class CarriedStates:
    """What each row of a batch left behind, for the same row of the next batch.

    A batch may have fewer rows than the one before: the rows that it lacks keep their states.
    New rows start from zeros.
    """

    def __init__(self) -> None:
        self._states: Optional[FinalStates] = None

    def clear(self) -> None:
        """Start from zeros again."""
        self._states = None

    def initial(self, packing: Packing, n_layers: int) -> InitialStates:
        """States for the rows of a batch, in its packed order."""
        if self._states is None:
            return zero_states(n_layers)
        n_sentences = len(packing.order)
        return [
            [LSTMState(*(_rows(t, n_sentences, packing) for t in state)) for state in direction]
            for direction in self._states
        ]

    def keep(self, finals: Sequence[Sequence[LSTMState]], packing: Packing) -> None:
        """Remember the states after a batch.

        :param finals: In the packed order of the batch.
        """
        order = torch.from_numpy(packing.order)
        kept: FinalStates = []
        for k, direction in enumerate(finals):
            kept.append([])
            for number, state in enumerate(direction):
                tensors = []
                for j, tensor in enumerate(state):
                    new = torch.empty_like(tensor)
                    new[order.to(tensor.device)] = tensor
                    if self._states is not None:
                        new = torch.cat([new, self._states[k][number][j][len(new) :]])
                    tensors.append(new)
                kept[-1].append(LSTMState(*tensors))
        self._states = kept


def _rows(tensor: torch.Tensor, n_sentences: int, packing: Packing) -> torch.Tensor:
    missing = n_sentences - tensor.shape[0]
    if missing > 0:
        tensor = torch.cat([tensor, tensor.new_zeros(missing, tensor.shape[1])])
    return tensor[torch.from_numpy(packing.order).to(tensor.device)]
