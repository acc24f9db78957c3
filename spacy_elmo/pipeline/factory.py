"""The factory `elmo` and its defaults."""

from typing import List, Optional, Union

from spacy.language import Language
from thinc.api import Config

from ..layers.replacing import replacement_of
from ..layers.segmenters import SegmenterT
from ..layers.types import EncoderT
from .component import Elmo

DEFAULT_CONFIG_STR = """
[elmo]
weights = "en_mini"
trainable = false
mix = "mean"
store = "layers"
hooks = false
cache_mb = 512.0
cache_path = null
cache_file_mb = 8192.0
max_batch_tokens = 4096
learn_rate_factor = 1.0

[elmo.model]
@architectures = "spacy-elmo.ElmoEncoder.v1"
precision = "float32"

[elmo.segmenter]
@misc = "spacy-elmo.punct_segmenter.v1"
"""

DEFAULT_CONFIG = Config().from_str(DEFAULT_CONFIG_STR)["elmo"]


@Language.factory("elmo", assigns=["doc._.elmo"], default_config=DEFAULT_CONFIG)
def make_elmo(
    nlp: Language,
    name: str,
    model: EncoderT,
    weights: Union[str, List[str], None],
    trainable: bool,
    mix: Union[str, List[float]],
    store: str,
    hooks: bool,
    cache_mb: float,
    cache_path: Optional[str],
    cache_file_mb: float,
    max_batch_tokens: int,
    segmenter: SegmenterT,
    learn_rate_factor: float,
) -> Elmo:
    """Make the component; see `Elmo` for the settings."""
    elmo = Elmo(
        nlp.vocab,
        model,
        name,
        weights=weights,
        trainable=trainable,
        mix=mix,
        store=store,
        hooks=hooks,
        cache_mb=float(cache_mb),
        cache_path=cache_path,
        cache_file_mb=float(cache_file_mb),
        max_batch_tokens=int(max_batch_tokens),
        segmenter=segmenter,
        learn_rate_factor=float(learn_rate_factor),
    )
    replacement_of(elmo.model).watch(nlp)
    return elmo
