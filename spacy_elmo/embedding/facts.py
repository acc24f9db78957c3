"""What identifies a run: the content of its input and the weights of its model."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Dict, List

import torch

from ..bilm import BiLM
from ..errors import ElmoError, Errors


def hash_file(path: Path) -> str:
    """Hash of a file's bytes.

    :raises ElmoError: E073 if it cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open(path, "rb") as file:
            while piece := file.read(2**20):
                digest.update(piece)
    except OSError as err:
        raise ElmoError(Errors.E073.format(path=path, reason=err.strerror or err)) from err
    return digest.hexdigest()


def hash_model(bilm: BiLM) -> str:
    """Hash of weights and numerics: what the vectors of a sentence depend on."""
    digest = hashlib.blake2b(digest_size=16)
    facts = {**bilm.config.to_dict(), "meta": {}}
    digest.update(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(bilm.state_dict().items()):
        # Vectors do not depend on the softmax, which may be loaded or not.
        if not name.startswith("softmax."):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def differences(before: Dict[str, Any], now: Dict[str, Any]) -> str:
    """In words, what differs between two runs."""
    found: List[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name == "input":
            found.append("the input had other content")
        elif name == "biLM":
            found.append("the biLM was another")
        else:
            found.append(f"{name} was {old!r:.120}, not {new!r:.120}")
    return "; ".join(found)


def say_os_error(err: OSError) -> str:
    """The reason of an error of the system, also where HDF5 has wrapped it."""
    inner = re.search(r"error message = '([^']*)'", str(err))
    return err.strerror or (inner[1] if inner else str(err))
