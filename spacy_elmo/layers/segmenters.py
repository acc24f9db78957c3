"""Segmenters: which tokens of a doc are encoded together as a sentence.

The default looks at the tokens' texts alone. Docs in training carry no sentence boundaries while
docs at prediction may, so a segmenter that reads `doc.sents` shows the encoder different input in
the two.
"""

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from spacy.attrs import IS_SPACE
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc

from ..errors import ElmoError, Errors

SpansT = List[Tuple[int, int]]
SegmenterT = Callable[[Sequence[Doc]], List[SpansT]]


class Sentence(NamedTuple):
    """What is encoded together: the words of a stretch of a doc, without its whitespace tokens.

    doc (int): Number of the doc among those that were cut.
    indices (ndarray): The words' places in the doc. *(n_words,)*
    words (List[str]): Their texts.
    """

    doc: int
    indices: np.ndarray
    words: List[str]


def sentences_of(docs: Sequence[Doc], segmenter: SegmenterT) -> List[Sentence]:
    """Cut docs into sentences; whitespace tokens, and sentences of nothing else, are left out.

    docs (Sequence[Doc]): The docs, which are not changed.
    segmenter (SegmenterT): Says where they are cut.
    RETURNS (List[Sentence]): The sentences of all docs, in order.
    """
    found: List[Sentence] = []
    for number, (doc, spans) in enumerate(zip(docs, segmenter(docs))):
        # By columns: an attribute of one token after another takes longer than all the rest.
        texts = [token.text for token in doc]
        is_word = doc.to_array(IS_SPACE) == 0
        for start, stop in spans:
            indices = np.flatnonzero(is_word[start:stop]) + start
            if len(indices):
                found.append(Sentence(number, indices, [texts[i] for i in indices.tolist()]))
    return found


def punct_segmenter(docs: Sequence[Doc]) -> List[SpansT]:
    """Cut behind sentence-final punctuation (spaCy's list for all languages) and at blank lines.

    docs (Sequence[Doc]): The docs, which are not changed.
    RETURNS (List[List[Tuple[int, int]]]): First token and the one behind the last, for each
        sentence of each doc; together they cover the doc.
    """
    spans = []
    for doc, starts in zip(docs, Sentencizer().predict(docs)):
        cuts = [i for i, start in enumerate(starts) if start and i > 0]
        spaces = np.flatnonzero(doc.to_array(IS_SPACE)).tolist()
        cuts += [i + 1 for i in spaces if doc[i].text.count("\n") > 1 and i + 1 < len(doc)]
        spans.append(_between(sorted(set(cuts)), len(doc)))
    return spans


def doc_sents_segmenter(docs: Sequence[Doc]) -> List[SpansT]:
    """Take the docs' own sentences.

    In training they are only there if the component that sets them is among the
    `annotating_components`; where they are missing this raises rather than encode other input.

    docs (Sequence[Doc]): The docs, which are not changed.
    RETURNS (List[List[Tuple[int, int]]]): As `punct_segmenter`.
    """
    spans = []
    for doc in docs:
        if len(doc) > 1 and not doc.has_annotation("SENT_START"):
            raise ElmoError(Errors.E100.format(text=doc.text[:40]))
        spans.append([(sent.start, sent.end) for sent in doc.sents] if len(doc) else [])
    return spans


def whole_doc_segmenter(docs: Sequence[Doc]) -> List[SpansT]:
    """Take every doc as one sentence."""
    return [[(0, len(doc))] if len(doc) else [] for doc in docs]


def build_punct_segmenter_v1() -> SegmenterT:
    """Build the default segmenter, see `punct_segmenter`."""
    return punct_segmenter


def build_doc_sents_segmenter_v1() -> SegmenterT:
    """Build a segmenter that goes by `doc.sents`, see `doc_sents_segmenter`."""
    return doc_sents_segmenter


def build_whole_doc_segmenter_v1() -> SegmenterT:
    """Build a segmenter that cuts nothing, see `whole_doc_segmenter`."""
    return whole_doc_segmenter


def _between(cuts: List[int], length: int) -> SpansT:
    edges = [0, *cuts, length]
    return [(a, b) for a, b in zip(edges, edges[1:]) if b > a]


#: Built-in segmenters by name, for a model that has to remember its own in bytes.
NAMED = {
    "spacy-elmo.punct_segmenter.v1": punct_segmenter,
    "spacy-elmo.doc_sents_segmenter.v1": doc_sents_segmenter,
    "spacy-elmo.whole_doc_segmenter.v1": whole_doc_segmenter,
}


def segmenter_name(segmenter: SegmenterT) -> Optional[str]:
    """Registered name of a built-in segmenter, None for one of the user's own."""
    return next((name for name, function in NAMED.items() if function is segmenter), None)
