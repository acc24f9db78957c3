"""JSONL and DocBin inputs: the part of reading that tokenises and splits with spaCy."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple, Union

from ..errors import ElmoError, Errors
from .readers import MAX_LINE_BYTES, Sentence, clean_token, decode, read_lines

if TYPE_CHECKING:
    from spacy.tokens import Doc

BATCH_RECORDS = 64
BATCH_CHARACTERS = 200_000

# Components of spaCy that neither set sentence boundaries nor feed one that does.
_NO_BOUNDARIES = {
    "attribute_ruler",
    "entity_linker",
    "entity_ruler",
    "lemmatizer",
    "morphologizer",
    "ner",
    "span_finder",
    "span_ruler",
    "spancat",
    "spancat_singlelabel",
    "tagger",
    "textcat",
    "textcat_multilabel",
    "trainable_lemmatizer",
}
_SET_BOUNDARIES = {"parser", "sentencizer", "senter"}
_BOUNDARIES = _SET_BOUNDARIES | {"tok2vec", "transformer"}

Record = Tuple[int, Union[str, List[str]]]


class Pipeline:
    """A spaCy pipeline that turns text to sentences of tokens.

    :param lang:
        Language of a blank pipeline; sentences come from spaCy's Sentencizer.
    :param model:
        Name or path of a pipeline; sentences come from it where it sets boundaries.
    :raises ElmoError:
        When there is no such language or model here.
    """

    def __init__(self, lang: Optional[str], model: Optional[str]) -> None:
        name = f"model {model!r}" if model else f"language {lang!r}"
        try:
            import spacy

            self.nlp = spacy.load(model) if model else spacy.blank(lang or "xx")
        except (ImportError, OSError, ValueError, TypeError) as error:
            raise ElmoError(Errors.E070.format(name=name, reason=error)) from error
        if model is None:
            # The limit protects parsers; a tokeniser has no need of it.
            self.nlp.max_length = MAX_LINE_BYTES["jsonl"]
        factories = {pipe: self.nlp.get_pipe_meta(pipe).factory for pipe in self.nlp.pipe_names}
        # A component of someone else's may rely on tags or entities: then nothing is skipped.
        all_known = set(factories.values()) <= _NO_BOUNDARIES | _BOUNDARIES
        #: Whether every doc gets sentence boundaries, and keeps the tokens that the tokenizer cut.
        self.only_adds_boundaries = all_known and not _SET_BOUNDARIES.isdisjoint(factories.values())
        if all_known:
            skip = [pipe for pipe, factory in factories.items() if factory in _NO_BOUNDARIES]
            self.nlp.select_pipes(disable=skip)

    def split(self, path: Path, batch: List[Record]) -> List[List[List[str]]]:
        """Tokenise records and split them to sentences.

        :param path:
            File of the records, for messages.
        :param batch:
            Line numbers with a text or with tokens.
        :returns:
            For every record the sentences.
        :raises ElmoError:
            When a text is too long for the pipeline, or the pipeline fails.
        """
        from spacy.tokens import Doc

        for number, content in batch:
            if isinstance(content, str) and len(content) > self.nlp.max_length:
                raise ElmoError(
                    Errors.E078.format(
                        path=path, line=number, found=len(content), limit=self.nlp.max_length
                    )
                )
        # Without the zone the string store would grow with every new word of the corpus.
        zone: Any = getattr(self.nlp, "memory_zone", nullcontext)
        try:
            with zone():
                inputs = [
                    content if isinstance(content, str) else Doc(self.nlp.vocab, words=content)
                    for _, content in batch
                ]
                return [split_doc(doc) for doc in self.nlp.pipe(inputs)]
        except Exception as error:
            lines = f"{batch[0][0]}-{batch[-1][0]}"
            raise ElmoError(Errors.E079.format(path=path, lines=lines, reason=error)) from error


def split_doc(doc: "Doc") -> List[List[str]]:
    """Sentences of a doc, without whitespace tokens and without empty sentences.

    :param doc:
        The doc. If it has no boundaries, they are added by spaCy's Sentencizer, and blank lines end
        a sentence as well, so that headings do not run into the text below.
    """
    if not len(doc):
        return []
    annotated = doc.has_annotation("SENT_START")
    if not annotated:
        from spacy.pipeline import Sentencizer

        doc = Sentencizer()(doc)
    sentences: List[List[str]] = []
    for sent in doc.sents:
        tokens: List[str] = []
        for token in sent:
            text = clean_token(token.text)
            if text:
                tokens.append(text)
            elif not annotated and token.text.count("\n") > 1:
                sentences.append(tokens)
                tokens = []
        sentences.append(tokens)
    return [tokens for tokens in sentences if tokens]


def read_docbin(path: Path) -> Iterator[Sentence]:
    """Stream the sentences of a DocBin; a doc is a document.

    :param path:
        The ``.spacy`` file.
    :raises ElmoError:
        While iterating: spaCy is not installed, or the file cannot be read as a DocBin.
    """
    try:
        from spacy.tokens import DocBin
        from spacy.vocab import Vocab
    except ImportError as error:
        raise ElmoError(Errors.E070.format(name="spaCy", reason=error)) from error
    try:
        # A damaged file fails in any of zlib, msgpack and NumPy, each with errors of its own.
        docs = DocBin().from_bytes(path.read_bytes()).get_docs(Vocab())
    except OSError as error:
        raise ElmoError(Errors.E073.format(path=path, reason=error.strerror or error)) from error
    except Exception as error:
        raise ElmoError(Errors.E071.format(path=path, reason=repr(error))) from error
    while True:
        try:
            doc = next(docs, None)
            sentences = [] if doc is None else split_doc(doc)
        except Exception as error:
            raise ElmoError(Errors.E071.format(path=path, reason=repr(error))) from error
        if doc is None:
            return
        yield from _as_document(sentences)


def read_jsonl(path: Path, pipeline: Optional[Pipeline]) -> Iterator[Sentence]:
    """Stream the sentences of a JSONL file; an object is a document.

    :param path:
        The file.
    :param pipeline:
        What tokenises. ``None``: only objects with ``"tokens"`` can be read, as one sentence each.
    :raises ElmoError:
        While iterating: a line is no JSON object with a ``"text"`` or ``"tokens"``, or has a
        ``"text"`` and there is no pipeline.
    """
    batch: List[Record] = []
    size = 0
    for record in _read_records(path):
        number, content = record
        if pipeline is None:
            if isinstance(content, str):
                raise ElmoError(Errors.E069.format(path=path, line=number))
            yield from _as_document([content])
            continue
        batch.append(record)
        size += len(content)
        if len(batch) >= BATCH_RECORDS or size >= BATCH_CHARACTERS:
            for sentences in pipeline.split(path, batch):
                yield from _as_document(sentences)
            batch, size = [], 0
    if pipeline is not None and batch:
        for sentences in pipeline.split(path, batch):
            yield from _as_document(sentences)


def _read_records(path: Path) -> Iterator[Record]:
    for number, line in read_lines(path, MAX_LINE_BYTES["jsonl"]):
        if not line.strip():
            continue
        text = decode(line, line, path, number)
        try:
            record = json.loads(text)
            content = _content(record)
            # JSON can spell half of a surrogate pair, which is no text in any encoding.
            "".join(content).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            raise ElmoError(Errors.E068.format(path=path, line=number, reason=error)) from error
        if content:
            yield number, content


def _content(record: Any) -> Union[str, List[str]]:
    if not isinstance(record, dict):
        raise TypeError(f"the line holds a {type(record).__name__}")
    tokens = record.get("tokens")
    if isinstance(tokens, list):
        for token in tokens:
            if not isinstance(token, str):
                raise TypeError(f'"tokens" contains {token!r}')
        return [cleaned for cleaned in map(clean_token, tokens) if cleaned]
    text = record.get("text")
    if not isinstance(text, str):
        found = ", ".join(f'"{key}"' for key in list(record)[:5]) or "no keys"
        raise TypeError(f"the object has {found}")
    return text


def _as_document(sentences: List[List[str]]) -> Iterator[Sentence]:
    for index, tokens in enumerate(sentences):
        yield Sentence(tokens, index == 0)
