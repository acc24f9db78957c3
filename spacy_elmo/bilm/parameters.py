"""Parameters without values. Their type and place never depend on torch's global defaults."""

from typing import Optional

import torch
from torch import nn


def empty_parameter(*shape: int, device: Optional[torch.device] = None) -> nn.Parameter:
    """A float32 parameter without values: they are read from a file, or set by `lm`.

    :param shape: Its shape.
    :param device: Where to make it; the CPU if not given.
    """
    return nn.Parameter(torch.empty(shape, dtype=torch.float32, device=device or "cpu"))
