"""Language-model head: one softmax for both directions, sampled for training, full for scoring.

The sample is a Poisson sample: every word is in it independently with a known inclusion
probability ``p`` (frequent words surely). ``Σ exp(logit)/p`` over the sample, without the
target, plus the target's own term is then an unbiased estimate of the full normaliser
(Horvitz and Thompson 1952); as logits that is the log-q correction of Bengio and Senécal
(2008) with exact probabilities, and it needs no vocabulary sorted by frequency.
"""

from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .config import BiLMConfig
from .parameters import empty_parameter

#: Rows of logits that are held at a time, in bytes.
LOGITS_BYTES = 16 * 2**20


class Softmax(nn.Module):
    """Output embeddings of the vocabulary, shared by both directions.

    :param n_words: Vocabulary size V, ``<S>``, ``</S>`` and ``<UNK>`` included.
    :param width: Width P of the LSTM's projected output.
    :param device: Where to make the parameters, the CPU if not given; "meta" for none at all.
    """

    def __init__(self, n_words: int, width: int, device: Optional[torch.device] = None) -> None:
        super().__init__()
        self.weight = empty_parameter(n_words, width, device=device)
        self.bias = empty_parameter(n_words, device=device)


def init_softmax(softmax: Softmax, counts: Tensor, generator: torch.Generator) -> None:
    """Start the head from the words' frequencies: small weights, log-probability biases.

    :param counts: Occurrences of each word. *Shape:* ``(V,)``
    """
    with torch.no_grad():
        std = softmax.weight.shape[1] ** -0.5
        softmax.weight.normal_(0.0, std, generator=generator)
        smoothed = counts.to(softmax.bias.dtype) + 1.0
        softmax.bias.copy_((smoothed / smoothed.sum()).log())


class Negatives(NamedTuple):
    """A sample of the vocabulary that all targets of a step are contrasted with.

    :param ids: Words of the sample, increasing. *Shape:* ``(S,)``
    :param log_q: Logarithm of the words' inclusion probabilities. *Shape:* ``(S,)``
    :param columns: Column of each word of the vocabulary in the sample, -1 where it is not
        in. *Shape:* ``(V,)``
    """

    ids: Tensor
    log_q: Tensor
    columns: Tensor


class NegativeSampler:
    """Draws :class:`Negatives` with probabilities proportional to ``count ** power``.

    :param counts: Occurrences of each word in the training text. *Shape:* ``(V,)``
    :param n_samples: Expected size of a sample; the whole vocabulary if it is not smaller.
    :param power: 1 samples by frequency, 0 evenly.
    """

    def __init__(self, counts: Tensor, n_samples: int, power: float = 0.75) -> None:
        weights = counts.double().clamp_min(1.0) ** power
        n_words = len(counts)
        if n_samples >= n_words:
            self.probabilities = torch.ones_like(weights)
        else:
            # Probabilities above one are cut, and the rest is scaled until the sum fits.
            scale = n_samples / weights.sum()
            for _ in range(100):
                certain = weights * scale >= 1.0
                rest = n_samples - certain.sum()
                new = rest / weights[~certain].sum()
                if torch.isclose(new, scale, rtol=1e-12, atol=0.0):
                    break
                scale = new
            self.probabilities = (weights * scale).clamp_max(1.0)

    def sample(self, generator: torch.Generator) -> Negatives:
        """Draw a sample. The result is on the CPU."""
        p = self.probabilities
        drawn = torch.rand(len(p), generator=generator, dtype=p.dtype, device=p.device) < p
        ids = drawn.nonzero()[:, 0]
        columns = torch.full_like(p, -1, dtype=torch.int64)
        columns[ids] = torch.arange(len(ids), device=columns.device)
        return Negatives(ids, p[ids].log().float(), columns)


class SampledSoftmaxLoss(torch.autograd.Function):
    """Sum of the negative log-likelihood of the targets under a sampled softmax.

    Loss and gradients come from one pass, a slice of rows at a time, so that the logits of a
    batch never exist at once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        target_weight: Tensor,
        target_bias: Tensor,
        hits: Tensor,
        matmul_dtype: Optional[torch.dtype],
    ) -> Tensor:
        n, n_samples = hidden.shape[0], weight.shape[0]
        target_logits = (hidden * target_weight).sum(1) + target_bias
        d_hidden = torch.empty_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        d_target = torch.empty_like(target_logits)
        losses = torch.empty_like(target_logits)
        low = weight if matmul_dtype is None else weight.to(matmul_dtype)
        step = max(1, LOGITS_BYTES // (hidden.element_size() * (n_samples + 1)))
        tiny = torch.finfo(hidden.dtype).tiny
        buffer = hidden.new_empty(min(step, n), n_samples + 1)
        ones = hidden.new_ones(min(step, n))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            h = hidden[rows]
            block = buffer[: h.shape[0]]
            logits = block[:, :n_samples]
            if matmul_dtype is None:
                torch.addmm(bias, h, low.t(), out=logits)
            else:
                logits.copy_(h.to(matmul_dtype) @ low.t()).add_(bias)
            # A sampled word that is the target itself must not count against it.
            row_hits = hits[rows]
            own = (row_hits >= 0).nonzero()[:, 0]
            logits[own, row_hits[own]] = float("-inf")
            block[:, n_samples] = target_logits[rows]
            p = torch.softmax(block, dim=1, out=block)
            target_p = p[:, n_samples]
            losses[rows] = -target_p.clamp_min(tiny).log()
            d_target[rows] = target_p - 1.0
            sampled = p[:, :n_samples]
            if matmul_dtype is None:
                torch.mm(sampled, low, out=d_hidden[rows])
                d_weight.addmm_(sampled.t(), h)
            else:
                small = sampled.to(matmul_dtype)
                d_hidden[rows] = (small @ low).to(hidden.dtype)
                d_weight += (small.t() @ h.to(matmul_dtype)).to(weight.dtype)
            # As a product: three times faster than a sum over the first axis.
            d_bias.addmv_(sampled.t(), ones[: h.shape[0]])
        d_hidden.addcmul_(d_target[:, None], target_weight)
        ctx.save_for_backward(d_hidden, d_weight, d_bias, d_target[:, None] * hidden, d_target)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        return (*(saved * grad for saved in ctx.saved_tensors), None, None)


def sampled_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    target_weight: Tensor,
    target_bias: Tensor,
    hits: Tensor,
    matmul_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """Summed loss of one direction against sampled words.

    :param hidden: Top output of the direction. *Shape:* ``(n, P)``
    :param weight: Output embeddings of the sampled words. *Shape:* ``(S, P)``
    :param bias: Their biases minus the log inclusion probabilities. *Shape:* ``(S,)``
    :param target_weight: Output embedding of each target. *Shape:* ``(n, P)``
    :param target_bias: Bias of each target, uncorrected. *Shape:* ``(n,)``
    :param hits: Column of each target in the sample, -1 where it is not in. *Shape:* ``(n,)``
    :returns: A scalar, in nats.
    """
    loss: Tensor = SampledSoftmaxLoss.apply(
        hidden, weight, bias, target_weight, target_bias, hits, matmul_dtype
    )
    return loss


def _row_slices(n: int, n_words: int, limit: int) -> Iterator[slice]:
    step = max(1, limit // (4 * n_words))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


@torch.no_grad()
def full_log_probabilities(
    hidden: Tensor, softmax: Softmax, targets: Tensor, limit: int = LOGITS_BYTES
) -> Tensor:
    """Log-probability of each target under the full softmax, in slices under a memory limit.

    :param hidden: Top output of one direction. *Shape:* ``(n, P)``
    :param softmax: The head.
    :param targets: Word ids. *Shape:* ``(n,)``
    :param limit: Bytes of logits that may exist at once (at least one row's).
    :returns: Natural logarithms. *Shape:* ``(n,)``
    """
    out = hidden.new_empty(hidden.shape[0])
    for rows in _row_slices(hidden.shape[0], softmax.weight.shape[0], limit):
        logits = torch.addmm(softmax.bias, hidden[rows], softmax.weight.t())
        target = logits.gather(1, targets[rows, None])[:, 0]
        out[rows] = target - torch.logsumexp(logits, dim=1)
    return out


def init_bilm(module: nn.Module, config: BiLMConfig, generator: torch.Generator) -> None:
    """Random start for pre-training, parameter by parameter in the order of the module.

    Highway gates start at −2 (mostly carrying the input), as in Srivastava et al. (2015) and
    bilm-tf; everything else is scaled by its fan-in.
    """
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("gate.bias"):
                p.fill_(-2.0)
            elif name.endswith("bias"):
                p.zero_()
            elif name.endswith(("char_embedding", "word_embedding")):
                p.uniform_(-1.0, 1.0, generator=generator)
            else:
                fan_in = p[0].numel()
                gain = 2.0**0.5 if ".conv." in name or ".transform." in name else 1.0
                p.normal_(0.0, gain * fan_in**-0.5, generator=generator)
