"""Writing the data files of a prepared corpus. Their layout is described in :mod:`.corpus`."""

from collections import Counter
from pathlib import Path
from typing import BinaryIO, Callable, Dict, List, Optional

import numpy as np

DATA_FILES = ("sentences.txt", "offsets.bin", "lengths.bin", "documents.bin", "counts.tsv")

OFFSET_DTYPE = np.dtype("<i8")
LENGTH_DTYPE = np.dtype("<u2")
FLAG_DTYPE = np.dtype("u1")

# Sentences whose output is gathered before it is written.
_CHUNK = 2048
# Dropping rare types brings the table down to this part, or it would be done for every word.
_KEEP_AFTER_PRUNING = 0.75
_PROGRESS_EVERY = 50_000

Progress = Callable[[int, int], None]


class CorpusWriter:
    """Write the data files of a prepared corpus and count, with memory flat in the sentences.

    A context manager; leaving it without an exception completes the files.

    :param paths:
        Where to write each of :data:`DATA_FILES`.
    :param max_sentence_length:
        Tokens from which on a sentence is cut.
    :param max_types:
        Types held at a time before rare ones are dropped.
    :param progress:
        Called now and then, and at the end, with the numbers of sentences and tokens so far.
    """

    def __init__(
        self,
        paths: Dict[str, Path],
        max_sentence_length: int,
        max_types: int,
        progress: Optional[Progress],
    ) -> None:
        self.paths = paths
        self.max_sentence_length = max_sentence_length
        self.max_types = max_types
        self.progress = progress
        self.n_sentences = self.n_tokens = self.n_documents = self.n_cut = self.n_read = 0
        self.n_pruned = self.prune_threshold = 0
        self.types: Counter[str] = Counter()
        self.end = 0
        self.lines: List[bytes] = []
        self.lengths: List[int] = []
        self.flags: List[bool] = []
        self.streams: Dict[str, BinaryIO] = {}

    def __enter__(self) -> "CorpusWriter":
        for name in DATA_FILES:
            self.streams[name] = self.paths[name].open("wb")
        self.streams["offsets.bin"].write(np.zeros(1, OFFSET_DTYPE).tobytes())
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        try:
            if failed is None:
                self._flush()
                self._write_counts()
                if self.progress is not None:
                    self.progress(self.n_sentences, self.n_tokens)
        finally:
            for stream in self.streams.values():
                stream.close()

    def add(self, tokens: List[str], starts_document: bool) -> None:
        """Append a sentence.

        :param tokens:
            Its tokens, at least one, without ASCII whitespace in them.
        :param starts_document:
            Whether a document begins with it.
        """
        self.n_read += 1
        self.n_documents += starts_document
        self.types.update(tokens)
        if len(self.types) > self.max_types:
            self._prune()
        if len(tokens) <= self.max_sentence_length:
            self._add_piece(tokens, starts_document)
            return
        self.n_cut += 1
        n_pieces = -(-len(tokens) // self.max_sentence_length)
        for index in range(n_pieces):
            # Equal pieces: a remainder of one or two words would have no context to learn from.
            begin, end = (len(tokens) * i // n_pieces for i in (index, index + 1))
            self._add_piece(tokens[begin:end], starts_document and index == 0)

    def totals(self) -> Dict[str, int]:
        """What was written and counted, for the manifest."""
        return {
            "n_sentences": self.n_sentences,
            "n_tokens": self.n_tokens,
            "n_documents": self.n_documents,
            "n_types": len(self.types),
            "n_input_sentences": self.n_read,
            "n_cut_sentences": self.n_cut,
            "n_pruned_types": self.n_pruned,
            "prune_threshold": self.prune_threshold,
        }

    def _add_piece(self, tokens: List[str], starts_document: bool) -> None:
        self.lines.append(" ".join(tokens).encode("utf-8") + b"\n")
        self.lengths.append(len(tokens))
        self.flags.append(starts_document)
        self.n_sentences += 1
        self.n_tokens += len(tokens)
        if len(self.lines) >= _CHUNK:
            self._flush()
        if self.progress is not None and self.n_sentences % _PROGRESS_EVERY == 0:
            self.progress(self.n_sentences, self.n_tokens)

    def _flush(self) -> None:
        data = b"".join(self.lines)
        ends = self.end + np.cumsum([len(line) for line in self.lines], dtype=OFFSET_DTYPE)
        self.end += len(data)
        self.streams["sentences.txt"].write(data)
        self.streams["offsets.bin"].write(ends.astype(OFFSET_DTYPE).tobytes())
        self.streams["lengths.bin"].write(np.array(self.lengths, LENGTH_DTYPE).tobytes())
        self.streams["documents.bin"].write(np.array(self.flags, FLAG_DTYPE).tobytes())
        self.lines, self.lengths, self.flags = [], [], []

    def _prune(self) -> None:
        before = len(self.types)
        threshold = 0
        while len(self.types) > self.max_types * _KEEP_AFTER_PRUNING:
            threshold += 1
            self.types = Counter({w: n for w, n in self.types.items() if n > threshold})
        self.n_pruned += before - len(self.types)
        self.prune_threshold = max(self.prune_threshold, threshold)

    def _write_counts(self) -> None:
        stream = self.streams["counts.tsv"]
        for word, number in sorted(self.types.items(), key=lambda item: (-item[1], item[0])):
            stream.write(f"{word}\t{number}\n".encode())
