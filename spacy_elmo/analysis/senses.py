"""Word-sense disambiguation by nearest neighbour, layer by layer.

A token gets the sense of the most similar tagged occurrence of the same word (Melamud et al. 2016;
Peters et al. 2018, section 5.3, use averages of a sense's occurrences). Nothing is trained, so
what is measured is what the vectors hold. Only words that are known with several senses ask
anything of the vectors; the others would get the same answer from any model.
"""

from collections import Counter, defaultdict
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from .encoders import Encoder
from .occurrences import PIECE_SENTENCES, unit
from .tagged_text import TaggedSentence

#: Cosines that differ by less are taken as equal; the layer of characters gives equal vectors.
_TIE = 1e-5
BASELINE = "most frequent sense"


class Item(NamedTuple):
    """A tagged token.

    :param word: The token in lower case: what decides which occurrences are compared.
    :param sense: Its tag.
    :param sentence: Number of its sentence.
    """

    word: str
    sense: str
    sentence: int


class SenseResult(NamedTuple):
    """Accuracy of one way to choose senses.

    :param name: "most frequent sense", or a view of the encoder.
    :param correct: Whether each of the asked tokens got its sense. *Shape:* ``(n_asked,)``, bool
    :param kinds: Kind of each asked token: its sense before the first dot (``n`` of
        ``n.FOOD``), "" where there is no dot.
    """

    name: str
    correct: np.ndarray
    kinds: List[str]

    def accuracy(self, kind: Optional[str] = None) -> float:
        """Share of correct answers, of all or of one kind; NaN if there is none."""
        chosen = self.correct[[kind is None or k == kind for k in self.kinds]]
        return float(chosen.mean()) if len(chosen) else float("nan")


class SenseEvaluation(NamedTuple):
    """Results, the baseline first, and how many tokens there were.

    :param results: The baseline, then each view.
    :param n_tagged: Tagged tokens of the test text.
    :param n_known: Of these, tokens whose word is tagged in the reference text.
    :param n_asked: Of these, tokens whose word has several senses there; the results are on these.
    """

    results: List[SenseResult]
    n_tagged: int
    n_known: int
    n_asked: int


def embed_items(
    encoder: Encoder,
    sentences: Sequence[TaggedSentence],
    views: Sequence[str],
    *,
    progress: bool = False,
) -> Tuple[List[Item], Dict[str, np.ndarray]]:
    """Tagged tokens and their unit vectors by view. *Shape:* ``(n_items, width)`` each"""
    items: List[Item] = []
    rows: Dict[str, List[np.ndarray]] = {view: [] for view in views}
    starts = range(0, len(sentences), PIECE_SENTENCES)
    hidden = None if progress else True
    for start in tqdm(starts, desc="Embedding", leave=False, disable=hidden):
        piece = sentences[start : start + PIECE_SENTENCES]
        embedded = encoder.bilm.embed([s.tokens for s in piece])
        for number, (sentence, layers) in enumerate(zip(piece, embedded), start):
            places = [i for i, label in enumerate(sentence.labels) if label is not None]
            for i in places:
                label = sentence.labels[i]
                assert label is not None
                items.append(Item(sentence.tokens[i].lower(), label, number))
            for view in views:
                rows[view].append(encoder.view(layers[:, places], view))
    return items, {view: unit(np.concatenate(arrays)) for view, arrays in rows.items()}


def evaluate_senses(
    encoder: Encoder,
    reference: Sequence[TaggedSentence],
    test: Optional[Sequence[TaggedSentence]] = None,
    *,
    views: Sequence[str],
    k: int = 1,
    progress: bool = False,
) -> SenseEvaluation:
    """Disambiguate the tokens of a test text by the occurrences of a reference text.

    :param reference: Tagged sentences that are compared with.
    :param test: Tagged sentences to disambiguate. None to leave one out: every sentence of the
        reference is disambiguated by all other ones.
    :param views: Views to evaluate, see :class:`Encoder`.
    :param k: Nearest occurrences that vote; ties go to the sense that is more frequent.
    :param progress: Show a bar on a terminal.
    """
    known, vectors = embed_items(encoder, reference, views, progress=progress)
    if test is None:
        asked_items, asked_vectors = known, vectors
    else:
        asked_items, asked_vectors = embed_items(encoder, test, views, progress=progress)
    places: Dict[str, List[int]] = defaultdict(list)
    for i, item in enumerate(known):
        places[item.word].append(i)
    overall = Counter(item.sense for item in known)
    n_known = 0
    kinds: List[str] = []
    answers: Dict[str, List[bool]] = {name: [] for name in (BASELINE, *views)}
    for number, item in enumerate(asked_items):
        rows = places.get(item.word, [])
        if test is None:
            rows = [i for i in rows if known[i].sentence != item.sentence]
        n_known += bool(rows)
        counts = Counter(known[i].sense for i in rows)
        if len(counts) < 2:
            continue
        kinds.append(item.sense.partition(".")[0] if "." in item.sense else "")
        # Most frequent with the word, then over all words, then by name, so that nothing hangs
        # on the order of a file.
        rank = {s: (count, overall[s], s) for s, count in counts.items()}
        answers[BASELINE].append(max(counts, key=rank.__getitem__) == item.sense)
        for view in views:
            cosines = vectors[view][rows] @ asked_vectors[view][number]
            limit = np.sort(cosines)[-min(k, len(cosines))] - _TIE
            votes = Counter(known[i].sense for i, c in zip(rows, cosines) if c >= limit)
            best = max(votes, key=lambda sense: (votes[sense], *rank[sense]))
            answers[view].append(best == item.sense)
    results = [SenseResult(name, np.array(a, bool), kinds) for name, a in answers.items()]
    return SenseEvaluation(results, len(asked_items), n_known, len(kinds))
