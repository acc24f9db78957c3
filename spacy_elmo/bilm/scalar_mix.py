"""The task's own weighted sum of the biLM's layers (Peters et al. 2018, equation 1)."""

from typing import Optional, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import ElmoError, Errors

#: Added to the variance of a token's values, so that a constant vector has a norm too.
EPSILON = 1e-8


class ScalarMix(nn.Module):
    """``γ · Σ_j s_j · h_j`` with ``s = softmax(w)``: one vector a token from all layers.

    `Peters et al. (2018)`_, equation 1. At the start it is the plain mean of the layers.

    .. _Peters et al. (2018): https://aclanthology.org/N18-1202/

    :param n_layers: Layers to mix, the token layer included: L + 1.
    :param layer_norm: Normalise every layer's vector of a token before the sum, with
        ``LayerNorm(x) = g · (x − μ) / σ + b``. Mean and deviation are those of the one vector,
        so a token's result does not depend on other tokens; ``g`` and ``b`` serve all layers.
    :param width: Width of the vectors; needed with `layer_norm`, which has parameters of it.
    :param init_weights: What ``w`` starts from, before the softmax; zeros if not given.
    :param trainable: Whether the parameters take gradients. Independent of `init_weights`.
    :param device: Where to make the parameters, the CPU if not given.
    :raises ElmoError: E004 if `init_weights` are not one for each layer, E005 if `layer_norm`
        is asked for without a `width`.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        layer_norm: bool = False,
        width: Optional[int] = None,
        init_weights: Optional[Sequence[float]] = None,
        trainable: bool = True,
        device: Optional[torch.device] = None,
    ) -> None:
        super().__init__()
        if init_weights is not None and len(init_weights) != n_layers:
            raise ElmoError(
                Errors.E004.format(found=list(init_weights), n=len(init_weights), n_layers=n_layers)
            )
        values = [0.0] * n_layers if init_weights is None else [float(w) for w in init_weights]
        # Not torch's global defaults: the layers are float32, on the CPU if not said otherwise.
        weights = torch.tensor(values, dtype=torch.float32, device=device or "cpu")
        self.weights = nn.Parameter(weights)
        self.gamma = nn.Parameter(weights.new_ones(1))
        self.norm_gain: Optional[nn.Parameter] = None
        self.norm_bias: Optional[nn.Parameter] = None
        if layer_norm:
            if width is None:
                raise ElmoError(Errors.E005)
            self.norm_gain = nn.Parameter(weights.new_ones(width))
            self.norm_bias = nn.Parameter(weights.new_zeros(width))
        for parameter in self.parameters():
            parameter.requires_grad_(trainable)

    @property
    def proportions(self) -> Tensor:
        """Share ``s`` of each layer, summing to one. *Shape:* ``(L + 1,)``"""
        return self.weights.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        """Mix the layers.

        :param layers: All layers, layer 0 first. *Shape:* ``(L + 1, ..., width)``
        :returns: *Shape:* ``(..., width)``
        :raises ElmoError: E006 if the layers or their width are not those it was made for.
        """
        n_layers = len(self.weights)
        width = None if self.norm_gain is None else len(self.norm_gain)
        if layers.shape[0] != n_layers or width not in (None, layers.shape[-1]):
            raise ElmoError(
                Errors.E006.format(
                    found=tuple(layers.shape), n_layers=n_layers, width=width or "width"
                )
            )
        if self.norm_gain is not None:
            layers = functional.layer_norm(
                layers, self.norm_gain.shape, self.norm_gain, self.norm_bias, EPSILON
            )
        return self.gamma * torch.tensordot(self.proportions, layers, dims=1)
