"""What every output format stores, and how tokens are written beside arrays."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ..errors import ElmoError, Errors

#: Name of what holds the tokens, a JSON object for each item and line.
TOKENS_NAME = "sentences.jsonl"
#: In the manifest of every output.
FORMAT_NAME = "spacy-elmo-embeddings"
FORMAT_VERSION = 1

#: Facts about an output; JSON-ready.
Manifest = Dict[str, Any]


@dataclass(frozen=True, eq=False)
class Stored:
    """An item with its vectors.

    index (int): Number of the item (the line or doc) in the whole input.
    vectors (ndarray): *(L + 1, n_tokens, width)* or *(n_tokens, width)*.
    tokens (Optional[List[str]]): One for each row; None if tokens are not stored.
    text (Optional[str]): The item's text; None if it is not stored.
    """

    index: int
    vectors: np.ndarray
    tokens: Optional[List[str]]
    text: Optional[str]


class Reader:
    """Items of one file or folder.

    path (Path): The file or folder.
    manifest (Manifest): Facts about it; "n_items", "n_total" and "shard" at least.
    """

    path: Path
    manifest: Manifest

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, position: int) -> Stored:
        """The item at a position from 0."""
        raise NotImplementedError

    def find(self, text: str) -> Optional[int]:
        """Index of a sentence by its text, None if it is not there.

        :raises ElmoError: E138 if there is no map of the sentences.
        """
        problem = "it has no sentence_to_index, so sentences can only be found by their number"
        raise ElmoError(Errors.E138.format(path=self.path, problem=problem))

    def close(self) -> None:
        """Close what is open."""


#: Opens the items of an output that is to be written, as often as it is called.
Source = Callable[[], Iterator[Stored]]


def to_json(tokens: List[str], text: str) -> str:
    """Tokens and text on a line; the text only where it is not the tokens with spaces between."""
    record: Dict[str, Any] = {"tokens": tokens}
    if text != " ".join(tokens):
        record["text"] = text
    return json.dumps(record)


def from_json(line: str) -> Tuple[List[str], str]:
    """Tokens and text of such a line."""
    record = json.loads(line)
    tokens = record["tokens"]
    return tokens, record.get("text", " ".join(tokens))
