"""A biLM as a language model: which words a context leads to expect, from either side or both."""

from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from ..errors import ElmoError, Errors
from .encoder import BiLM
from .scoring import SentenceScore, check_scorable, score_sentences, softmax_words
from .sentences import batches_by_length, check_sentences


class Candidate(NamedTuple):
    """A word that could stand at a place.

    :param word: The word, as the vocabulary spells it.
    :param log_prob: Its log-probability there, in nats.
    """

    word: str
    log_prob: float


class TopK(NamedTuple):
    """The likeliest words at one place, by each direction alone, best first.

    :param forward: Given the words before the place.
    :param backward: Given the words behind it.
    """

    forward: List[Candidate]
    backward: List[Candidate]


class Substitute(NamedTuple):
    """A word in the place of another.

    :param word: The word, as the vocabulary spells it.
    :param log_prob: By both directions combined, over the whole vocabulary, in nats.
    :param forward: By the words before alone, in nats.
    :param backward: By the words behind alone, in nats.
    """

    word: str
    log_prob: float
    forward: float
    backward: float


class LanguageModel:
    """What a biLM with its softmax says of words in sentences.

    A biLM is two language models that share words and softmax (Peters et al. 2018, section
    3.1): one predicts each word from those before it, the other from those behind it. A
    sentence is everything that either knows. Words outside of the vocabulary are scored as
    ``<UNK>``, whose probability is that of all such words together: it says nothing of the one
    word, so it is flagged where it counts.

    :param bilm: A model that was loaded with its softmax.
    :raises ElmoError: E050 if the model has no softmax, E058 if its vocabulary lacks the special
        entries, E170 if it carries states on.
    """

    def __init__(self, bilm: BiLM) -> None:
        self.bilm = bilm
        self.words = softmax_words(bilm)
        check_scorable(bilm)

    @classmethod
    def load(cls, path: Union[str, Path], **kwargs: Any) -> "LanguageModel":
        """Load a built-in model by name, or one from files, with its softmax.

        :raises ElmoError: E050 if there is no softmax, E058, E170, and what :meth:`BiLM.load`
            raises.
        """
        return cls(BiLM.load(path, softmax=True, **kwargs))

    def is_unknown(self, tokens: Sequence[str]) -> np.ndarray:
        """Whether each token is scored as ``<UNK>``. *Shape:* ``(n_tokens,)``, bool"""
        unknown: np.ndarray = self.words.ids(tokens) == self.words.unknown
        return unknown

    def score(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        batch_tokens: int = 1024,
        progress: Optional[Callable[[int], object]] = None,
    ) -> List[SentenceScore]:
        """Log-probability of every word, and of each sentence's end and beginning, in nats.

        :param batch_tokens: Tokens that are scored at a time; bounds memory, not results.
        :param progress: Told of the number of tokens of each batch that is scored.
        :raises ElmoError: E001, E002, E003 if the input is not a list of lists of strings.
        """
        check_sentences(sentences)
        results: List[Optional[SentenceScore]] = [None] * len(sentences)
        for group in batches_by_length(sentences, batch_tokens):
            scores = score_sentences(self.bilm, self.words, [sentences[i] for i in group])
            for i, score in zip(group, scores):
                results[i] = score
            if progress is not None:
                progress(sum(len(sentences[i]) for i in group))
        return [r for r in results if r is not None]

    def next_words(self, tokens: Sequence[str], k: int = 10) -> List[Candidate]:
        """Likeliest words behind the beginning of a sentence (forward direction).

        The list may have ``</S>``: the sentence ends here.

        :param tokens: The sentence so far; may be empty.
        :param k: How many.
        :raises ElmoError: E144 if `k` is less than one.
        """
        log_probs = self._distributions(tokens, len(tokens))[0]
        return self._best(log_probs, k, [self.words.bos, self.words.unknown])

    def previous_words(self, tokens: Sequence[str], k: int = 10) -> List[Candidate]:
        """Likeliest words before the end of a sentence (backward direction).

        The list may have ``<S>``: the sentence begins here.

        :param tokens: The rest of the sentence; may be empty.
        :param k: How many.
        :raises ElmoError: E144 if `k` is less than one.
        """
        log_probs = self._distributions(tokens, -1)[1]
        return self._best(log_probs, k, [self.words.eos, self.words.unknown])

    def top_k(self, tokens: Sequence[str], position: int, k: int = 10) -> TopK:
        """Likeliest words in the place of one, by either direction; the word itself is not seen.

        :param tokens: The whole sentence.
        :param position: Index of the place, from 0.
        :param k: How many for each direction.
        :raises ElmoError: E140 if there is no such place, E144 if `k` is less than one.
        """
        _check_position(tokens, position)
        forward, backward = self._distributions(tokens, position)
        special = [self.words.bos, self.words.eos, self.words.unknown]
        return TopK(self._best(forward, k, special), self._best(backward, k, special))

    def substitutes(
        self,
        tokens: Sequence[str],
        position: int,
        k: int = 10,
        *,
        prior_power: float = 0.0,
        keep_original: bool = False,
    ) -> List[Substitute]:
        """Words that fit the place of one, by what stands before and behind.

        Both directions are multiplied and normalised over the vocabulary:
        ``p(w) ∝ p_forward(w | before) · p_backward(w | behind) / p(w)^prior_power``.

        The limits: the two directions were trained apart and never saw both sides at once. The
        product is what Bayes' rule gives if the sides are independent given the word and
        `prior_power` is 1, with the word's frequency in training for ``p(w)``; without that
        division (0) frequency counts twice, which favours common words, while at 1 rare words
        come up whose small probabilities are badly estimated. Values between are a compromise.
        Fitting the place does not mean having the same meaning: "hot" fits where "cold" stood.

        :param tokens: The whole sentence.
        :param position: Index of the place, from 0.
        :param k: How many.
        :param prior_power: Power of the word's frequency that is divided out, 0 to 1.
        :param keep_original: Whether the word that stands there may be among them.
        :raises ElmoError: E140 if there is no such place, E144 if a number is out of range.
        """
        _check_position(tokens, position)
        if not 0.0 <= prior_power <= 1.0:
            raise ElmoError(
                Errors.E144.format(name="prior_power", found=prior_power, expected="from 0 to 1")
            )
        forward, backward = self._distributions(tokens, position)
        combined = forward + backward
        if prior_power:
            assert self.bilm.vocabulary is not None  # or there were no softmax
            counts = combined.new_tensor([count + 1.0 for _, count in self.bilm.vocabulary])
            prior = (counts / counts.sum()).log()
            combined = combined - prior_power * prior
        combined = combined.log_softmax(0)
        left_out = [self.words.bos, self.words.eos, self.words.unknown]
        if not keep_original:
            left_out += self.words.ids([tokens[position]]).tolist()
        found = self._best_rows(combined, k, left_out)
        return [
            Substitute(
                self._spelling(row), float(combined[row]), float(forward[row]), float(backward[row])
            )
            for row in found
        ]

    # -- inside --------------------------------------------------------------------------

    @torch.no_grad()
    def _distributions(self, tokens: Sequence[str], position: int) -> Tuple[Tensor, Tensor]:
        """Log-probabilities of all words at a place, by each direction. *(V,)* each.

        At the place behind the last token (before the first, at -1) only the forward (backward)
        one means anything; the other is not computed, and empty.
        """
        check_sentences([tokens])
        softmax = self.bilm.softmax
        assert softmax is not None  # or softmax_words had raised
        top = self.bilm([tokens])[-1]
        width = self.bilm.config.lstm.projection_dim
        outputs = []
        # Counted with the boundary in front, the word at the place is number position + 1.
        for row, hidden in ((position, top[:, :width]), (position + 2, top[:, width:])):
            if 0 <= row < len(top) and -1 <= position <= len(tokens):
                logits = torch.addmv(softmax.bias, softmax.weight, hidden[row])
                outputs.append(logits.log_softmax(0))
            else:
                outputs.append(top.new_empty(0))
        return outputs[0], outputs[1]

    def _best(self, log_probs: Tensor, k: int, left_out: Sequence[int]) -> List[Candidate]:
        rows = self._best_rows(log_probs, k, left_out)
        return [Candidate(self._spelling(row), float(log_probs[row])) for row in rows]

    def _best_rows(self, log_probs: Tensor, k: int, left_out: Sequence[int]) -> List[int]:
        if k < 1:
            raise ElmoError(Errors.E144.format(name="k", found=k, expected="at least 1"))
        masked = log_probs.clone()
        masked[list(left_out)] = float("-inf")
        values, rows = masked.topk(min(k, len(masked)))
        return [int(row) for row, value in zip(rows, values) if value > float("-inf")]

    def _spelling(self, row: int) -> str:
        assert self.bilm.vocabulary is not None  # or there were no softmax
        return self.bilm.vocabulary[row][0]


def _check_position(tokens: Sequence[str], position: int) -> None:
    if not 0 <= position < len(tokens):
        raise ElmoError(Errors.E140.format(found=position, n=len(tokens)))
