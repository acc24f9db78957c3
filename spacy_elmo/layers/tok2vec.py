"""Architectures that contain ELMo: by itself, and beside a task's own embedding."""

from typing import Any, List, Optional

from spacy.ml.staticvectors import StaticVectors
from spacy.tokens import Doc
from thinc.api import Maxout, Model, chain, concatenate, ragged2list, with_array
from thinc.types import Floats2d

from .encoder import build_elmo_encoder_v1, shim_of
from .listener import join
from .scalar_mix import build_scalar_mix_v1
from .types import Tok2VecT


def build_elmo_tok2vec_v1(
    weights: str = "en_mini",
    precision: str = "float32",
    init_weights: Optional[List[float]] = None,
    trainable: bool = True,
    layer_norm: bool = False,
    dropout: float = 0.0,
    l2: float = 0.0,
) -> Tok2VecT:
    """Build an encoder of one's own with a mix: what `nlp.replace_listeners` leaves behind.

    weights (str): Built-in name or path; read when it is first needed, and not at all if a
        saved pipeline brings the weights.
    precision (str): Precision of the encoder.
    init_weights, trainable, layer_norm, dropout, l2: See `ScalarMix.v1`; `trainable` is about the
        mix, the encoder stays as it is.
    """
    mix = build_scalar_mix_v1(None, init_weights, trainable, layer_norm, dropout, l2)
    encoder = build_elmo_encoder_v1(precision)
    shim_of(encoder).source = weights
    return join(encoder, mix)


def build_concat_embed_v1(
    width: int,
    elmo: Tok2VecT,
    embed: Optional[Model[List[Doc], List[Floats2d]]] = None,
    encode: Optional[Model[List[Floats2d], List[Floats2d]]] = None,
    elmo_output: Optional[Tok2VecT] = None,
    include_static_vectors: bool = False,
) -> Tok2VecT:
    """Build ELMo joined to a task's own embedding (Peters et al. 2018, section 3.3).

    The vectors are concatenated and brought to `width` by a maxout layer with layer norm, as
    spaCy does with the features of its own embeddings. Goes where `spacy.Tok2Vec.v2` wants an
    embedding, with any encoder behind; or takes the encoder itself.

    width (int): Width of the joined vectors: what the encoder wants.
    elmo (Model): A listener, or an `ElmoTok2Vec.v1`.
    embed (Optional[Model]): The task's own embedding, such as `spacy.MultiHashEmbed.v2`.
    encode (Optional[Model]): Encoder over the joined vectors, such as
        `spacy.MaxoutWindowEncoder.v2` of the same width.
    elmo_output (Optional[Model]): A second listener, whose vectors are joined to the encoder's
        output (with `encode` only): the paper's "ELMo at the output", with a mix of its own.
    include_static_vectors (bool): Join the vocab's static vectors too.
    """
    parts: List[Any] = [elmo]
    if embed is not None:
        parts.append(embed)
    if include_static_vectors:
        parts.append(chain(StaticVectors(nO=width), ragged2list()))
    joined = concatenate(*parts) if len(parts) > 1 else parts[0]
    reduce: Any = with_array(Maxout(nO=width, nP=3, dropout=0.0, normalize=True))
    model: Any = chain(joined, reduce)
    if encode is not None:
        model = chain(model, encode)
        if elmo_output is not None:
            model = concatenate(model, elmo_output)
    model.set_ref("elmo", elmo)
    joined_model: Tok2VecT = model
    return joined_model
