"""State dicts in pickle files, read without ever running what a pickle asks for."""

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Dict, Mapping

import torch
from torch import Tensor

from ...errors import ElmoError, Errors
from .sniff import foreign_file

#: Put before every name by data-parallel wrappers.
_WRAPPER = "module."
#: How torch names what a pickle wanted and must not have.
_FORBIDDEN = re.compile(r"((?:GLOBAL|unsupported class|unrecognized function)\s+\S+)")


def load_state_dict(path: Path) -> Dict[str, Tensor]:
    """Read tensors by name from a file of ``torch.save``.

    :raises ElmoError: E030 if the pickle wants anything else than tensors, which is refused and
        not run; E023 for truncated or foreign files.
    """
    expected = "a state dict of torch.save"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Files of torch before 1.6 are no zips and cannot be mapped.
            mmap = zipfile.is_zipfile(path)
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as err:
        # The same exception tells of garbage and of classes or functions that are not allowed.
        wanted = _FORBIDDEN.search(str(err))
        if wanted is None:
            raise foreign_file(path, expected, _short(err)) from err
        raise ElmoError(Errors.E030.format(path=path, problem=wanted.group(1))) from err
    except Exception as err:
        # Damaged pickles raise whatever their garbled instructions lead to.
        raise foreign_file(path, expected, _short(err)) from err
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise foreign_file(path, expected, f"it holds a {type(state).__name__}")
    names = list(state)
    if names and all(name.startswith(_WRAPPER) for name in names):
        return {name[len(_WRAPPER) :]: state[name] for name in names}
    return dict(state)


def _short(err: BaseException) -> str:
    """The gist of torch's message, which goes on with advice to switch the check off."""
    text = " ".join(str(err).split("WeightsUnpickler error:")[-1].split("Check the doc")[0].split())
    return (text[:160] + "...") if len(text) > 160 else text or type(err).__name__
