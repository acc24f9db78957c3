"""The heat map as HTML: what it says, that it is well-formed and that it can be read."""

import re
from html.parser import HTMLParser
from typing import Any, Dict, List, Tuple

import pytest
import spacy
from spacy.tokens import Doc

import spacy_elmo
from spacy_elmo.analysis import heat_map
from spacy_elmo.analysis.heat_map import COLOUR, MAX_OPACITY
from spacy_elmo.errors import ElmoError
from spacy_elmo.pipeline.language_model import doc_scores

from ..training import tiny

WORDS = ["the", "cat", "<b>\"&'", "sees", "\n", "a", "dog", "."]


@pytest.fixture(scope="module")
def doc() -> Doc:
    bilm = tiny.model(tiny.vocabulary(tiny.sentences(60), 60))
    return spacy_elmo.score(Doc(spacy.blank("en").vocab, words=WORDS), bilm)


class Reader(HTMLParser):
    """Text of a page, spans with a title, and whether tags are balanced."""

    VOID = {"meta", "br"}

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.words: List[Tuple[Dict[str, str], str]] = []
        self.text = ""
        self.seen: List[Tuple[str, Dict[str, str]]] = []
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        attributes = self.seen[-1][1] if self.seen else {}
        if self.open and self.open[-1] == "span" and "title" in attributes:
            self.words.append((attributes, data))


def test_every_word_has_its_numbers_and_colour(doc: Doc) -> None:
    reader = Reader(spacy_elmo.render(doc, jupyter=False))
    words = [t for t in doc if not t.is_space]
    assert [text for _, text in reader.words] == [t.text for t in words]
    for (attributes, _), token in zip(reader.words, words):
        assert f"surprisal {token._.elmo_surprisal:.2f} bits" in attributes["title"]
        assert f"forward {token._.elmo_log_prob_forward:.2f}" in attributes["title"]
        assert f"backward {token._.elmo_log_prob_backward:.2f} nats" in attributes["title"]
        opacity = float(re.search(r"rgba\([\d, ]+, ([\d.]+)\)", attributes["style"])[1])
        assert opacity == pytest.approx(MAX_OPACITY * token._.elmo_surprisal / 16.0, abs=1e-3)
        unknown = token._.elmo_is_unknown
        assert ("underline dotted" in attributes["style"]) is unknown
        assert ("scored as <UNK>" in attributes["title"]) is unknown
    # Spaces and line ends stand as they did.
    assert doc.text.strip() in reader.text


def test_text_is_escaped(doc: Doc) -> None:
    markup = spacy_elmo.render(doc, page=True, jupyter=False)
    assert "<b>" not in markup and "&lt;b&gt;&quot;&amp;&#x27;" in markup
    assert not any(tag in ("b", "script") for tag, _ in Reader(markup).seen)


def test_legend_scale_and_mean(doc: Doc) -> None:
    text = " ".join(Reader(spacy_elmo.render(doc, jupyter=False, max_bits=4)).text.split())
    bits = doc_scores(doc).surprisal
    mean = bits[[not t.is_space for t in doc]].mean()
    assert "≥ 4" in text and f"Mean: {mean:.2f} over 7 words" in text
    assert "Dotted underline" in text
    full = spacy_elmo.render(doc, jupyter=False, max_bits=0.01)
    assert full.count(f"{MAX_OPACITY:.3f})") == 7  # capped


def test_numbers_can_be_printed(doc: Doc) -> None:
    text = Reader(spacy_elmo.render(doc, jupyter=False, numbers=True)).text
    plain = Reader(spacy_elmo.render(doc, jupyter=False)).text
    assert f"cat{doc[1]._.elmo_surprisal:.1f}" in text
    assert f"cat{doc[1]._.elmo_surprisal:.1f}" not in plain


def test_pages_and_direction(doc: Doc) -> None:
    bilm = tiny.model(tiny.vocabulary(tiny.sentences(60), 60))
    arabic = spacy_elmo.score(spacy.blank("ar")("ذهب الولد"), bilm)
    page = spacy_elmo.render([doc, arabic], page=True, jupyter=False)
    reader = Reader(page)
    assert page.startswith("<!DOCTYPE html>") and "light dark" in page
    directions = [a["dir"] for tag, a in reader.seen if tag == "div" and "dir" in a]
    assert directions == ["ltr", "rtl"]
    assert sum(tag == "figure" for tag, _ in reader.seen) == 2
    assert "<html" not in spacy_elmo.render(doc, jupyter=False)


def test_empty_docs_and_mistakes(doc: Doc) -> None:
    bilm = tiny.model(tiny.vocabulary(tiny.sentences(60), 60))
    nlp = spacy.blank("en")
    Reader(spacy_elmo.render(spacy_elmo.score(nlp(""), bilm), jupyter=False))
    for call, code in (
        (lambda: spacy_elmo.render(nlp("the cat")), "ELMO-E143"),
        (lambda: spacy_elmo.render(doc, max_bits=0), "ELMO-E144"),
        (lambda: spacy_elmo.render(doc, max_bits=float("nan")), "ELMO-E144"),
    ):
        with pytest.raises(ElmoError) as caught:
            call()
        assert caught.value.code == code


def test_shown_in_a_notebook(doc: Doc, monkeypatch: Any) -> None:
    import sys
    import types

    shown: List[str] = []
    module: Any = types.ModuleType("IPython.display")
    module.HTML, module.display = str, shown.append
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    # A notebook prints the value of a cell's last line, so there is none, as in displaCy.
    assert spacy_elmo.render(doc, jupyter=True) is None
    markup = spacy_elmo.render(doc, jupyter=False)
    assert len(shown) == 1 and markup in shown[0] and "tex2jax_ignore" in shown[0]
    assert spacy_elmo.render(doc) == markup and len(shown) == 1  # no notebook here
    monkeypatch.setattr(heat_map, "is_in_jupyter", lambda: True)
    assert spacy_elmo.render(doc) is None and shown == shown[:1] * 2
    assert spacy_elmo.render(doc, jupyter=False) == markup and len(shown) == 2


def _contrast(a: Any, b: Any) -> float:
    """Contrast ratio of WCAG 2."""

    def luminance(colour: Any) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (x / 255 for x in colour)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "text, background",
    [((0, 0, 0), (255, 255, 255)), ((51, 51, 51), (255, 255, 255)), ((255,) * 3, (18,) * 3),
     ((224,) * 3, (30,) * 3)],
)  # fmt: skip
def test_text_is_legible_on_the_fullest_colour(text: Any, background: Any) -> None:
    mixed = [MAX_OPACITY * c + (1 - MAX_OPACITY) * b for c, b in zip(COLOUR, background)]
    assert _contrast(text, mixed) >= 4.5
