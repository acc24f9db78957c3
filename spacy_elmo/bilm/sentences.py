"""Sentences as callers give them: checks, and batches of similar length."""

from typing import Iterator, List, Sequence

from ..errors import ElmoError, Errors


def check_sentences(sentences: Sequence[Sequence[str]]) -> None:
    """Check that the input is a list of lists of strings.

    :raises ElmoError: E001 for text or single sentences, E002 for tokens of another type, E003
        for anything else that is no sequence.
    """
    if isinstance(sentences, (str, bytes)):
        found = f"part of the {_describe(sentences)}"
        raise ElmoError(Errors.E001.format(index=0, found=found))
    if not isinstance(sentences, Sequence):
        raise ElmoError(Errors.E003.format(found=_describe(sentences)))
    for i, sentence in enumerate(sentences):
        if isinstance(sentence, (str, bytes)) or not isinstance(sentence, Sequence):
            raise ElmoError(Errors.E001.format(index=i, found=_describe(sentence)))
        for j, token in enumerate(sentence):
            if not isinstance(token, str):
                raise ElmoError(Errors.E002.format(sentence=i, token=j, found=_describe(token)))


def _describe(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}"


def batches_by_length(sentences: Sequence[Sequence[str]], batch_tokens: int) -> Iterator[List[int]]:
    """Indices of sentences in batches of similar length and of a bounded number of tokens."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]), reverse=True)
    group: List[int] = []
    tokens = 0
    for i in order:
        size = len(sentences[i]) + 2
        if group and tokens + size > batch_tokens:
            yield group
            group, tokens = [], 0
        group.append(i)
        tokens += size
    if group:
        yield group
