"""Optimisers: torch's own for the encoder, row-wise ones for the softmax.

A step touches a few thousand rows of the softmax; updating only these (with "lazy" moments)
costs a fraction of a dense update of a large vocabulary.
"""

import math
from typing import Any, Dict, List, Sequence

import torch
from torch import Tensor

from ..bilm.encoder import BiLM
from .config import TrainingConfig
from .step import RowGradient, Workers


class FlatParameters:
    """All dense parameters as one vector, so that norms and updates are few long operations."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.data = torch.cat([p.detach().flatten() for p in parameters]).clone()
        self.grad = torch.zeros_like(self.data)
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = self.data[start:stop].view_as(p)
            p.grad = self.grad[start:stop].view_as(p)
            start = stop


class Optimizer:
    """Updates a model from the gradients of a step.

    :param model: A biLM with a softmax; its encoder is moved into flat buffers.
    :param config: Optimiser, its constants, clipping.
    :param workers: The two halves of the encoder are updated in parallel.
    """

    def __init__(self, model: BiLM, config: TrainingConfig, workers: Workers) -> None:
        assert model.softmax is not None
        self.config = config
        self.workers = workers
        self.softmax = model.softmax
        dense = [p for name, p in model.named_parameters() if not name.startswith("softmax.")]
        self.flat = FlatParameters(dense)
        half = self.flat.data.numel() // 2
        self.halves: List[torch.optim.Optimizer] = []
        for part in (slice(None, half), slice(half, None)):
            p = torch.nn.Parameter(self.flat.data[part])
            p.grad = self.flat.grad[part]
            self.halves.append(self._make(p))
        rows = (self.softmax.weight, self.softmax.bias)
        start = config.initial_accumulator if config.optimizer == "adagrad" else 0.0
        self.second = [torch.full_like(p, start) for p in rows]
        self.first = [torch.zeros_like(p) for p in rows] if config.optimizer == "adam" else []
        self.row_steps = torch.zeros((), dtype=torch.int64)

    def _make(self, p: torch.nn.Parameter) -> torch.optim.Optimizer:
        c = self.config
        if c.optimizer == "adagrad":
            return torch.optim.Adagrad(
                [p],
                lr=c.learn_rate,
                initial_accumulator_value=c.initial_accumulator,
                fused=p.device.type == "cpu",  # torch has no fused Adagrad for GPUs
            )
        return torch.optim.Adam(
            [p], lr=c.learn_rate, betas=(c.beta1, c.beta2), eps=c.eps, fused=True
        )

    def norm(self, rows: RowGradient, with_encoder: bool = True) -> float:
        """Euclidean norm of the whole gradient."""
        parts = [rows.weight.norm(), rows.bias.norm()]
        if with_encoder:
            parts.append(self.flat.grad.norm())
        return math.sqrt(sum(float(part) ** 2 for part in parts))

    def step(
        self, rows: RowGradient, norm: float, learn_rate: float, with_encoder: bool = True
    ) -> None:
        """Clip by the global norm and update.

        :param rows: Gradient of the softmax.
        :param norm: What :meth:`norm` gave.
        :param learn_rate: Learn rate of this step.
        :param with_encoder: False leaves the encoder as it is.
        """
        clip = self.config.clip_norm
        factor = clip / norm if clip and norm > clip else 1.0
        if factor != 1.0:
            rows.weight.mul_(factor)
            rows.bias.mul_(factor)
        if with_encoder:
            if factor != 1.0:
                self.flat.grad.mul_(factor)
            for half in self.halves:
                half.param_groups[0]["lr"] = learn_rate
            self.workers.map(lambda half: half.step(), self.halves)
        self._step_rows(rows, learn_rate * self.config.softmax_learn_rate_factor)

    @torch.no_grad()
    def _step_rows(self, rows: RowGradient, learn_rate: float) -> None:
        c = self.config
        self.row_steps += 1
        index = rows.rows.to(self.softmax.weight.device)
        for k, (p, grad) in enumerate(
            ((self.softmax.weight, rows.weight), (self.softmax.bias, rows.bias))
        ):
            second = self.second[k][index]
            if c.optimizer == "adagrad":
                second.addcmul_(grad, grad)
                change = grad / second.sqrt().add_(1e-10)
            else:
                first = self.first[k][index]
                first.lerp_(grad, 1.0 - c.beta1)
                second.mul_(c.beta2).addcmul_(grad, grad, value=1.0 - c.beta2)
                self.first[k][index] = first
                n = int(self.row_steps)
                scale = math.sqrt(1.0 - c.beta2**n) / (1.0 - c.beta1**n)
                change = first.mul_(scale) / second.sqrt().add_(c.eps)
            self.second[k][index] = second
            p.data[index] = p.data[index].add_(change, alpha=-learn_rate)

    # -- state ---------------------------------------------------------------------------

    def state_tensors(self) -> Dict[str, Tensor]:
        """Everything that the next step depends on besides the parameters."""
        tensors = {"row_steps": self.row_steps}
        for k, value in enumerate(self.second):
            tensors[f"rows.second.{k}"] = value
        for k, value in enumerate(self.first):
            tensors[f"rows.first.{k}"] = value
        for k, half in enumerate(self.halves):
            for name, value in half.state_dict()["state"].get(0, {}).items():
                tensors[f"dense.{k}.{name}"] = torch.as_tensor(value)
        return tensors

    def load_state_tensors(self, tensors: Dict[str, Tensor]) -> None:
        """Take up a state that :meth:`state_tensors` gave."""
        self.row_steps.copy_(tensors["row_steps"])
        for k, value in enumerate(self.second):
            value.copy_(tensors[f"rows.second.{k}"])
        for k, value in enumerate(self.first):
            value.copy_(tensors[f"rows.first.{k}"])
        for k, half in enumerate(self.halves):
            prefix = f"dense.{k}."
            state: Dict[str, Any] = {
                name[len(prefix) :]: value.clone()
                for name, value in tensors.items()
                if name.startswith(prefix)
            }
            groups = half.state_dict()["param_groups"]
            half.load_state_dict({"state": {0: state} if state else {}, "param_groups": groups})
