"""Checkpoints: one file, replaced atomically, from which a run goes on exactly."""

import json
import os
from pathlib import Path
from typing import Any, Dict, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..bilm.io.atomic import replace_file
from ..errors import ElmoError, Errors

CHECKPOINT_NAME = "checkpoint.safetensors"
FORMAT_VERSION = 1


class Checkpoint(NamedTuple):
    """State of a run between two steps.

    :param tensors: Parameters under ``model.``, the optimiser's state under ``optimizer.``,
        carried LSTM states under ``state.``.
    :param facts: Everything else, JSON-ready: step, position, counters, settings, fingerprint.
    """

    tensors: Dict[str, Tensor]
    facts: Dict[str, Any]


def save_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whenever the process is killed, the old or the new one is whole."""
    facts = {"format_version": FORMAT_VERSION, **checkpoint.facts}
    tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    data = save(tensors, metadata={"facts": json.dumps(facts)})
    with replace_file(directory / CHECKPOINT_NAME) as temporary, open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def checkpoint_path(directory: Path) -> Path:
    """The checkpoint of a run.

    :raises ElmoError: E052 if there is none.
    """
    path = directory / CHECKPOINT_NAME
    if not path.is_file():
        raise ElmoError(Errors.E052.format(path=path))
    return path


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read what :func:`save_checkpoint` wrote.

    :raises ElmoError: E052 if there is none, E053 if it cannot be read.
    """
    path = checkpoint_path(directory)
    try:
        with safe_open(str(path), "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "null"))
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except (SafetensorError, ValueError, OSError) as err:
        raise ElmoError(Errors.E053.format(path=path, problem=err)) from err
    if not isinstance(facts, dict) or facts.get("format_version") != FORMAT_VERSION:
        found = facts.get("format_version") if isinstance(facts, dict) else None
        problem = f"format version {found}, expected {FORMAT_VERSION}"
        raise ElmoError(Errors.E053.format(path=path, problem=problem))
    return Checkpoint(tensors, facts)
