"""Tensors without values. Their type and place never depend on torch's global defaults."""

from typing import Optional

import torch
from torch import Tensor, nn


def empty_tensor(*shape: int, device: Optional[torch.device] = None) -> Tensor:
    """A float32 tensor without values.

    :param shape: Its shape.
    :param device: Where to make it; the CPU if not given.
    """
    return torch.empty(shape, dtype=torch.float32, device=device or "cpu")


def empty_parameter(*shape: int, device: Optional[torch.device] = None) -> nn.Parameter:
    """The same as a parameter: its values are read from a file, or set by `lm`."""
    return nn.Parameter(empty_tensor(*shape, device=device))
