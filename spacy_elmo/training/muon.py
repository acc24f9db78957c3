"""Muon: momentum whose every matrix is made nearly orthogonal before it is added.

Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks"; the scale that
makes its learn rates those of Adam is from Liu et al. (2025), "Muon is scalable for LLM training".
An LSTM's gates are functions of their own that only happen to be stored in one tensor, so each
gate's block is a matrix here.
"""

from typing import Dict, Iterable, List, Optional, Tuple

import torch
from torch import Tensor

#: Odd polynomial of degree five whose repetition drives singular values towards one (Jordan 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
#: Root mean square of an update in units of the learn rate, as Adam's tends to have (Liu 2025).
RMS = 0.2


def orthogonalised(matrices: Tensor) -> Tensor:
    """The nearly orthogonal matrices that share their singular vectors with the given ones.

    All products but two are between Gram matrices, of the shorter side: with 128 times 640 values
    a third of the work of iterating on the matrices themselves.

    :param matrices: *Shape:* ``(B, M, N)``
    :returns: Singular values between about 0.7 and 1.2, but for those that are tiny beside a
        matrix's greatest. Zeros stay zeros. *Shape:* ``(B, M, N)``
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalised(matrices.mT).mT
    a, b, c = COEFFICIENTS
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-30)
    gram = x @ x.mT
    eye = torch.eye(gram.shape[1], dtype=x.dtype, device=x.device)
    total: Optional[Tensor] = None
    for k in range(ITERATIONS):
        factor = torch.baddbmm(a * eye + b * gram, gram, gram, alpha=c)
        total = factor if total is None else factor @ total
        if k + 1 < ITERATIONS:  # polynomials of one matrix commute
            gram = factor @ gram @ factor
    assert total is not None
    return total @ x


class Muon(torch.optim.Optimizer):
    """Updates matrices by orthogonalised Nesterov momentum.

    :param parameters: Tensors and the number of matrices that are stacked in each, from top to
        bottom: 4 for the gates of an LSTM. All must have a gradient when a step is made.
    :param lr: Learn rate; fits where it fits Adam.
    :param momentum: Share of the past that each step keeps.
    """

    def __init__(
        self, parameters: Iterable[Tuple[Tensor, int]], lr: float, momentum: float = 0.95
    ) -> None:
        groups = [{"params": [p], "stacked": n} for p, n in parameters]
        super().__init__(groups, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters; matrices of one shape are worked on together."""
        alike: Dict[Tuple[int, int], List[Tuple[Tensor, Tensor, float]]] = {}
        for group in self.param_groups:
            (p,) = group["params"]
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
            beta = group["momentum"]
            buffer = state["momentum"].lerp_(p.grad, 1.0 - beta)
            update = torch.lerp(p.grad, buffer, beta)
            shape = (group["stacked"], p.shape[0] // group["stacked"], p.shape[1])
            rate = group["lr"] * RMS * max(shape[1:]) ** 0.5
            blocks, update = p.view(shape), update.view(shape)
            if shape[1] > shape[2]:
                blocks, update = blocks.mT, update.mT
            key = (update.shape[1], update.shape[2])
            alike.setdefault(key, []).append((blocks, update, rate))
        for members in alike.values():
            updates = orthogonalised(torch.cat([update for _, update, _ in members]))
            for (blocks, _, rate), update in zip(
                members, updates.split([len(blocks) for blocks, _, _ in members])
            ):
                blocks.add_(update, alpha=-rate)
