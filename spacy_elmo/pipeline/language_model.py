"""The biLM's two language models on docs: scores as extensions, expected words, substitutes.

=================================  ========  =====================================================
extension                          unit      meaning
=================================  ========  =====================================================
``token._.elmo_log_prob_forward``  nats      ln p(word | words before it in the sentence)
``token._.elmo_log_prob_backward`` nats      ln p(word | words behind it in the sentence)
``token._.elmo_surprisal``         bits      −log2 p(word | words before it)
``token._.elmo_is_unknown``        bool      scored as ``<UNK>``: the vocabulary lacks the word
``doc._.elmo_perplexity``          —         exp of the mean loss of both directions
=================================  ========  =====================================================

Whitespace tokens are not seen by the model; their values are None. Surprisal is that of the
forward direction, as in studies of reading (Hale 2001; Levy 2008): what comes behind a word is not
known to who reads it.
"""

import functools
import math
import warnings
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Union,
    cast,
)

import numpy as np
import torch
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch

from ..bilm.encoder import BiLM
from ..bilm.io.detect import builtin_models
from ..bilm.predict import Candidate, LanguageModel, Substitute, TopK
from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from ..layers.encoder import shim_of
from ..layers.segmenters import SegmenterT, Sentence, punct_segmenter, sentences_of
from .component import Elmo

#: What scores a doc: nothing for the default, built-in name, path, model, or component.
ModelT = Union[None, str, Path, BiLM, LanguageModel, Elmo]
DEFAULT_MODEL = "en_mini"

_SCORES_KEY = ("spacy_elmo_lm", "scores")
_ENDS_KEY = ("spacy_elmo_lm", "ends")


class DocScores(NamedTuple):
    """What `score` left on a doc; whitespace tokens are NaN.

    forward (ndarray): Log-probabilities given the words before, in nats. *(n_tokens,)*
    backward (ndarray): Given the words behind. *(n_tokens,)*
    unknown (ndarray): Whether the token was scored as `<UNK>`. *(n_tokens,)*
    ends (ndarray): For each sentence the log-probability of its end (forward) and of its
        beginning (backward). *(n_sentences, 2)*
    """

    forward: np.ndarray
    backward: np.ndarray
    unknown: np.ndarray
    ends: np.ndarray

    @property
    def surprisal(self) -> np.ndarray:
        """Forward surprisal in bits. *(n_tokens,)*."""
        bits: np.ndarray = self.forward / -math.log(2.0)
        return bits


def score(doc: Doc, model: ModelT = None, *, segmenter: SegmenterT = punct_segmenter) -> Doc:
    """Score every word of a doc by a language model, and put the scores on the doc.

    doc (Doc): The doc; any pipeline's, it needs no vectors.
    model (ModelT): A model with a softmax: a `LanguageModel` or `BiLM` (loaded once, for many
        docs), a built-in name or path, or a component `elmo`. Default: "en_mini".
    segmenter (SegmenterT): Cuts the doc into sentences, by default as the component does.
    RETURNS (Doc): The same doc; see the head of this module for what is on it.

    Raises E050 if the model has no softmax, as imported ones; warns (W140) if it was trained on
    another language than the doc's.
    """
    for scored in score_docs([doc], model, segmenter=segmenter):
        doc = scored
    return doc


def score_docs(
    docs: Iterable[Doc],
    model: ModelT = None,
    *,
    segmenter: SegmenterT = punct_segmenter,
    batch_size: int = 64,
    progress: Optional[Callable[[int], object]] = None,
) -> Iterator[Doc]:
    """Score a stream of docs as `score` does.

    batch_size (int): Docs that are scored together; bounds memory, not results.
    progress (Optional[Callable[[int], object]]): Told again and again how many more words are
        scored; whitespace tokens are not words.
    YIELDS (Doc): The same docs in order.
    """
    register_score_extensions()
    lm = language_model(model)
    language = lm.bilm.config.meta.get("language")
    for batch in minibatch(docs, batch_size):
        found = sentences_of(batch, segmenter)
        scores = iter(lm.score([s.words for s in found], progress=progress))
        of_doc: List[List[Sentence]] = [[] for _ in batch]
        for sentence in found:
            of_doc[sentence.doc].append(sentence)
        for doc, sentences in zip(batch, of_doc):
            if language and doc.lang_ not in ("", "xx", language):
                text = Warnings.W140.format(found=doc.lang_, expected=language)
                warnings.warn(text, ElmoWarning, stacklevel=2)
            table = np.full((3, len(doc)), np.nan, np.float32)
            ends = np.zeros((len(sentences), 2), np.float32)
            for number, (_, indices, words) in enumerate(sentences):
                scored = next(scores)
                table[0, indices] = scored.forward[:-1]
                table[1, indices] = scored.backward[1:]
                table[2, indices] = lm.is_unknown(words)
                ends[number] = scored.forward[-1], scored.backward[0]
            _data(doc)[_SCORES_KEY] = table
            _data(doc)[_ENDS_KEY] = ends
            yield doc


def doc_scores(doc: Doc) -> DocScores:
    """Scores on a doc as arrays.

    Raises E143 if there are none, E102 if the doc's tokens were merged or split since.
    """
    table = _data(doc).get(_SCORES_KEY)
    if table is None:
        raise ElmoError(Errors.E143.format(text=doc.text[:40]))
    if table.shape[1] != len(doc):
        raise ElmoError(Errors.E102.format(found=table.shape[1], expected=len(doc)))
    return DocScores(table[0], table[1], table[2] == 1.0, _data(doc)[_ENDS_KEY])


def top_k(
    token: Token, k: int = 10, model: ModelT = None, *, segmenter: SegmenterT = punct_segmenter
) -> TopK:
    """Likeliest words in a token's place, by the words before it and by those behind it.

    token (Token): The token; the model does not see it.
    k (int): How many by each direction.
    model, segmenter: As in `score`.
    """
    tokens, position = _place(token, segmenter)
    return language_model(model).top_k(tokens, position, k)


def substitutes(
    token: Token,
    k: int = 10,
    model: ModelT = None,
    *,
    prior_power: float = 0.0,
    keep_original: bool = False,
    segmenter: SegmenterT = punct_segmenter,
) -> List[Substitute]:
    """Words that fit in a token's place, by both directions combined.

    See `LanguageModel.substitutes` for the formula and its limits.
    """
    tokens, position = _place(token, segmenter)
    return language_model(model).substitutes(
        tokens, position, k, prior_power=prior_power, keep_original=keep_original
    )


def next_words(text: Union[Doc, Span], k: int = 10, model: ModelT = None) -> List[Candidate]:
    """Likeliest words behind a text, which is taken as the beginning of one sentence."""
    return language_model(model).next_words(_words(text), k)


def previous_words(text: Union[Doc, Span], k: int = 10, model: ModelT = None) -> List[Candidate]:
    """Likeliest words before a text, which is taken as the rest of one sentence."""
    return language_model(model).previous_words(_words(text), k)


# -- models ------------------------------------------------------------------------------


def language_model(model: ModelT = None) -> LanguageModel:
    """The language model that is meant by what callers give.

    Built-in models are loaded once. A path is read, and a `BiLM` or component looked through, at
    every call: for many calls give a `LanguageModel`, or use `score_docs`.
    """
    if isinstance(model, LanguageModel):
        return model
    if isinstance(model, Elmo):
        return _of_component(model)
    if isinstance(model, BiLM):
        return LanguageModel(model)
    return _load(DEFAULT_MODEL if model is None else model)


def _load(path: Union[str, Path]) -> LanguageModel:
    if isinstance(path, str) and path in builtin_models():
        return _load_builtin(path)
    return LanguageModel.load(path)


@functools.lru_cache(maxsize=2)
def _load_builtin(name: str) -> LanguageModel:
    return LanguageModel.load(name)


def _of_component(component: Elmo) -> LanguageModel:
    """A component keeps no softmax; it is fetched from where its weights came from.

    That is right only as long as the weights are the same, which a trainable component's are not.
    """
    bilm = component.bilm
    if bilm.softmax is not None:
        return language_model(bilm)
    source = shim_of(component.model).source
    if source is None:
        raise ElmoError(Errors.E141.format(source=source, problem="it is not known"))
    try:
        if isinstance(source, str):
            lm = _load(source)
        else:
            lm = LanguageModel(BiLM.load(source[0], source[1], softmax=True))
    except ElmoError as err:
        raise ElmoError(Errors.E141.format(source=source, problem=err)) from err
    theirs = lm.bilm.state_dict()
    for name, tensor in bilm.state_dict().items():
        other = theirs.get(name)
        if other is None or not torch.equal(other, tensor.detach().cpu().to(other.dtype)):
            raise ElmoError(Errors.E142.format(source=source, problem=f"{name} differs"))
    return lm


# -- docs --------------------------------------------------------------------------------


def _data(doc: Doc) -> Dict[Any, Any]:
    return cast(Dict[Any, Any], doc.user_data)


def _words(text: Union[Doc, Span]) -> List[str]:
    return [token.text for token in text if not token.is_space]


def _place(token: Token, segmenter: SegmenterT) -> Tuple[List[str], int]:
    for _, indices, words in sentences_of([token.doc], segmenter):
        where = np.flatnonzero(indices == token.i)
        if len(where):
            return words, int(where[0])
    raise ElmoError(Errors.E151.format(text=token.text))


def _value(token: Token, field: str) -> Any:
    scores = doc_scores(token.doc)
    if np.isnan(scores.forward[token.i]):
        return None
    return getattr(scores, field)[token.i].item()


def _log_prob_forward(token: Token) -> Optional[float]:
    return cast(Optional[float], _value(token, "forward"))


def _log_prob_backward(token: Token) -> Optional[float]:
    return cast(Optional[float], _value(token, "backward"))


def _surprisal(token: Token) -> Optional[float]:
    return cast(Optional[float], _value(token, "surprisal"))


def _is_unknown(token: Token) -> Optional[bool]:
    return cast(Optional[bool], _value(token, "unknown"))


def _perplexity(doc: Doc) -> Optional[float]:
    """None for a doc without words."""
    scores = doc_scores(doc)
    n = 2 * (int((~np.isnan(scores.forward)).sum()) + len(scores.ends))
    total = np.nansum(scores.forward) + np.nansum(scores.backward) + scores.ends.sum()
    return math.exp(-float(total) / n) if n else None


def register_score_extensions() -> None:
    """Make the extensions known; ones of the same name that a user set are left alone."""
    getters: Any = (
        (Token, "elmo_log_prob_forward", _log_prob_forward),
        (Token, "elmo_log_prob_backward", _log_prob_backward),
        (Token, "elmo_surprisal", _surprisal),
        (Token, "elmo_is_unknown", _is_unknown),
        (Doc, "elmo_perplexity", _perplexity),
    )
    for kind, name, getter in getters:
        if not kind.has_extension(name):
            kind.set_extension(name, getter=getter)


# A doc that was scored elsewhere and read back has the arrays alone.
register_score_extensions()
