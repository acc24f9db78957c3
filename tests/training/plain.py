"""Loss and gradients of a biLM as plainly as can be: one word, one step, one position at a time.

Uses conv1d, elementary products and torch's autograd; shares no code with the package.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.characters import PAD_CHARACTER
from spacy_elmo.bilm.lm import Negatives
from spacy_elmo.training.vocabulary import Vocabulary


def encode_word(bilm: BiLM, word: Optional[str], boundary: int) -> Tensor:
    """A word, or a boundary, over all positions of the character limit."""
    cnn, encoder = bilm.config.char_cnn, bilm.token_encoder
    encoded = bilm.characters.encode([] if word is None else [word]).ids
    row = encoded[boundary if word is None else 2]
    ids = np.full(cnn.max_characters, PAD_CHARACTER)
    ids[: len(row)] = row[: cnn.max_characters]
    characters = encoder.char_embedding[torch.from_numpy(ids)].t()[None]
    x = torch.cat(
        [F.conv1d(characters, conv.weight, conv.bias).amax(2)[0] for conv in encoder.conv]
    )
    x = x.relu() if cnn.activation == "relu" else x.tanh()
    for layer in encoder.highway:
        gate = torch.sigmoid(F.linear(x, layer.gate.weight, layer.gate.bias))
        x = gate * F.linear(x, layer.transform.weight, layer.transform.bias).relu() + (1 - gate) * x
    if encoder.projection is None:
        return x
    return F.linear(x, encoder.projection.weight, encoder.projection.bias)


def lstm(layer: Any, config: Any, inputs: Sequence[Tensor]) -> List[Tensor]:
    h, c = inputs[0].new_zeros(config.projection_dim), inputs[0].new_zeros(config.cell_dim)
    outputs = []
    for x in inputs:
        gates = layer.input_weight @ x + layer.recurrent_weight @ h + layer.bias
        i, f, o, j = gates.chunk(4)
        c = torch.sigmoid(f + config.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        if config.cell_clip is not None:
            c = c.clamp(-config.cell_clip, config.cell_clip)
        h = torch.sigmoid(o) * torch.tanh(c)
        if layer.projection_weight is not None:
            h = layer.projection_weight @ h
        if config.proj_clip is not None:
            h = h.clamp(-config.proj_clip, config.proj_clip)
        outputs.append(h)
    return outputs


def no_mask(k: int, layer: int, sentence: int) -> Optional[Tensor]:
    return None


def plain_losses(
    bilm: BiLM,
    words: Vocabulary,
    sentences: Sequence[Sequence[str]],
    negatives: Optional[Negatives] = None,
    mask: Any = no_mask,
) -> List[Tensor]:
    """Summed loss of each direction; the full softmax if no sample is given.

    `mask(k, layer, sentence)` gives dropout factors for the positions of a sentence.
    """
    softmax, config = bilm.softmax, bilm.config.lstm
    assert softmax is not None
    losses = []
    for k, layers in enumerate(bilm.directions):
        total = torch.zeros((), dtype=softmax.weight.dtype)
        for number, sentence in enumerate(sentences):
            ids = words.ids(sentence).tolist()
            read: List[Optional[str]] = [None, *(sentence if k == 0 else reversed(sentence))]
            targets = [*(ids if k == 0 else reversed(ids)), 1 - k]

            def drop(xs: List[Tensor], layer: int) -> List[Tensor]:
                factors = mask(k, layer, number)  # noqa: B023
                if factors is None:
                    return xs
                # The factors are in the order of the text, the backward direction reads it
                # from the end.
                return [x * f for x, f in zip(xs, factors.flip(0) if k else factors)]  # noqa: B023

            xs = [encode_word(bilm, word, k) for word in read]
            for depth, layer in enumerate(layers):
                xs = drop(xs, depth)
                outputs = lstm(layer, config, xs)
                if depth > 0 and config.skip_connections:
                    outputs = [out + x for out, x in zip(outputs, xs)]
                xs = outputs
            for hidden, target in zip(drop(xs, len(layers)), targets):
                logits = softmax.weight @ hidden + softmax.bias
                if negatives is None:
                    total = total - torch.log_softmax(logits, 0)[target]
                    continue
                others = negatives.ids != target
                noise = logits[negatives.ids[others]] - negatives.log_q[others]
                every = torch.cat([logits[target, None], noise])
                total = total + torch.logsumexp(every, 0) - logits[target]
        losses.append(total)
    return losses


def plain_gradients(
    bilm: BiLM, words: Vocabulary, sentences: Sequence[Sequence[str]], **options: Any
) -> Tuple[List[float], Dict[str, Tensor]]:
    """Losses, and gradients of the mean over both directions' predictions."""
    losses = plain_losses(bilm, words, sentences, **options)
    n = sum(len(sentence) + 1 for sentence in sentences)
    names, parameters = zip(*bilm.named_parameters())
    grads = torch.autograd.grad((losses[0] + losses[1]) / (2 * n), parameters)
    return [loss.item() for loss in losses], dict(zip(names, grads))
