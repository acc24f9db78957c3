"""`spacy-elmo.ScalarMix.v1`: a task's own weighted sum of the layers, as thinc parameters.

In thinc rather than torch, so that the optimiser's averages reach it. Peters et al. (2018),
equation 1: ``γ · Σ_j softmax(w)_j · layer_j``.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
from thinc.api import Model
from thinc.types import Floats1d, Floats2d, Floats3d

from ..errors import ElmoError, Errors
from .types import LayersT, MixT, VectorsT

#: Added to a token's variance.
EPSILON = 1e-8


#: Name of the node.
MIX_NAME = "elmo_scalar_mix"


def build_scalar_mix_v1(
    n_layers: Optional[int] = None,
    init_weights: Optional[List[float]] = None,
    trainable: bool = True,
    layer_norm: bool = False,
    dropout: float = 0.0,
    l2: float = 0.0,
) -> MixT:
    """Build a scalar mix; with L + 2 parameters, or 2 · width more with the layer norm.

    n_layers (Optional[int]): Layers to mix, L + 1; found out at the first batch if not given.
    init_weights (Optional[List[float]]): Start of the weights before the softmax; zeros (equal
        shares) if not given.
    trainable (bool): Whether weights and gamma learn. Independent of `init_weights`.
    layer_norm (bool): Normalise each layer's vector of each token before the sum. With gain and
        bias that serve all layers.
    dropout (float): Rate on the mixed vectors. The component's own dropout does not count here.
    l2 (float): Penalty l2 · Σ w² on the weights before the softmax alone (Peters et al. 2018
        advise 0.001), which draws them to equal shares. Gamma is left alone.
    """
    if init_weights is not None and n_layers is None:
        n_layers = len(init_weights)
    if init_weights is not None and len(init_weights) != n_layers:
        raise ElmoError(
            Errors.E004.format(found=init_weights, n=len(init_weights), n_layers=n_layers)
        )
    model: MixT = Model(
        MIX_NAME,
        forward,
        init=init,
        dims={"nL": n_layers, "nO": None},
        params={"w": None, "gamma": None, **({"G": None, "b": None} if layer_norm else {})},
        attrs={
            "init_weights": init_weights,
            "mix_trainable": trainable,
            "layer_norm": layer_norm,
            "mix_dropout": float(dropout),
            "l2": float(l2),
            # Whether anybody wants the gradient of the layers; set by the node above.
            "input_gradient": True,
        },
    )
    return model


def init(model: MixT, X: Optional[LayersT] = None, Y: Optional[VectorsT] = None) -> None:
    """Find out the dims from a sample, and set the parameters to their start."""
    if X is not None and len(X):
        n_layers, _, width = X[0].shape
        if model.maybe_get_dim("nL") is None:
            model.set_dim("nL", n_layers)
        if model.maybe_get_dim("nO") is None:
            model.set_dim("nO", width)
    if model.maybe_get_dim("nL") is not None:
        set_parameters(model)


def set_parameters(model: MixT) -> None:
    """Start values of the parameters that have none yet."""
    ops, n_layers = model.ops, model.get_dim("nL")
    if not model.has_param("w"):
        start = model.attrs["init_weights"] or [0.0] * n_layers
        if len(start) != n_layers:
            raise ElmoError(Errors.E004.format(found=start, n=len(start), n_layers=n_layers))
        model.set_param("w", ops.asarray1f(start))
        model.set_param("gamma", ops.asarray1f([1.0]))
    if model.attrs["layer_norm"] and not model.has_param("G") and model.has_dim("nO"):
        width = model.get_dim("nO")
        model.set_param("G", ops.alloc1f(width) + 1)
        model.set_param("b", ops.alloc1f(width))


def shares(model: MixT) -> Floats1d:
    """softmax(w): the share of each layer. *(L + 1,)*."""
    w = model.get_param("w")
    e = model.ops.xp.exp(w - w.max())
    return e / e.sum()


def forward(
    model: MixT, X: LayersT, is_train: bool
) -> Tuple[VectorsT, Callable[[VectorsT], LayersT]]:
    """Mix. *(L + 1, n_tokens, width)* to *(n_tokens, width)*, for each doc."""
    xp = model.ops.xp
    if not model.has_param("w"):
        init(model, X)
    lengths = [x.shape[1] for x in X]
    n_layers = model.get_dim("nL")
    for x in X:
        if x.shape[0] != n_layers:
            raise ElmoError(Errors.E105.format(found=x.shape[0], expected=n_layers))
    if not X:
        return [], lambda dY: []
    flat: Any = xp.concatenate([xp.asarray(x) for x in X], axis=1) if len(X) > 1 else X[0]
    s: Any = shares(model)
    gamma = float(model.get_param("gamma")[0])
    normed: Any = flat
    inverse: Any = None
    if model.attrs["layer_norm"]:
        set_parameters(model)
        centred = flat - flat.mean(axis=-1, keepdims=True)
        inverse = 1.0 / xp.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        normed = centred * inverse
    summed = xp.tensordot(s, normed, axes=1)
    out = summed
    if model.attrs["layer_norm"]:
        # The gain and bias serve all layers, and the shares sum to one.
        out = summed * model.get_param("G") + model.get_param("b")
    Y: Floats2d = model.ops.asarray2f(gamma * out)
    mask: Any = None
    rate = model.attrs["mix_dropout"]
    if is_train and rate:
        mask = model.ops.get_dropout_mask(Y.shape, rate)
        Y = Y * mask
    want_input = model.attrs["input_gradient"]

    def backprop(dY: VectorsT) -> LayersT:
        d = xp.concatenate([xp.asarray(y) for y in dY], axis=0)
        if mask is not None:
            d = d * mask
        d_out = gamma * d
        if model.attrs["layer_norm"]:
            d_summed = d_out * model.get_param("G")
        else:
            d_summed = d_out
        if model.attrs["mix_trainable"]:
            model.inc_grad("gamma", model.ops.asarray1f([float((d * out).sum())]))
            d_s = xp.tensordot(normed, d_summed, axes=2)
            d_w = s * (d_s - (s * d_s).sum()) + 2 * model.attrs["l2"] * model.get_param("w")
            model.inc_grad("w", model.ops.asarray1f(d_w))
            if model.attrs["layer_norm"]:
                model.inc_grad("G", (d_out * summed).sum(axis=0))
                model.inc_grad("b", d_out.sum(axis=0))
        if not want_input:
            return []
        d_normed = s[:, None, None] * d_summed[None]
        if inverse is not None:
            d_flat = inverse * (
                d_normed
                - d_normed.mean(axis=-1, keepdims=True)
                - normed * (d_normed * normed).mean(axis=-1, keepdims=True)
            )
        else:
            d_flat = d_normed
        return _split(d_flat, lengths)

    return _split_rows(Y, lengths), backprop


def _split(values: Floats3d, lengths: Sequence[int]) -> LayersT:
    edges = np.cumsum([0, *lengths])
    return [values[:, a:b] for a, b in zip(edges, edges[1:])]


def _split_rows(values: Floats2d, lengths: Sequence[int]) -> VectorsT:
    edges = np.cumsum([0, *lengths])
    return [values[a:b] for a, b in zip(edges, edges[1:])]
