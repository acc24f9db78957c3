"""Architectures that contain ELMo: by itself, and beside a task's own embedding."""

from typing import Any, List, Optional

from spacy.ml.staticvectors import StaticVectors
from spacy.tokens import Doc
from thinc.api import Maxout, Model, chain, ragged2list, with_array
from thinc.types import Floats2d

from ..errors import ElmoError, Errors
from .concat import concat_embed
from .encoder import build_elmo_encoder_v1
from .listener import JOIN_NAME, join
from .scalar_mix import build_scalar_mix_v1
from .segmenters import SegmenterT
from .settings import EncoderSettings
from .source import WeightsT
from .types import Tok2VecT


def build_elmo_tok2vec_v1(
    weights: Optional[WeightsT] = "en_mini",
    precision: str = "float32",
    init_weights: Optional[List[float]] = None,
    trainable: bool = True,
    layer_norm: bool = False,
    dropout: float = 0.0,
    l2: float = 0.0,
    segmenter: Optional[SegmenterT] = None,
    encoder_trainable: bool = False,
    learn_rate_factor: float = 1.0,
    cache_mb: float = 512.0,
    cache_path: Optional[str] = None,
    cache_file_mb: float = 8192.0,
    max_batch_tokens: int = 4096,
) -> Tok2VecT:
    """Build an encoder of one's own with a mix: what `nlp.replace_listeners` leaves behind.

    weights (Optional[Union[str, List[str]]]): Built-in name, path, or the two paths of options and
        weights; read when they are first needed, and not at all if a saved pipeline brings the
        weights. None: only from a saved pipeline.
    precision (str): Precision of the encoder.
    init_weights, trainable, layer_norm, dropout, l2: See `ScalarMix.v1`; `trainable` is about the
        mix.
    segmenter (Optional[SegmenterT]): Cuts docs into what is encoded together; None for
        `punct_segmenter.v1`.
    encoder_trainable (bool): Whether the encoder learns; the setting `trainable` of a component.
    learn_rate_factor, cache_mb, cache_path, cache_file_mb, max_batch_tokens: As the settings of a
        component.
    """
    mix = build_scalar_mix_v1(None, init_weights, trainable, layer_norm, dropout, l2)
    encoder = build_elmo_encoder_v1(precision)
    settings = EncoderSettings(
        weights=weights,
        segmenter=segmenter,
        trainable=encoder_trainable,
        learn_rate_factor=float(learn_rate_factor),
        cache_mb=float(cache_mb),
        cache_path=cache_path,
        cache_file_mb=float(cache_file_mb),
        max_batch_tokens=int(max_batch_tokens),
    )
    settings.apply(encoder)
    return join(encoder, mix)


def build_concat_embed_v1(
    width: int,
    elmo: Tok2VecT,
    embed: Optional[Model[List[Doc], List[Floats2d]]] = None,
    encode: Optional[Model[List[Floats2d], List[Floats2d]]] = None,
    include_static_vectors: bool = False,
    output_mix: bool = False,
) -> Tok2VecT:
    """Build ELMo joined to a task's own embedding (Peters et al. 2018, section 3.3).

    The vectors are concatenated and brought to `width` by a maxout layer with layer norm, as
    spaCy does with the features of its own embeddings. Goes where `spacy.Tok2Vec.v2` wants an
    embedding, with any encoder behind; or takes the encoder itself and goes where a component
    wants a tok2vec.

    width (int): Width of the joined vectors: what the encoder wants.
    elmo (Model): A listener, or an `ElmoTok2Vec.v1`.
    embed (Optional[Model]): The task's own embedding, such as `spacy.MultiHashEmbed.v2`.
    encode (Optional[Model]): Encoder over the joined vectors, such as
        `spacy.MaxoutWindowEncoder.v2` of the same width.
    include_static_vectors (bool): Join the vocab's static vectors too.
    output_mix (bool): Join ELMo to the encoder's output as well, by a second mix of the same
        settings with weights of its own. Wants `encode`. The output is then as wide as the
        encoder's and ELMo's vectors together.
    """
    if output_mix and encode is None:
        raise ElmoError(Errors.E113)
    if output_mix and elmo.name != JOIN_NAME:
        raise ElmoError(Errors.E114.format(name=elmo.name))
    reduce: Any = with_array(Maxout(nO=width, nP=3, dropout=0.0, normalize=True))
    static: Any = chain(StaticVectors(nO=width), ragged2list())
    parts = {
        "elmo": elmo,
        "embed": embed,
        "static_vectors": static if include_static_vectors else None,
        "encode": chain(reduce, encode) if encode is not None else reduce,
        "output": _second_mix(elmo) if output_mix else None,
    }
    return concat_embed(parts)


def _second_mix(elmo: Tok2VecT) -> Tok2VecT:
    """The same source of layers behind another mix of the same settings."""
    source, mix = elmo.layers
    names = ("init_weights", "mix_trainable", "layer_norm", "mix_dropout", "l2")
    return join(source, build_scalar_mix_v1(None, *(mix.attrs[name] for name in names)))
