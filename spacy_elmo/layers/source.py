"""The setting `weights`: where a model is loaded from."""

from typing import List, Union

from ..errors import ElmoError, Errors
from .shim import SourceT

#: As it stands in a config: built-in name, path, or the two paths of options and weights.
WeightsT = Union[str, List[str]]


def as_source(weights: WeightsT) -> SourceT:
    """The setting, checked.

    :raises ElmoError: E117 if it is neither a string nor two.
    """
    if isinstance(weights, str):
        return weights
    if len(weights) != 2 or not all(isinstance(path, str) for path in weights):
        raise ElmoError(Errors.E117.format(found=weights))
    options, arrays = weights
    return options, arrays
