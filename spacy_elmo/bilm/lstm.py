"""The projected LSTM with clips: one layer in one direction over packed sentences.

Sentences are packed time-major: rows sorted by length, longest first; the step ``t`` holds the
``batch_sizes[t]`` sentences that have a token there. So there is no padding to compute on.

Equations (Sak et al. 2014 for the projection; clips and residual as in bilm-tf), with the
gates of a step ``g = x·W_in' + h·W_rec' + b``::

    c = sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(j);  c = clamp(c, ±cell_clip)
    h = (sigmoid(o) * tanh(c)) · W_proj';                      h = clamp(h, ±proj_clip)
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .config import LSTMConfig

#: Order of the gates along the 4C axis: input, forget, output, candidate.
GATES = ("input", "forget", "output", "candidate")


class LSTMState(NamedTuple):
    """State of one layer in one direction, a row for each sentence.

    :param hidden: Projected output, clipped. *Shape:* ``(batch, P)``
    :param cell: Cell state, clipped. *Shape:* ``(batch, C)``
    """

    hidden: Tensor
    cell: Tensor


class LSTMWeights(NamedTuple):
    """Weights of one layer in one direction, in the layout of the native format.

    *Shapes:* ``(4C, P)``, ``(4C, P)``, ``(4C,)`` and ``(P, C)`` or ``None``.
    """

    input_weight: Tensor
    recurrent_weight: Tensor
    bias: Tensor
    projection_weight: Optional[Tensor]


def _gate_scale(cell_dim: int, like: Tensor) -> Tensor:
    # tanh(x) = 2·sigmoid(2x) − 1: with the candidate's rows doubled one vectorised sigmoid
    # serves all four gates. On the CPU it is three times faster than tanh.
    scale = like.new_ones(4 * cell_dim)
    scale[3 * cell_dim :] = 2.0
    return scale


def _gate_bias(weights: LSTMWeights, forget_bias: float) -> Tensor:
    cell_dim = weights.bias.shape[0] // 4
    bias = weights.bias.clone()
    bias[cell_dim : 2 * cell_dim] += forget_bias
    return bias


def _mm(a: Tensor, b: Tensor, dtype: Optional[torch.dtype]) -> Tensor:
    """Matrix product, optionally computed in a lower precision with a result like ``a``."""
    if dtype is None or dtype == a.dtype:
        return a @ b
    return (a.to(dtype) @ b.to(dtype)).to(a.dtype)


class ProjectedLSTM(torch.autograd.Function):
    """One layer over packed input, with its own backward pass.

    The weight gradients are one product over all steps, and nothing but the recurrent product
    is left inside the loops: several times faster than autograd over single steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection_weight: Optional[Tensor],
        hidden: Optional[Tensor],
        cell: Optional[Tensor],
        batch_sizes: Sequence[int],
        config: LSTMConfig,
        matmul_dtype: Optional[torch.dtype],
    ) -> Tuple[Tensor, Tensor, Tensor]:
        weights = LSTMWeights(input_weight, recurrent_weight, bias, projection_weight)
        n_rows = batch_sizes[0]
        c_dim, p_dim = config.cell_dim, config.projection_dim
        if hidden is None or cell is None:
            hidden, cell = x.new_zeros(n_rows, p_dim), x.new_zeros(n_rows, c_dim)
        scale = _gate_scale(c_dim, x)
        gates = _mm(x, (input_weight * scale[:, None]).t(), matmul_dtype)
        gates += _gate_bias(weights, config.forget_bias) * scale
        recurrent = (recurrent_weight * scale[:, None]).t()
        if matmul_dtype is not None:
            recurrent = recurrent.to(matmul_dtype)
        n = x.shape[0]
        cells, squashed = x.new_empty(n, c_dim), x.new_empty(n, c_dim)
        output = x.new_empty(n, p_dim)
        gated = x.new_empty(n, c_dim) if projection_weight is not None else output
        h, c = hidden, cell
        start = 0
        for size in batch_sizes:
            stop = start + size
            g = gates[start:stop]
            if matmul_dtype is None:
                g.addmm_(h[:size], recurrent)
            else:
                g += (h[:size].to(matmul_dtype) @ recurrent).to(g.dtype)
            g.sigmoid_()
            i, f, o, j = (g[:, k * c_dim : (k + 1) * c_dim] for k in range(4))
            j.mul_(2.0).sub_(1.0)
            new = cells[start:stop]
            torch.mul(f, c[:size], out=new)
            new.addcmul_(i, j)
            if config.cell_clip is not None:
                new.clamp_(-config.cell_clip, config.cell_clip)
            c = new
            s = squashed[start:stop]
            torch.mul(c, 2.0, out=s)
            s.sigmoid_().mul_(2.0).sub_(1.0)
            m = gated[start:stop]
            torch.mul(o, s, out=m)
            y = output[start:stop]
            if projection_weight is not None:
                if matmul_dtype is None:
                    torch.mm(m, projection_weight.t(), out=y)
                else:
                    y.copy_(_mm(m, projection_weight.t(), matmul_dtype))
            if config.proj_clip is not None:
                y.clamp_(-config.proj_clip, config.proj_clip)
            h = y
            start = stop
        last_hidden, last_cell = _last_states(output, cells, batch_sizes)
        ctx.batch_sizes, ctx.config, ctx.matmul_dtype = list(batch_sizes), config, matmul_dtype
        # With no projection the clip may have changed what the gradient of o·tanh(c) needs,
        # but that product itself is never needed again: only o and tanh(c) are.
        ctx.save_for_backward(
            x,
            input_weight,
            recurrent_weight,
            projection_weight,
            hidden,
            cell,
            gates,
            cells,
            squashed,
            gated,
            output,
        )
        ctx.mark_non_differentiable(last_hidden, last_cell)
        return output, last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, *_: Any) -> Tuple[Optional[Tensor], ...]:
        (x, w_in, w_rec, w_proj, hidden, cell, gates, cells, squashed, gated, output) = (
            ctx.saved_tensors
        )
        config, sizes, dtype = ctx.config, ctx.batch_sizes, ctx.matmul_dtype
        c_dim = config.cell_dim
        previous_h = _shifted(output, hidden, sizes)
        previous_c = _shifted(cells, cell, sizes)
        i, f, o, j = (gates[:, k * c_dim : (k + 1) * c_dim] for k in range(4))
        proj_keep = _inside(output, config.proj_clip)
        cell_keep = _inside(cells, config.cell_clip)
        # What the incoming gradient is multiplied by, for all steps at once.
        factors = torch.empty_like(gates)
        ki, kf, ko, kj = (factors[:, k * c_dim : (k + 1) * c_dim] for k in range(4))
        torch.mul(i, 1.0 - i, out=ki).mul_(j)
        torch.mul(f, 1.0 - f, out=kf).mul_(previous_c)
        torch.mul(o, 1.0 - o, out=ko).mul_(squashed)
        torch.mul(i, 1.0 - j * j, out=kj)
        to_cell = (1.0 - squashed * squashed).mul_(o)
        d_projected = d_output.clone()
        d_h: Optional[Tensor] = None
        d_c: Optional[Tensor] = None
        stop = x.shape[0]
        for size in reversed(sizes):
            start = stop - size
            dy = d_projected[start:stop]
            if d_h is not None:
                dy[: d_h.shape[0]] += d_h
            if proj_keep is not None:
                dy *= proj_keep[start:stop]
            dm = _mm(dy, w_proj, dtype) if w_proj is not None else dy
            dc = dm * to_cell[start:stop]
            if d_c is not None:
                dc[: d_c.shape[0]] += d_c
            if cell_keep is not None:
                dc *= cell_keep[start:stop]
            dg = factors[start:stop].view(size, 4, c_dim)
            dg[:, :2].mul_(dc[:, None])
            dg[:, 2].mul_(dm)
            dg[:, 3].mul_(dc)
            d_h = _mm(dg.view(size, 4 * c_dim), w_rec, dtype)
            d_c = dc.mul_(f[start:stop])
            stop = start
        d_x = _mm(factors, w_in, dtype) if ctx.needs_input_grad[0] else None
        d_w_in = _mm(factors.t(), x, dtype)
        d_w_rec = _mm(factors.t(), previous_h, dtype)
        d_bias = factors.t().mv(x.new_ones(x.shape[0]))
        d_w_proj = _mm(d_projected.t(), gated, dtype) if w_proj is not None else None
        return d_x, d_w_in, d_w_rec, d_bias, d_w_proj, None, None, None, None, None


def _inside(values: Tensor, clip: Optional[float]) -> Optional[Tensor]:
    """Mask of the values that a clamp left alone, or None if it touched none of them."""
    if clip is None:
        return None
    low, high = values.aminmax()
    if bool(low > -clip) and bool(high < clip):
        return None
    return (values.abs() < clip).to(values.dtype)


def _shifted(values: Tensor, first: Tensor, sizes: Sequence[int]) -> Tensor:
    """For every packed row the value of the same sentence one step earlier."""
    pieces = [first]
    start = 0
    for size, following in zip(sizes, sizes[1:]):
        pieces.append(values[start : start + following])
        start += size
    return torch.cat(pieces)


def _last_states(
    output: Tensor, cells: Tensor, batch_sizes: Sequence[int]
) -> Tuple[Tensor, Tensor]:
    """The state of every sentence after its own last step."""
    index: List[int] = []
    start = 0
    following = [*batch_sizes[1:], 0]
    for size, after in zip(batch_sizes, following):
        index.extend(range(start + size - 1, start + after - 1, -1))
        start += size
    rows = torch.tensor(index[::-1], device=output.device)
    return output.index_select(0, rows), cells.index_select(0, rows)


def run_layer(
    x: Tensor,
    weights: LSTMWeights,
    batch_sizes: Sequence[int],
    config: LSTMConfig,
    state: Optional[LSTMState] = None,
    matmul_dtype: Optional[torch.dtype] = None,
) -> Tuple[Tensor, LSTMState]:
    """Run one layer over packed input; differentiable in the input and the weights.

    :param x: Packed input. *Shape:* ``(n_tokens, P)``
    :param weights: The layer's weights.
    :param batch_sizes: Sentences that have a token at each step, not increasing.
    :param config: Shape and clips.
    :param state: State before the first step, zeros if not given; no gradient flows into it.
        *Shape:* a row for each of ``batch_sizes[0]`` sentences
    :param matmul_dtype: Precision of the matrix products (bfloat16 on a GPU); states and clips
        stay in the precision of ``x``.
    :returns: Packed output, *Shape:* ``(n_tokens, P)``, and the state of every sentence after
        its last token (detached).
    """
    hidden, cell = (None, None) if state is None else state
    output, h, c = ProjectedLSTM.apply(
        x, *weights, hidden, cell, list(batch_sizes), config, matmul_dtype
    )
    return output, LSTMState(h, c)
