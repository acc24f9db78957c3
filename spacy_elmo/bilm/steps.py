"""The steps of an LSTM layer: the only loop of the engine whose every turn is short.

For one sentence a step is a dozen operations of a few microseconds, so that the interpreter
between them takes as long as they do, and two threads (one for each direction) take turns at
holding it. TorchScript runs the same lines without it. It comes with PyTorch and needs no compiler,
but is called deprecated there: where it is gone or cannot take a kernel, the lines run as Python.
"""

import warnings
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn

from .kernels import Linear, PackedFloat32

#: Gates, sizes, hidden state, twice the cell; gives output, hidden state, twice the cell.
StepFunction = Callable[[Tensor, List[int], Tensor, Tensor], Tuple[Tensor, Tensor, Tensor]]


class Steps(nn.Module):
    """Recurrent part of one layer in one direction.

    The state is kept as twice the cell, and the candidate's rows of all weights are doubled, since
    ``tanh(x) = 2·sigmoid(2x) − 1`` and sigmoid is several times faster than tanh.

    :param recurrent: Map from the hidden state to the gates.
    :param projection: Map from the cell's output to the hidden state, if there is one.
    :param cell_clip: Bound of the cell, None for none.
    :param proj_clip: Bound of the hidden state, None for none.
    """

    def __init__(
        self,
        recurrent: Linear,
        projection: Optional[Linear],
        cell_clip: Optional[float],
        proj_clip: Optional[float],
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.projection = projection
        # Infinite bounds change nothing, and leave one path to compile.
        self.cell_bound = 2.0 * cell_clip if cell_clip is not None else float("inf")
        self.proj_bound = proj_clip if proj_clip is not None else float("inf")

    def forward(
        self, gates: Tensor, sizes: List[int], h: Tensor, doubled: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Some steps of a packed batch; overwrites `gates` and the states.

        :param gates: What the layer's input and its bias add to the gates, in the order input,
            forget, output, candidate. *Shape:* ``(Σ sizes, 4C)``
        :param sizes: Sentences at each step, not increasing.
        :param h: Hidden state. *Shape:* ``(n, P)`` with ``n >= sizes[0]``
        :param doubled: Twice the cell. *Shape:* ``(n, C)``
        :returns: Output, *Shape:* ``(Σ sizes, P)``, and both states after the last step.
        """
        c = doubled.shape[1]
        output = gates.new_empty([gates.shape[0], h.shape[1]])
        squashed = gates.new_empty([sizes[0], c])
        start = 0
        for size in sizes:
            stop = start + size
            g = gates[start:stop]
            if size < h.shape[0]:
                h, doubled = h[:size], doubled[:size]
            self.recurrent.add_to(g, h)
            g.sigmoid_()
            i, f, o, j = g[:, :c], g[:, c : 2 * c], g[:, 2 * c : 3 * c], g[:, 3 * c :]
            # 2c' = f·2c + 4·i·s − 2·i with the candidate 2s − 1.
            doubled.mul_(f).addcmul_(i, j, value=4.0).sub_(i, alpha=2.0)
            doubled.clamp_(-self.cell_bound, self.cell_bound)
            m = squashed[:size]
            torch.sigmoid(doubled, out=m)
            # o − 2·o·sigmoid(2c) = −o·tanh(c), in one pass.
            torch.addcmul(o, o, m, value=-2.0, out=m)
            h = output[start:stop]
            if self.projection is None:
                torch.neg(m, out=h)
            else:
                self.projection.negative_into(h, m)
            h.clamp_(-self.proj_bound, self.proj_bound)
            start = stop
        return output, h, doubled


def compiled(steps: Steps, *, plain: bool = False) -> Tuple[StepFunction, bool]:
    """The steps in the form that runs fastest here, and whether it does without the interpreter.

    :param steps: What to run.
    :param plain: Leave them as Python.
    """
    # TorchScript cannot call oneDNN's kernel; it is for weights so large that steps are long.
    if plain or isinstance(steps.recurrent, PackedFloat32):
        return steps, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            script: Any = torch.jit.script(steps)
    except Exception:  # Of many types, none of them documented: no source, an unknown operation.
        return steps, False
    return script, True
