"""Settings of the component `elmo` that are not about its encoder, checked when it is made."""

from typing import List, Union

from thinc.api import Model

from ..errors import ElmoError, Errors
from ..layers.shim import BiLMShim

STORES = ("layers", "vectors", "none")
MixT = Union[str, List[float]]


def check_settings(mix: MixT, store: str) -> None:
    """Check settings that any model can have.

    mix (Union[str, List[float]]): The component's own mix.
    store (str): What stays on the docs.
    :raises ElmoError: E104 for words that are none of the known ones.
    """
    if store not in STORES:
        allowed = ", ".join(STORES)
        raise ElmoError(Errors.E104.format(name="store", found=store, allowed=allowed))
    if isinstance(mix, str) and mix not in ("mean", "top"):
        allowed = "mean, top, or a list of L + 1 numbers"
        raise ElmoError(Errors.E104.format(name="mix", found=mix, allowed=allowed))


def check_encoder(model: Model) -> None:
    """Check the architecture.

    :raises ElmoError: E181 for any but ElmoEncoder.v1.
    """
    if not any(isinstance(shim, BiLMShim) for shim in model.shims):
        raise ElmoError(Errors.E181.format(name=model.name))
