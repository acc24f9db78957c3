"""How an encoder works: settings of the component, and of `ElmoTok2Vec.v1`, which has its own."""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ..errors import ElmoError, Errors
from .cache import SentenceCache
from .encoder import SegmenterAttr, shim_of
from .segmenters import SegmenterT
from .source import WeightsT, as_source
from .types import EncoderT


@dataclass(frozen=True)
class EncoderSettings:
    """The settings, checked.

    weights (Optional[Union[str, List[str]]]): Where the weights come from, None if a saved
        pipeline brings them.
    segmenter (Optional[SegmenterT]): Cuts docs into what is encoded together; None for the default.
    trainable (bool): Whether gradients reach the biLM.
    learn_rate_factor (float): The biLM's learn rate relative to the optimiser's.
    cache_mb (float): Outputs of a frozen encoder that are kept during training, in MiB.
    cache_path (Optional[str]): File behind the cache.
    cache_file_mb (float): What that file may grow to, in MiB; 0 for no limit.
    max_batch_tokens (int): Tokens that are encoded at a time; a batch through which gradients go
        is one graph, however large.
    :raises ElmoError: E117 for weights, E180 for numbers that make no sense.
    """

    weights: Optional[WeightsT]
    segmenter: Optional[SegmenterT]
    trainable: bool
    learn_rate_factor: float
    cache_mb: float
    cache_path: Optional[str]
    cache_file_mb: float
    max_batch_tokens: int

    def __post_init__(self) -> None:
        if self.weights is not None:
            as_source(self.weights)
        if self.max_batch_tokens < 1:
            raise wrong("max_batch_tokens", self.max_batch_tokens, "a whole number of 1 or more")
        for name in ("learn_rate_factor", "cache_mb", "cache_file_mb"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise wrong(name, value, "a number of 0 or more")

    def apply(self, encoder: EncoderT) -> None:
        """Have an encoder work like this; weights that it has already stay."""
        encoder.attrs["trainable"] = self.trainable
        encoder.attrs["segmenter"] = SegmenterAttr(self.segmenter)
        shim = shim_of(encoder)
        if self.weights is not None and not shim.is_loaded:
            shim.source = as_source(self.weights)
        shim.max_batch_tokens = self.max_batch_tokens
        shim.learn_rate_factor = self.learn_rate_factor
        # What a learning encoder gave is of no use a step later.
        if self.trainable:
            shim.cache = SentenceCache(0)
        else:
            n_bytes, n_file_bytes = (int(mb * 2**20) for mb in (self.cache_mb, self.cache_file_mb))
            shim.cache = SentenceCache(n_bytes, self.cache_path, n_file_bytes)

    def to_config(self) -> Dict[str, Any]:
        """All but the segmenter, as arguments of `ElmoTok2Vec.v1`."""
        return {
            "weights": self.weights,
            "encoder_trainable": self.trainable,
            "learn_rate_factor": self.learn_rate_factor,
            "cache_mb": self.cache_mb,
            "cache_path": self.cache_path,
            "cache_file_mb": self.cache_file_mb,
            "max_batch_tokens": self.max_batch_tokens,
        }


def wrong(name: str, found: Any, expected: str) -> ElmoError:
    """The error for a setting that makes no sense."""
    return ElmoError(Errors.E180.format(name=name, found=found, expected=expected))
