"""Gradients of the listeners of one batch, collected until the encoder takes them."""

from typing import Any, Callable, List, Optional

from ..layers.types import LayersT


class PendingUpdate:
    """A batch whose gradients are still coming in; empty if nothing was given.

    backprop (Optional[Callable]): Takes the summed gradients.
    """

    def __init__(self, backprop: Optional[Callable[[LayersT], Any]] = None) -> None:
        self._backprop = backprop
        self._sums: Optional[List[Any]] = None

    def add(self, gradients: LayersT) -> None:
        """Add one listener's gradients."""
        if self._sums is None:
            self._sums = [gradient.copy() for gradient in gradients]
            return
        for total, gradient in zip(self._sums, gradients):
            total += gradient

    def flush(self) -> None:
        """Send the sums through the encoder, once; if none came yet, go on waiting.

        `nlp.update(sgd=...)` finishes the encoder before the listeners have sent anything.
        """
        if self._sums is None:
            return
        sums, backprop = self._sums, self._backprop
        self._sums = self._backprop = None
        if backprop is not None:
            backprop(sums)

    def __reduce__(self) -> Any:
        # Copies and pickles begin with nothing pending.
        return PendingUpdate, ()
