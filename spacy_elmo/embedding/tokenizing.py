"""Raw text and docs to tokens and sentences, with spaCy."""

import functools
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Sequence, Tuple

from ..errors import ElmoError, Errors

if TYPE_CHECKING:
    from spacy.tokens import Doc

SEGMENTERS = ("punct", "sents", "whole")
#: Token texts, and which of them are encoded together.
Cut = Tuple[List[str], List[List[int]]]


class Tokenizer:
    """Cuts texts to tokens and sentences as the component `elmo` would.

    :param lang: Language whose tokenizer is used.
    :param model: Name or path of a spaCy pipeline whose tokenizer is used instead; with the
        segmenter "sents" its sentence boundaries as well.
    :param segmenter: "punct" cuts behind sentence-final punctuation and at blank lines, as the
        component does by default; "sents" at the boundaries that docs or pipeline have; "whole" not
        at all.
    :raises ElmoError: E035 for another segmenter, E070 if the language or pipeline is not here.
    """

    def __init__(
        self, lang: Optional[str] = None, model: Optional[str] = None, segmenter: str = "punct"
    ) -> None:
        if segmenter not in SEGMENTERS:
            expected = ", ".join(SEGMENTERS)
            raise ElmoError(
                Errors.E035.format(name="segmenter", found=segmenter, expected=expected)
            )
        if lang is not None and model is not None:
            name = f"language {lang!r} and model {model!r}"
            raise ElmoError(Errors.E070.format(name=name, reason="only one of the two can be used"))
        self.lang, self.model, self.segmenter = lang, model, segmenter
        self._nlp: Any = None
        if lang or model:
            from ..training.spacy_reader import Pipeline

            self._nlp = Pipeline(lang, model).nlp

    def cut(self, path: Path, texts: Sequence[Tuple[int, str]]) -> List[Cut]:
        """Cut texts, which come with the numbers of their lines for messages.

        :raises ElmoError: E078 if a text is too long for the pipeline, E079 if it fails, E100 if
            it sets no sentence boundaries but these are asked for.
        """
        run_all = self.segmenter == "sents"
        for number, text in texts:
            if run_all and len(text) > self._nlp.max_length:
                found, limit = len(text), self._nlp.max_length
                raise ElmoError(
                    Errors.E078.format(path=path, line=number, found=found, limit=limit)
                )
        # Without the zone the string store would grow with every new word of the corpus.
        zone: Any = getattr(self._nlp, "memory_zone", nullcontext)
        contents = [text for _, text in texts]
        try:
            with zone():
                run = self._nlp.pipe if run_all else functools.partial(map, self._nlp.tokenizer)
                return self.cut_docs(list(run(contents)))
        except ElmoError:
            raise
        except Exception as err:
            lines = f"{texts[0][0]}-{texts[-1][0]}"
            raise ElmoError(Errors.E079.format(path=path, lines=lines, reason=err)) from err

    def cut_docs(self, docs: Sequence["Doc"]) -> List[Cut]:
        """Tokens and sentences of docs; whitespace tokens are in no sentence."""
        from ..layers import segmenters

        functions = {
            "punct": segmenters.punct_segmenter,
            "sents": segmenters.doc_sents_segmenter,
            "whole": segmenters.whole_doc_segmenter,
        }
        result = []
        for doc, spans in zip(docs, functions[self.segmenter](docs)):
            sentences = [[t.i for t in doc[a:b] if not t.is_space] for a, b in spans]
            result.append(([t.text for t in doc], [s for s in sentences if s]))
        return result


def read_docs(path: Path) -> Iterator["Doc"]:
    """Docs of a DocBin.

    :raises ElmoError: E073, E071 if the file cannot be read or is no DocBin.
    """
    import spacy
    from spacy.tokens import DocBin

    try:
        # A damaged file fails in any of zlib, msgpack and NumPy, each with errors of its own.
        docs = DocBin().from_bytes(path.read_bytes()).get_docs(spacy.blank("xx").vocab)
    except OSError as err:
        raise ElmoError(Errors.E073.format(path=path, reason=err.strerror or err)) from err
    except Exception as err:
        raise ElmoError(Errors.E071.format(path=path, reason=repr(err))) from err
    while True:
        try:
            doc = next(docs, None)
        except Exception as err:
            raise ElmoError(Errors.E071.format(path=path, reason=repr(err))) from err
        if doc is None:
            return
        yield doc
