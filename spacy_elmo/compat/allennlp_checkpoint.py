"""Names of AllenNLP's ``Elmo`` in checkpoints of models that were trained with it.

Its gates are in the order input, forget, candidate, output (ours: input, forget, output,
candidate) with the forget bias inside the bias, its highway gate multiplies the input (ours the
ReLU branch), its character table starts with a row of zeros, and a mix has its weights one by
one.
"""

import re
from typing import Any, Dict

import torch
from torch import Tensor

from ..bilm.config import BiLMConfig

_LAYER_PARTS = {
    "input_linearity.weight": "input_weight",
    "state_linearity.weight": "recurrent_weight",
    "state_linearity.bias": "bias",
    "state_projection.weight": "projection_weight",
}
_MIX = re.compile(r"scalar_mix_(\d+)\.scalar_parameters\.(\d+)")
_CONVOLUTION = re.compile(r"_token_embedder\.char_conv_(\d+)\.(weight|bias)")
_HIGHWAY = re.compile(r"_token_embedder\._highways\._layers\.(\d+)\.(weight|bias)")
_PROJECTION = re.compile(r"_token_embedder\._projection\.(weight|bias)")
_LAYER = re.compile(r"_elmo_lstm\.(forward|backward)_layer_(\d+)\.(.+)")
_CACHE = re.compile(r"_word_embedding\..+")


def translate_checkpoint(state: Dict[str, Any], prefix: str, config: BiLMConfig) -> None:
    """Rename AllenNLP's entries in a state dict, in place; others are left alone.

    :param state: State dict of a whole model.
    :param prefix: Where the ``Elmo`` module stands in it, with a dot at the end.
    :param config: Of the biLM; gives the forget bias.
    """
    bilm = f"{prefix}_elmo_lstm."
    mixes: Dict[str, Dict[int, Tensor]] = {}
    for name in [name for name in state if name.startswith(prefix)]:
        match = _MIX.fullmatch(name[len(prefix) :])
        if match:
            mix = mixes.setdefault(f"{prefix}scalar_mix_{match[1]}.weights", {})
            mix[int(match[2])] = state.pop(name)
        elif name.startswith(bilm):
            new = _translate(name[len(bilm) :], state[name], config.lstm.forget_bias)
            if new is not None:
                del state[name]
                state.update({f"{bilm}{key}": value for key, value in new.items()})
    for name, parts in mixes.items():
        state[name] = torch.cat([parts[i].reshape(1) for i in sorted(parts)])


def _translate(name: str, value: Tensor, forget_bias: float) -> "Dict[str, Tensor] | None":
    """Our names and tensors for one of AllenNLP's, None if it is none of them."""
    token = "token_encoder"
    if name == "_token_embedder._char_embedding_weights":
        return {f"{token}.char_embedding": value[1:]}
    if match := _CONVOLUTION.fullmatch(name):
        return {f"{token}.conv.{match[1]}.{match[2]}": value}
    if match := _HIGHWAY.fullmatch(name):
        transform, gate = value.chunk(2)
        highway = f"{token}.highway.{match[1]}"
        return {f"{highway}.transform.{match[2]}": transform, f"{highway}.gate.{match[2]}": -gate}
    if match := _PROJECTION.fullmatch(name):
        return {f"{token}.projection.{match[1]}": value}
    if _CACHE.fullmatch(name):
        return {}
    match = _LAYER.fullmatch(name)
    if match is None or match[3] not in _LAYER_PARTS:
        return None
    part = _LAYER_PARTS[match[3]]
    if part != "projection_weight":
        i, f, j, o = value.chunk(4)
        value = torch.cat([i, f - forget_bias if part == "bias" else f, o, j])
    return {f"{match[1]}_lstm.{match[2]}.{part}": value}
