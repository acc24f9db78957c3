"""Make the inference engine of a model; weights of a file are not in memory twice."""

from typing import TYPE_CHECKING, Iterator, Sequence

from .char_cnn_inference import CharCNNInference
from .engine import Engine
from .io.paging import move_to_file, page_out
from .lstm import LSTMWeights
from .states import InitialStates, repeat_states, zero_states

if TYPE_CHECKING:
    from .encoder import BiLM, LSTMLayer

#: Weights below this many bytes are left where they are.
_WORTH_MOVING = 64 << 20


def make_engine(model: "BiLM", precision: str, plain: bool) -> Engine:
    """Lay out the weights of a model for inference.

    What is laid out anew is not read again from where it was, so its memory is given back as far
    as it comes from a file. In a lower precision none of the model's own weights are used any
    more: large ones that do not come from a file move into one (they are needed again only when
    the model is saved or trained).
    """
    if precision != "float32" and sum(p.nbytes for p in model.parameters()) > _WORTH_MOVING:
        move_to_file(model)
    start: InitialStates = zero_states(model.config.lstm.n_layers)
    if model.config.initial_state == "primed":
        start = repeat_states(model.primed_states(), 1)
    encoder = CharCNNInference(
        model.token_encoder, model.config.char_cnn, model.characters, model.pad, precision, plain
    )
    page_out(model.token_encoder)
    directions = [_one_by_one(direction) for direction in model.directions]
    return Engine(encoder, directions, model.config.lstm, start, precision, plain=plain)


def _one_by_one(layers: Sequence["LSTMLayer"]) -> Iterator[LSTMWeights]:
    for layer in layers:
        yield layer.weights
        page_out(layer)
