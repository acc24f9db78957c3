"""Linear probes: how well a label of a token can be read off each layer's vectors.

The probe is multinomial logistic regression, the common choice (Belinkov et al. 2017; Peters et
al. 2018, section 5.3 probes parts of speech so), which can find only what is linearly there. It is
fitted with PyTorch's L-BFGS over all training tokens at once: the problem is convex, so there is
one solution and no learning rate, order or seed to choose; ridge regression on one-hot labels
would need only one solve, but fits squares to labels, which probes worse. A further package for
this one function would not pay.
"""

from collections import Counter, defaultdict
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from ..errors import ElmoError, Errors
from .encoders import Encoder
from .occurrences import PIECE_SENTENCES
from .tagged_text import TaggedSentence

BASELINE = "most frequent label of the word"


class ProbeResult(NamedTuple):
    """How one view does.

    :param name: The baseline, or a view of the encoder.
    :param accuracy: On all test tokens, 0 to 1.
    :param unseen: On test tokens whose word is not in the training text; NaN if there are none.
    :param seen_ambiguous: On test tokens whose word has several labels there.
    :param l2: Penalty that was chosen on the held-out part; 0 for the baseline.
    :param correct: Whether each test token was right. *Shape:* ``(n_test,)``, bool
    """

    name: str
    accuracy: float
    unseen: float
    seen_ambiguous: float
    l2: float
    correct: np.ndarray


class ProbeEvaluation(NamedTuple):
    """Results, the baseline first, and the sizes.

    :param results: The baseline, then each view.
    :param n_labels: Different labels in training.
    :param n_train: Training tokens.
    :param n_test: Test tokens.
    :param n_unseen: Test tokens whose word is not in the training text.
    :param n_seen_ambiguous: Test tokens whose word has several labels in the training text.
    """

    results: List[ProbeResult]
    n_labels: int
    n_train: int
    n_test: int
    n_unseen: int
    n_seen_ambiguous: int


class LinearProbe:
    """Multinomial logistic regression with an L2 penalty on the weights, on standardised input.

    :param l2: Penalty: the mean loss has ``l2 / 2 · ‖W‖²`` added.
    :param max_steps: Steps of L-BFGS at most.
    """

    def __init__(self, l2: float, max_steps: int = 100) -> None:
        self.l2 = l2
        self.max_steps = max_steps

    def fit(self, x: np.ndarray, y: np.ndarray, n_labels: int) -> "LinearProbe":
        """Fit to vectors ``(n, width)`` and labels ``(n,)`` from 0 to `n_labels` - 1."""
        self.mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = x.std(axis=0, dtype=np.float64).astype(np.float32)
        self.scale = np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32)
        inputs, targets = torch.from_numpy(self._standard(x)), torch.from_numpy(y)
        self.weight = inputs.new_zeros(n_labels, x.shape[1], requires_grad=True)
        self.bias = inputs.new_zeros(n_labels, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias],
            max_iter=self.max_steps,
            tolerance_grad=1e-5,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(inputs @ self.weight.t() + self.bias, targets)
            loss = loss + 0.5 * self.l2 * self.weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Label of each vector. *Shape:* ``(n, width)`` to ``(n,)``"""
        with torch.no_grad():
            logits = torch.from_numpy(self._standard(x)) @ self.weight.t() + self.bias
            labels: np.ndarray = logits.argmax(1).numpy()
        return labels

    def _standard(self, x: np.ndarray) -> np.ndarray:
        standard: np.ndarray = (x - self.mean) / self.scale
        return standard


def take_tokens(
    sentences: Sequence[TaggedSentence], n_tokens: int, seed: int = 0
) -> List[TaggedSentence]:
    """Random sentences with about `n_tokens` tokens; all of them for 0."""
    if n_tokens <= 0:
        return list(sentences)
    chosen, total = [], 0
    for i in np.random.default_rng(seed).permutation(len(sentences)):
        if total >= n_tokens:
            break
        chosen.append(int(i))
        total += len(sentences[i].tokens)
    return [sentences[i] for i in sorted(chosen)]


def evaluate_probe(
    encoder: Encoder,
    train: Sequence[TaggedSentence],
    heldout: Sequence[TaggedSentence],
    test: Sequence[TaggedSentence],
    *,
    views: Sequence[str],
    l2: Sequence[float] = (1e-4, 1e-3, 1e-2),
    progress: bool = False,
) -> ProbeEvaluation:
    """Probe every view for the labels of tokens.

    The vectors of all texts are held in memory: tokens × layers × width × 4 bytes.

    :param heldout: What the penalty is chosen on.
    :param views: Views to probe, see :class:`Encoder`.
    :param l2: Penalties to choose from.
    :param progress: Show bars on a terminal.
    :raises ElmoError: E144 if there are not two labels at least, or no penalty.
    """
    words, labels = _flatten(train)
    test_words, test_labels = _flatten(test)
    names = sorted(set(labels))
    numbers = {name: i for i, name in enumerate(names)}
    if len(names) < 2:
        expected = "at least 2 different labels in the training text"
        raise ElmoError(Errors.E144.format(name="labels", found=names, expected=expected))
    if not l2:
        raise ElmoError(Errors.E144.format(name="l2", found=l2, expected="at least one penalty"))
    counts: Dict[str, Counter] = defaultdict(Counter)
    for word, label in zip(words, labels):
        counts[word][label] += 1
    commonest = max(sorted(set(labels)), key=Counter(labels).__getitem__)
    unseen = np.array([word not in counts for word in test_words])
    ambiguous = np.array([len(counts.get(word, ())) > 1 for word in test_words])
    truth = np.array(test_labels)

    def result(name: str, guessed: Iterable[str], penalty: float) -> ProbeResult:
        correct = np.array(list(guessed)) == truth
        return ProbeResult(
            name,
            _mean(correct),
            _mean(correct[unseen]),
            _mean(correct[ambiguous]),
            penalty,
            correct,
        )

    by_word = {w: max(sorted(c), key=c.__getitem__) for w, c in counts.items()}
    results = [result(BASELINE, (by_word.get(w, commonest) for w in test_words), 0.0)]
    y = np.array([numbers[label] for label in labels])
    # A label that training does not have is never right; it gets a number that is no label's.
    held = np.array([numbers.get(label, -1) for label in _flatten(heldout)[1]])
    layers = [_embed(encoder, part, progress) for part in (train, heldout, test)]
    hidden = None if progress else True
    for view in tqdm(views, desc="Fitting probes", leave=False, disable=hidden):
        x, x_held, x_test = (encoder.view(part, view) for part in layers)
        probes = [LinearProbe(penalty).fit(x, y, len(names)) for penalty in l2]
        scores = [float((probe.predict(x_held) == held).mean()) for probe in probes]
        best = probes[int(np.argmax(scores))]
        results.append(result(view, (names[i] for i in best.predict(x_test)), best.l2))
    return ProbeEvaluation(
        results, len(names), len(y), len(truth), int(unseen.sum()), int(ambiguous.sum())
    )


def _mean(correct: np.ndarray) -> float:
    return float(correct.mean()) if len(correct) else float("nan")


def _flatten(sentences: Sequence[TaggedSentence]) -> Tuple[List[str], List[str]]:
    """Words and labels of all labelled tokens."""
    pairs = [
        (word, label)
        for sentence in sentences
        for word, label in zip(sentence.tokens, sentence.labels)
        if label is not None
    ]
    return [word for word, _ in pairs], [label for _, label in pairs]


def _embed(encoder: Encoder, sentences: Sequence[TaggedSentence], progress: bool) -> np.ndarray:
    """Layers of all labelled tokens. *Shape:* ``(L + 1, n_tokens, width)``"""
    parts = []
    starts = range(0, len(sentences), PIECE_SENTENCES)
    hidden = None if progress else True
    for start in tqdm(starts, desc="Embedding", leave=False, disable=hidden):
        piece = sentences[start : start + PIECE_SENTENCES]
        for sentence, layers in zip(piece, encoder.bilm.embed([s.tokens for s in piece])):
            kept = [i for i, label in enumerate(sentence.labels) if label is not None]
            parts.append(layers[:, kept])
    return np.concatenate(parts, axis=1)
