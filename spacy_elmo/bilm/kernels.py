"""Linear maps with weights laid out once for inference, in three precisions.

PyTorch has CPU kernels that take weights in a layout of their own and are several times faster
than ``x @ W`` on the few rows of a recurrent step. They are semi-private, so each is tried once
with a small product; where it is absent or wrong a plain map takes its place, which gives the
same numbers (to rounding) but saves neither time nor memory.

In every precision the result for a row depends on that row alone. That is why ``int8`` does not
use PyTorch's own dynamic quantisation, whose scale is shared by all rows of a batch: here each
row is divided by its largest absolute value, quantised with a fixed scale, and multiplied back.

The classes are written so that TorchScript can compile them (`steps`).
"""

import warnings
from functools import lru_cache
from typing import Any, List, Optional

import torch
from torch import Tensor, nn

from ..errors import ElmoError, Errors

PRECISIONS = ("float32", "float16", "int8")
#: Weights of fewer elements are not worth a layout of their own in float32: they stay in the
#: processor's cache, and the plain product has less overhead.
_PACK_FROM = 1 << 20
#: Quantised activations span ±63, 7 bits: sums of two products of bytes then fit 16 bits, which
#: kernels for processors without VNNI rely on.
_INPUT_STEPS = 63
_WEIGHT_STEPS = 127
_INPUT_ZERO = 64


class Linear(nn.Module):
    """A map ``x·Wᵀ + b`` in float32. Tensors are plain attributes, so it has no parameters.

    :param weight: *Shape:* ``(n_out, n_in)``
    :param bias: *Shape:* ``(n_out,)``
    """

    _bias: Optional[Tensor]

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        super().__init__()
        self._weight, self._bias = weight.t(), bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the map. *Shape:* ``(n, n_in)`` to ``(n, n_out)``, a tensor of its own."""
        bias = self._bias
        if bias is None:
            return x @ self._weight
        return torch.addmm(bias, x, self._weight)

    @torch.jit.export
    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add ``x·Wᵀ``, without the bias, to `total` in place."""
        total.addmm_(x, self._weight)

    @torch.jit.export
    def negative_into(self, out: Tensor, x: Tensor) -> None:
        """Write ``-x·Wᵀ``, without the bias, to `out`."""
        torch.addmm(out, x, self._weight, beta=0, alpha=-1, out=out)


class PackedFloat32(Linear):
    """float32 in oneDNN's blocked layout; for products of few rows with a large matrix."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        nn.Module.__init__(self)
        # The layout is chosen for this many rows; it serves other numbers nearly as well.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 64)
        self._bias = bias

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return y

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.add_(torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], ""))

    def negative_into(self, out: Tensor, x: Tensor) -> None:
        y = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        torch.neg(y, out=out)


class PackedFloat16(Linear):
    """Weights in float16, sums in float32 (FBGEMM); relative error of a weight 2⁻¹¹."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        nn.Module.__init__(self)
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)
        self._bias = bias

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
        bias = self._bias
        return y if bias is None else y.add_(bias)

    @torch.jit.export
    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.add_(torch.ops.quantized.linear_dynamic_fp16(x, self._packed))

    @torch.jit.export
    def negative_into(self, out: Tensor, x: Tensor) -> None:
        torch.neg(torch.ops.quantized.linear_dynamic_fp16(x, self._packed), out=out)


class PlainFloat16(Linear):
    """The same numbers without the kernel: weights rounded to float16, kept as float32."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        super().__init__(_half_range(weight).half().float(), bias)


class _Int8(Linear):
    """Scales for rows, around the product of quantised numbers that subclasses compute."""

    def _product(self, x: Tensor) -> Tensor:
        """Product with an input whose rows have a largest absolute value of 1."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        size = _row_size(x)
        y = self._product(x / size).mul_(size)
        bias = self._bias
        return y if bias is None else y.add_(bias)

    @torch.jit.export
    def add_to(self, total: Tensor, x: Tensor) -> None:
        size = _row_size(x)
        total.addcmul_(self._product(x / size), size)

    @torch.jit.export
    def negative_into(self, out: Tensor, x: Tensor) -> None:
        size = _row_size(x)
        torch.mul(self._product(x / size), size.neg_(), out=out)


class PackedInt8(_Int8):
    """Weights of 8 bits with a scale for each output, inputs of 7 bits with one for each row."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        nn.Module.__init__(self)
        weight = weight.contiguous()
        scale = _weight_scale(weight)
        zero = torch.zeros_like(scale, dtype=torch.long)
        with warnings.catch_warnings():
            # Quantised tensors are announced to go some day; then the plain map takes over.
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(weight, scale.double(), zero, 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(quantised, None)
        self._bias = bias
        self._step = 1.0 / _INPUT_STEPS
        self._zero = _INPUT_ZERO

    def _product(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x, self._step, self._zero, self._packed
        )
        return y


class PlainInt8(_Int8):
    """The same numbers without the kernel: whole numbers, kept as float32."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        nn.Module.__init__(self)
        scale = _weight_scale(weight)
        self._whole = torch.round(weight / scale[:, None]).clamp_(-128, 127).t()
        self._scale = scale / _INPUT_STEPS
        self._steps = float(_INPUT_STEPS)
        self._bias = bias

    def _product(self, x: Tensor) -> Tensor:
        return (torch.round(x * self._steps) @ self._whole).mul_(self._scale)


def _half_range(weight: Tensor) -> Tensor:
    limit = torch.finfo(torch.float16).max
    return weight.clamp(-limit, limit)


def _weight_scale(weight: Tensor) -> Tensor:
    scale = weight.abs().amax(dim=1) / _WEIGHT_STEPS
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def _row_size(x: Tensor) -> Tensor:
    # Zeros are divided by something that is not.
    return x.abs().amax(dim=1, keepdim=True).clamp_min_(1e-20)


def pack_linear(
    weight: Tensor, bias: Optional[Tensor], precision: str, *, plain: bool = False
) -> Linear:
    """Lay out a linear map for inference.

    :param weight: *Shape:* ``(n_out, n_in)``
    :param bias: *Shape:* ``(n_out,)``, or None
    :param precision: "float32", "float16" or "int8".
    :param plain: Use the plain map even where PyTorch has the kernel.
    :raises ElmoError: E160 for another precision.
    """
    check_precision(precision)
    weight = weight.detach()
    if precision == "float32":
        if plain or weight.numel() < _PACK_FROM or not has_kernel(precision):
            return Linear(weight.t().contiguous().t(), bias)
        return PackedFloat32(weight, bias)
    packed = not plain and has_kernel(precision)
    if precision == "float16":
        return PackedFloat16(weight, bias) if packed else PlainFloat16(weight, bias)
    return PackedInt8(weight, bias) if packed else PlainInt8(weight, bias)


def check_precision(precision: str) -> None:
    """Check that a precision is known.

    :raises ElmoError: E160 if not.
    """
    if precision not in PRECISIONS:
        raise ElmoError(Errors.E160.format(found=precision, allowed=", ".join(PRECISIONS)))


@lru_cache(maxsize=None)
def has_kernel(precision: str) -> bool:
    """Whether this PyTorch has the packed kernel of a precision, and it computes right."""
    packed, plain = {
        "float32": (PackedFloat32, Linear),
        "float16": (PackedFloat16, PlainFloat16),
        "int8": (PackedInt8, PlainInt8),
    }[precision]
    values: List[Any] = []
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        # What the kernels take, whatever torch's defaults are.
        values = torch.empty(shape, dtype=torch.float32, device="cpu")
        return values.normal_(generator=generator)

    weight, x, bias = random(64, 48), random(5, 48), random(64)
    try:
        for kind in (packed, plain):
            linear = kind(weight, bias)
            total, negative = x.new_ones(5, 64), x.new_empty(5, 64)
            linear.add_to(total, x)
            linear.negative_into(negative, x)
            values.append(torch.stack([linear(x), total, negative]))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    # Inputs half-way between two steps may be rounded either way.
    tolerance = 1e-4 if precision != "int8" else 0.1
    return bool(torch.allclose(values[0], values[1], atol=tolerance, rtol=tolerance))
