"""What is embedded: the lines of a text or JSONL file, or the docs of a DocBin, one by one.

Unlike the trainer's readers nothing is left out, since item i of the output is line i of the
input: blank lines are items without tokens, and duplicates stay.
"""

import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

from ..errors import ElmoError, Errors
from ..training.readers import MAX_LINE_BYTES, decode, input_format, read_lines
from .tokenizing import Tokenizer, read_docs

#: Texts that are tokenised at a time.
BATCH = 64


@dataclass(frozen=True)
class Item:
    """A line or doc.

    index (int): Its number in the input, from 0.
    text (str): Its text without whitespace around it.
    tokens (List[str]): One for each row of its vectors.
    sentences (List[List[int]]): Which tokens are encoded together. Those in none are whitespace;
        their rows are zero, as in the spaCy component.
    """

    index: int
    text: str
    tokens: List[str]
    sentences: List[List[int]]


def read_items(
    path: Union[str, Path],
    tokenizer: Optional[Tokenizer] = None,
    wanted: Callable[[int], bool] = lambda index: True,
) -> Iterator[Item]:
    """Stream the items of a file.

    ============  ==================================================================================
    extension     items
    ============  ==================================================================================
    ``.jsonl``    lines. ``{"text": ...}`` is tokenised; ``{"tokens": [...]}`` is a sentence as it
                  is.
    ``.spacy``    docs of a DocBin, which is loaded whole. The tokenizer's segmenter cuts them.
    all others    lines: a sentence with whitespace between the tokens, or raw text, if there is a
                  tokenizer that cuts texts.
    ============  ==================================================================================

    Text and JSONL may be compressed (``.gz``, ``.xz``). Whitespace is what `str.split` takes for
    it, as in AllenNLP.

    :param path: The file.
    :param tokenizer: Cuts raw text to tokens and sentences. Lines of tokens are a sentence each.
    :param wanted: Says by its number whether an item is wanted; others are not even decoded.
    :raises ElmoError: E060, E061, E062, E073 for paths that cannot be read, E162 for lines whose
        sentences nothing has set, though the segmenter "sents" goes by them; while iterating E064
        to E079 for the first thing that is wrong with the content.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise ElmoError(Errors.E061.format(path=path))
    if not path.exists():
        raise ElmoError(Errors.E060.format(path=path, cwd=Path.cwd()))
    kind = input_format(path)
    if kind == "docbin":
        return _docbin_items(path, tokenizer or Tokenizer(), wanted)
    lines = _text_lines(path, wanted) if kind == "text" else _jsonl_lines(path, wanted)
    if tokenizer is not None and tokenizer.segmenter == "sents" and not tokenizer.cuts_text:
        raise ElmoError(Errors.E162.format(path=path))
    if tokenizer is not None and tokenizer.cuts_text:
        return _tokenised(path, lines, tokenizer)
    return _as_they_are(path, lines, raw=kind == "jsonl")


def count_items(path: Union[str, Path]) -> int:
    """Number of items of a file, without tokenising anything.

    :raises ElmoError: As `read_items`.
    """
    path = Path(path)
    if input_format(path) == "docbin":
        return sum(1 for _ in read_docs(path))
    return sum(1 for _ in read_lines(path, MAX_LINE_BYTES[input_format(path)]))


def _docbin_items(
    path: Path, tokenizer: Tokenizer, wanted: Callable[[int], bool]
) -> Iterator[Item]:
    for index, doc in enumerate(read_docs(path)):
        if wanted(index):
            yield Item(index, doc.text.strip(), *tokenizer.cut_docs([doc])[0])


#: A line's number from 0, and its content: text, or tokens.
Line = Tuple[int, Union[str, List[str]]]


def _text_lines(path: Path, wanted: Callable[[int], bool]) -> Iterator[Line]:
    for number, line in read_lines(path, MAX_LINE_BYTES["text"]):
        if wanted(number - 1):
            yield number - 1, decode(line, line, path, number).strip()


def _jsonl_lines(path: Path, wanted: Callable[[int], bool]) -> Iterator[Line]:
    for number, line in read_lines(path, MAX_LINE_BYTES["jsonl"]):
        if not wanted(number - 1):
            continue
        text = decode(line, line, path, number)
        if not text.strip():
            yield number - 1, []
            continue
        try:
            content = _content(json.loads(text))
            # JSON can spell half of a surrogate pair, which is no text in any encoding.
            "".join(content).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as err:
            raise ElmoError(Errors.E068.format(path=path, line=number, reason=err)) from err
        yield number - 1, content


def _content(record: Any) -> Union[str, List[str]]:
    if not isinstance(record, dict):
        raise TypeError(f"the line holds a {type(record).__name__}")
    tokens, text = record.get("tokens"), record.get("text")
    if isinstance(tokens, list):
        for token in tokens:
            if not isinstance(token, str):
                raise TypeError(f'"tokens" contains {token!r}')
        return tokens
    if not isinstance(text, str):
        found = ", ".join(f'"{key}"' for key in list(record)[:5]) or "no keys"
        raise TypeError(f"the object has {found}")
    return text.strip()


def _as_they_are(path: Path, lines: Iterator[Line], raw: bool) -> Iterator[Item]:
    for index, content in lines:
        if isinstance(content, list):
            yield _sentence(index, " ".join(content).strip(), content)
        elif raw:
            raise ElmoError(Errors.E069.format(path=path, line=index + 1))
        else:
            yield _sentence(index, content, content.split())


def _sentence(index: int, text: str, tokens: List[str]) -> Item:
    places = [i for i, token in enumerate(tokens) if token and not token.isspace()]
    return Item(index, text, tokens, [places] if places else [])


def _tokenised(path: Path, lines: Iterator[Line], tokenizer: Tokenizer) -> Iterator[Item]:
    while batch := list(itertools.islice(lines, BATCH)):
        texts = [(index + 1, text) for index, text in batch if isinstance(text, str)]
        cut = iter(tokenizer.cut(path, texts))
        for index, content in batch:
            if isinstance(content, list):
                yield _sentence(index, " ".join(content).strip(), content)
            else:
                yield Item(index, content, *next(cut))
