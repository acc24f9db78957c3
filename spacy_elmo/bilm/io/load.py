"""One reader for all formats."""

from pathlib import Path
from typing import Union

from .archive import unpacked
from .bilm_hdf5 import read_bilm
from .detect import Location, locate
from .many_langs import read_many_langs
from .native import read_native
from .weights import ModelFiles


def read_model(
    path: Union[str, Path], weights: Union[str, Path, None] = None, *, softmax: bool = False
) -> ModelFiles:
    """Read a model of any supported format.

    :param path:
        Name of a built-in model such as "en_mini"; a native folder; a folder with ``options.json``
        and hdf5 weights; an ELMoForManyLangs folder; a zip of one of these; an ``options.json``.
    :param weights:
        The hdf5 file that belongs to an ``options.json``, if it does not lie beside it.
    :param softmax:
        Read the softmax of the language model as well, where there is one.
    :raises ElmoError: E020, E021, E022 if no model is found, E023 to E038 for files that are
        truncated, foreign, malicious, not supported or that do not fit each other.
    """
    location = locate(path, weights)
    if location.format != "zip":
        return _read(location, softmax)
    with unpacked(location.path) as folder:
        files = _read(locate(folder), softmax)
        # The files are about to vanish, and mapped weights with them.
        files.tensors = {name: tensor.clone() for name, tensor in files.tensors.items()}
    return files


def _read(location: Location, softmax: bool) -> ModelFiles:
    if location.format == "native":
        return read_native(location.path, softmax)
    if location.format == "many-langs":
        return read_many_langs(location.path, softmax)
    return read_bilm(location.path, location.weights or location.path)
