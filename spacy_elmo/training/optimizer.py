"""Optimisers: torch's own or Muon for the encoder, row-wise ones for the softmax.

A step touches a few thousand rows of the softmax; updating only these (with "lazy" moments)
costs a fraction of a dense update of a large vocabulary.
"""

import math
from typing import Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from ..bilm.encoder import BiLM
from .config import TrainingConfig
from .muon import Muon
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
        matrices = stacked_matrices(model) if config.optimizer == "muon" else ([], [])
        chosen = [p for half in matrices for p, _ in half]
        taken = {id(p) for p in chosen}
        rest = [p for name, p in model.named_parameters() if not name.startswith("softmax.")]
        self.flat = FlatParameters(chosen + [p for p in rest if id(p) not in taken])
        start, stop = sum(p.numel() for p in chosen), self.flat.data.numel()
        middle = (start + stop) // 2
        #: Name in checkpoints, optimiser; those of either list are stepped by a worker of its own.
        self.halves: List[List[Tuple[str, torch.optim.Optimizer]]] = []
        for k, part in enumerate((slice(start, middle), slice(middle, stop))):
            p = torch.nn.Parameter(self.flat.data[part])
            p.grad = self.flat.grad[part]
            self.halves.append([(f"dense.{k}", self._make(p))])
            if matrices[k]:
                self.halves[k].append((f"muon.{k}", Muon(matrices[k], config.learn_rate)))
        rows = (self.softmax.weight, self.softmax.bias)
        adagrad = config.optimizer == "adagrad"
        filled = config.initial_accumulator if adagrad else 0.0
        self.second = [torch.full_like(p, filled) for p in rows]
        self.first = [] if adagrad else [torch.zeros_like(p) for p in rows]
        self.row_steps = torch.zeros((), dtype=torch.int64, device="cpu")

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
            self.workers.map(lambda half: self._step_half(half, learn_rate), self.halves)
        self._step_rows(rows, learn_rate * self.config.softmax_learn_rate_factor)

    @staticmethod
    def _step_half(half: List[Tuple[str, torch.optim.Optimizer]], learn_rate: float) -> None:
        for _, part in half:
            for group in part.param_groups:
                group["lr"] = learn_rate
            part.step()

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
        for name, part in (pair for half in self.halves for pair in half):
            for number, values in part.state_dict()["state"].items():
                for key, value in values.items():
                    tensors[_state_name(name, number, key)] = value
        return tensors

    def load_state_tensors(self, tensors: Dict[str, Tensor]) -> None:
        """Take up a state that :meth:`state_tensors` gave."""
        self.row_steps.copy_(tensors["row_steps"])
        for k, value in enumerate(self.second):
            value.copy_(tensors[f"rows.second.{k}"])
        for k, value in enumerate(self.first):
            value.copy_(tensors[f"rows.first.{k}"])
        for name, part in (pair for half in self.halves for pair in half):
            whole = part.state_dict()
            n_parameters = sum(len(group["params"]) for group in whole["param_groups"])
            state: Dict[int, Dict[str, Tensor]] = {}
            for number in range(n_parameters):
                prefix = _state_name(name, number, "")
                values = {
                    key[len(prefix) :]: value.clone()
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }
                if values:
                    state[number] = values
            part.load_state_dict({**whole, "state": state})


def _state_name(name: str, number: int, key: str) -> str:
    # The dense halves are one parameter each, Muon's are many.
    return f"{name}.{key}" if name.startswith("dense.") else f"{name}.{number}.{key}"


def stacked_matrices(model: BiLM) -> Tuple[List[Tuple[Tensor, int]], List[Tuple[Tensor, int]]]:
    """What Muon updates, in two halves of about the same work, with the matrices in each tensor.

    The weights of the LSTMs and the projections. Not embeddings, convolutions, biases; nor the
    highway layers, whose large square matrices would take more time than all others together.
    """
    halves: Tuple[List[Tuple[Tensor, int]], List[Tuple[Tensor, int]]] = ([], [])
    for half, direction in zip(halves, model.directions):
        for layer in direction:
            half += [(layer.input_weight, 4), (layer.recurrent_weight, 4)]
            if layer.projection_weight is not None:
                half.append((layer.projection_weight, 1))
    projection = model.token_encoder.projection
    if projection is not None:
        halves[0].append((projection.weight, 1))
    return halves
