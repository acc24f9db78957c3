"""Raw text and docs to tokens and sentences, with spaCy."""

import copy
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
        self._only_adds_boundaries = False
        if lang or model:
            from ..training.spacy_reader import Pipeline

            pipeline = Pipeline(lang, model)
            self._nlp = pipeline.nlp
            self._only_adds_boundaries = pipeline.only_adds_boundaries
        # Of the next texts; and, once some have gone through the whole, of all further ones.
        self._spares_pipeline = self._will_spare = False

    @property
    def cuts_text(self) -> bool:
        """Whether there is a language or pipeline that cuts texts; without, only docs are cut."""
        return self._nlp is not None

    def for_counting(self) -> "Tokenizer":
        """One that gives the same tokens; of their sentences it says nothing.

        It spares a pipeline that is run for sentence boundaries alone, but for the first texts, by
        which one that does not work at all is found out. Where the pipeline may change the tokens,
        or may turn out to set no boundaries, it runs all the same.
        """
        other = copy.copy(self)
        other._will_spare = self.segmenter == "sents" and self._only_adds_boundaries
        return other

    def cut(self, path: Path, texts: Sequence[Tuple[int, str]]) -> List[Cut]:
        """Cut texts, which come with the numbers of their lines for messages.

        Needs a language or pipeline, see `cuts_text`.

        :raises ElmoError: E078 if a text is too long for the pipeline, E079 if it fails, E100 if
            it sets no sentence boundaries but these are asked for.
        """
        wants_all = self.segmenter == "sents"
        run_all = wants_all and not self._spares_pipeline
        for number, text in texts:
            if wants_all and len(text) > self._nlp.max_length:
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
                docs = list(run(contents))
                if self._spares_pipeline:
                    return [([t.text for t in doc], []) for doc in docs]
                self._spares_pipeline = self._will_spare
                return self.cut_docs(docs)
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
        result: List[Cut] = [([t.text for t in doc], []) for doc in docs]
        for sentence in segmenters.sentences_of(docs, functions[self.segmenter]):
            result[sentence.doc][1].append(sentence.indices.tolist())
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
