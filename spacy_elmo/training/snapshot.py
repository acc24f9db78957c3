"""The state of a run as a checkpoint, and back: everything that the next step depends on."""

from typing import TYPE_CHECKING, Any, Dict, List

import torch

from ..bilm.lstm import LSTMState
from ..bilm.scoring import Perplexity
from .batches import Position
from .checkpoint import Checkpoint
from .streams import StreamPosition

if TYPE_CHECKING:
    from .loop import Trainer

#: Plain attributes of the trainer that a checkpoint holds.
_FACTS = (
    "step",
    "tokens",
    "predictions",
    "skipped",
    "skipped_in_a_row",
    "recent_loss",
    "recent_norm",
    "accepted",
    "log_bytes",
    "stale",
    "best",
    "seconds",
)
#: The same, with the values that they have where an older checkpoint lacks them.
_LATER_FACTS: Dict[str, Any] = {"window": [], "finished": False}


def snapshot(trainer: "Trainer") -> Checkpoint:
    """The state between two steps. All processes must call this: states are gathered."""
    states = _gathered_states(trainer)
    tensors = {f"model.{name}": t for name, t in trainer.model.state_dict().items()}
    for name, t in trainer.optimizer.state_tensors().items():
        tensors[f"optimizer.{name}"] = t
    for k, direction in enumerate(states):
        for number, state in enumerate(direction):
            tensors[f"state.{k}.{number}.hidden"] = state.hidden
            tensors[f"state.{k}.{number}.cell"] = state.cell
    facts = {name: getattr(trainer, name) for name in (*_FACTS, *_LATER_FACTS)}
    facts["last"] = None if trainer.last is None else trainer.last.to_dict()
    facts["position"] = trainer.position
    facts["config"] = trainer.config.to_dict()
    facts["fingerprint"] = trainer.fingerprint
    return Checkpoint(tensors, facts)


def restore(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    """Put a trainer into the state that :func:`snapshot` found.

    :raises KeyError, TypeError, ValueError, RuntimeError: if it does not fit the trainer.
    """
    tensors, facts = checkpoint
    parts: Dict[str, Dict[str, torch.Tensor]] = {"model": {}, "optimizer": {}, "state": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    with torch.no_grad():
        for name, parameter in trainer.model.state_dict().items():
            found = parts["model"][name]
            if found.shape != parameter.shape:  # copying would broadcast
                raise ValueError(f"{name} is {[*found.shape]}, expected {[*parameter.shape]}")
            parameter.copy_(found)
    trainer.optimizer.load_state_tensors(parts["optimizer"])
    for name in _FACTS:
        setattr(trainer, name, facts[name])
    for name, default in _LATER_FACTS.items():
        setattr(trainer, name, facts.get(name, default))
    trainer.last = None if facts["last"] is None else Perplexity(**facts["last"])
    place = facts["position"]
    if place is not None and trainer.config.training.unit == "sentence":
        trainer.position = Position(*place)
    elif place is not None:
        trainer.position = StreamPosition(place[0], tuple(place[1]), tuple(place[2]))
    trainer.states = _own_states(trainer, parts["state"]) if parts["state"] else None


def _gathered_states(trainer: "Trainer") -> List[List[LSTMState]]:
    """Carried states of the rows of all processes, none where sentences start from zeros."""
    states, group = trainer.states, trainer.group
    if states is None or group.world_size == 1:
        return states or []
    n_rows = len(trainer.position.sentence)

    def gather(own: torch.Tensor) -> torch.Tensor:
        whole = own.new_zeros(n_rows, own.shape[1])
        whole[group.rank :: group.world_size] = own
        group.sum([whole])
        return whole

    return [[LSTMState(*map(gather, state)) for state in direction] for direction in states]


def _own_states(trainer: "Trainer", tensors: Dict[str, torch.Tensor]) -> List[List[LSTMState]]:
    """This process's rows; their number may be another one than when they were gathered."""
    group = trainer.group
    mine = slice(group.rank, None, group.world_size)

    def state(k: int, number: int) -> LSTMState:
        return LSTMState(
            *(tensors[f"{k}.{number}.{part}"][mine].to(group.device) for part in LSTMState._fields)
        )

    n_layers = trainer.config.model.lstm.n_layers
    return [[state(k, number) for number in range(n_layers)] for k in range(2)]
