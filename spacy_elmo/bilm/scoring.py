"""Held-out likelihood: full softmax, both directions, every word and sentence end."""

import itertools
import math
from concurrent.futures import Executor
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from ..errors import ElmoError, Errors
from .encoder import BiLM
from .lm import LOGITS_BYTES, full_log_probabilities

#: Sentences that are sorted into batches together.
PIECE_SENTENCES = 8192
BOS, EOS, UNK = "<S>", "</S>", "<UNK>"


class SoftmaxWords:
    """Rows of the softmax by word.

    Text that is spelled like a special entry is not special: it scores as unknown.

    :param entries: Words with counts, in the order of the rows.
    :raises ElmoError: E058 if a boundary or the unknown word is missing.
    """

    def __init__(self, entries: Sequence[Tuple[str, int]]) -> None:
        self._ids = {word: k for k, (word, _) in enumerate(entries)}
        missing = [word for word in (BOS, EOS, UNK) if word not in self._ids]
        if missing:
            raise ElmoError(Errors.E058.format(missing=", ".join(missing)))
        self.bos, self.eos, self.unknown = (self._ids.pop(word) for word in (BOS, EOS, UNK))

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Row of each token, the unknown word's for those that have none."""
        return np.array([self._ids.get(token, self.unknown) for token in tokens], np.int64)


class SentenceScore(NamedTuple):
    """Log-probabilities of one sentence, in nats.

    :param forward: Of ``w1 … wn </S>`` given what stands before. *Shape:* ``(n + 1,)``
    :param backward: Of ``<S> w1 … wn`` given what stands behind. *Shape:* ``(n + 1,)``
    """

    forward: np.ndarray
    backward: np.ndarray


class Perplexity(NamedTuple):
    """Perplexities of a text, sentence boundaries scored, unknown words as ``<UNK>``.

    :param forward: exp of the mean loss from left to right.
    :param backward: The same from right to left.
    :param average: exp of the mean of both losses (the figure that is usually reported).
    :param n_tokens: Tokens scored, boundaries not counted.
    :param n_sentences: Sentences scored.
    :param oov_rate: Share of the tokens that the vocabulary lacks.
    :param n_words: Size of the vocabulary; perplexities of different ones do not compare.
    """

    forward: float
    backward: float
    average: float
    n_tokens: int
    n_sentences: int
    oov_rate: float
    n_words: int

    def to_dict(self) -> Dict[str, float]:
        """The values by name."""
        return dict(self._asdict())


def softmax_words(model: BiLM) -> SoftmaxWords:
    """The words that a model can predict.

    :raises ElmoError: E050 if the model has no softmax.
    """
    if model.softmax is None or model.vocabulary is None:
        raise ElmoError(Errors.E050)
    return SoftmaxWords(model.vocabulary)


def check_scorable(model: BiLM) -> None:
    """Check that the score of a sentence is its own, whatever was scored before or beside it.

    :raises ElmoError: E170 if states are carried on.
    """
    if model.config.initial_state == "carry":
        raise ElmoError(Errors.E170)


def score_sentences(
    model: BiLM,
    words: SoftmaxWords,
    sentences: Sequence[Sequence[str]],
    *,
    limit: int = LOGITS_BYTES,
) -> List[SentenceScore]:
    """Score a batch of sentences, each from the model's own initial state.

    :param model: A model with its softmax.
    :param words: What :func:`softmax_words` gives for the model.
    :param limit: Bytes of logits that may exist at once.
    :raises ElmoError: E050 if the model has no softmax.
    """
    if model.softmax is None:
        raise ElmoError(Errors.E050)
    if not sentences:
        return []
    with torch.no_grad():
        top = model(sentences)[-1]
        width = model.config.lstm.projection_dim
        sizes = np.array([len(s) + 2 for s in sentences])
        first = np.cumsum(sizes) - sizes
        keep = np.ones(int(sizes.sum()), bool)
        keep[first + sizes - 1] = False
        ids = [words.ids(s) for s in sentences]
        forward_targets = np.concatenate([np.concatenate((i, [words.eos])) for i in ids])
        backward_targets = np.concatenate([np.concatenate(([words.bos], i)) for i in ids])
        # The forward output at the last boundary and the backward one at the first predict
        # nothing that belongs to the sentence.
        rows = torch.from_numpy(np.flatnonzero(keep)).to(top.device)
        scores = []
        for hidden, targets in (
            (top[rows, :width], forward_targets),
            (top[rows + 1, width:], backward_targets),
        ):
            wanted = torch.from_numpy(targets.astype(np.int64)).to(top.device)
            scores.append(
                full_log_probabilities(hidden, model.softmax, wanted, limit).cpu().numpy()
            )
    cuts = np.cumsum(sizes - 1)[:-1]
    return [SentenceScore(*pair) for pair in zip(*(np.split(s, cuts) for s in scores))]


def perplexity(
    model: BiLM,
    sentences: Iterable[Sequence[str]],
    *,
    batch_tokens: int = 1024,
    executor: Optional[Executor] = None,
    progress: Optional[Callable[[int], object]] = None,
) -> Perplexity:
    """Perplexity of a text under the full softmax. The text is read in pieces, not kept.

    :param batch_tokens: Tokens that are scored at a time.
    :param executor: Scores batches in parallel, if given.
    :param progress: Told of the number of tokens of each batch that is scored.
    :raises ElmoError: E050 if the model has no softmax, E059 if there is no sentence, E170 if it
        carries states on.
    """
    words = softmax_words(model)
    check_scorable(model)

    def sums(batch: List[Sequence[str]]) -> List[float]:
        scores = score_sentences(model, words, batch)
        return [
            math.fsum(float(s.forward.sum(dtype=np.float64)) for s in scores),
            math.fsum(float(s.backward.sum(dtype=np.float64)) for s in scores),
            float(sum((words.ids(s) == words.unknown).sum() for s in batch)),
        ]

    parts: List[List[float]] = []
    n_tokens = n_sentences = 0
    rest = iter(sentences)
    while piece := list(itertools.islice(rest, PIECE_SENTENCES)):
        n_tokens += sum(len(s) for s in piece)
        n_sentences += len(piece)
        batches = list(_batches(piece, batch_tokens))
        scored = executor.map(sums, batches) if executor is not None else map(sums, batches)
        for batch, part in zip(batches, scored):
            parts.append(part)
            if progress is not None:
                progress(sum(map(len, batch)))
    if not parts:
        raise ElmoError(Errors.E059)
    forward, backward, oov = (math.fsum(column) for column in zip(*parts))
    n = n_tokens + n_sentences
    losses = (-forward / n, -backward / n, -(forward + backward) / (2 * n))
    values = [math.exp(loss) if loss < 700 else math.inf for loss in losses]
    assert model.softmax is not None  # or softmax_words had raised
    return Perplexity(
        values[0],
        values[1],
        values[2],
        n_tokens,
        n_sentences,
        oov / max(1, n_tokens),
        model.softmax.weight.shape[0],
    )


def _batches(
    sentences: Sequence[Sequence[str]], batch_tokens: int
) -> Iterator[List[Sequence[str]]]:
    batch: List[Sequence[str]] = []
    total = 0
    for sentence in sorted(sentences, key=len, reverse=True):
        if batch and total + len(sentence) + 2 > batch_tokens:
            yield batch
            batch, total = [], 0
        batch.append(sentence)
        total += len(sentence) + 2
    if batch:
        yield batch
