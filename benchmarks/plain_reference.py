"""A straightforward PyTorch implementation of the biLM's inference, to compare with.

What one writes first, and what the published ones do: the characters of every token convolved at
full width, a padded batch in the order given, and a Python loop over single steps, each with two
products and the gates' own functions. Same weights, same numbers.
"""

from typing import List, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spacy_elmo.bilm.encoder import BiLM, LSTMLayer


class PlainReference:
    """The biLM, written plainly. Starts sentences from zeros.

    :param model: Weights.
    """

    def __init__(self, model: BiLM) -> None:
        self.model = model

    def embed(self, sentences: Sequence[Sequence[str]]) -> List[np.ndarray]:
        """All layers of each sentence. *Shape:* ``(L + 1, n_tokens, 2P)``."""
        with torch.no_grad():
            ids, mask = self._characters(sentences)
            x = self._tokens(ids)
            layers = [torch.cat([x, x], dim=-1)]
            forward = self._direction(self.model.forward_lstm, x, mask)
            backward = self._direction(self.model.backward_lstm, x.flip(1), mask.flip(1))
            layers += [torch.cat([f, b.flip(1)], dim=-1) for f, b in zip(forward, backward)]
            stacked = torch.stack(layers).numpy()
        return [stacked[:, row, 1 : 1 + len(s)].copy() for row, s in enumerate(sentences)]

    def _characters(self, sentences: Sequence[Sequence[str]]) -> Tuple[Tensor, Tensor]:
        width = self.model.config.char_cnn.max_characters
        longest = max(map(len, sentences)) + 2
        ids = np.full((len(sentences), longest, width), self.model.pad, np.int64)
        mask = np.zeros((len(sentences), longest), np.float32)
        for row, sentence in enumerate(sentences):
            encoded = self.model.characters.encode(sentence).ids
            order = [0, *range(2, 2 + len(sentence)), 1]
            ids[row, : len(order), : encoded.shape[1]] = encoded[order]
            mask[row, : len(order)] = 1.0
        return torch.from_numpy(ids), torch.from_numpy(mask)

    def _tokens(self, ids: Tensor) -> Tensor:
        encoder, config = self.model.token_encoder, self.model.config
        embedded = encoder.char_embedding[ids.flatten(0, 1)].transpose(1, 2)
        pooled = [
            functional.conv1d(embedded, conv.weight, conv.bias).amax(-1) for conv in encoder.conv
        ]
        x = torch.cat(pooled, dim=-1)
        x = x.relu() if config.char_cnn.activation == "relu" else x.tanh()
        for highway in encoder.highway:
            gate = torch.sigmoid(highway.gate(x))
            x = gate * torch.relu(highway.transform(x)) + (1.0 - gate) * x
        if encoder.projection is not None:
            x = encoder.projection(x)
        return x.view(*ids.shape[:2], -1)

    def _direction(self, layers: Sequence[LSTMLayer], x: Tensor, mask: Tensor) -> List[Tensor]:
        config = self.model.config.lstm
        outputs = []
        for number, layer in enumerate(layers):
            h = x.new_zeros(x.shape[0], config.projection_dim)
            c = x.new_zeros(x.shape[0], config.cell_dim)
            steps = []
            for t in range(x.shape[1]):
                gates = x[:, t] @ layer.input_weight.t() + h @ layer.recurrent_weight.t()
                i, f, o, j = (gates + layer.bias).chunk(4, dim=1)
                new = torch.sigmoid(f + config.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
                if config.cell_clip is not None:
                    new = new.clamp(-config.cell_clip, config.cell_clip)
                y = torch.sigmoid(o) * torch.tanh(new)
                if layer.projection_weight is not None:
                    y = y @ layer.projection_weight.t()
                if config.proj_clip is not None:
                    y = y.clamp(-config.proj_clip, config.proj_clip)
                keep = mask[:, t, None]
                h, c = keep * y + (1.0 - keep) * h, keep * new + (1.0 - keep) * c
                steps.append(y)
            out = torch.stack(steps, dim=1)
            x = out + x if number > 0 and config.skip_connections else out
            outputs.append(x)
        return outputs
