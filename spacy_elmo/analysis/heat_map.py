"""Heat map of surprisal over a text, as HTML in the manner of displaCy."""

import html
import math
from typing import Iterable, List, Literal, Optional, Union, overload

import numpy as np
from spacy.tokens import Doc
from spacy.util import is_in_jupyter

from ..errors import ElmoError, Errors
from ..pipeline.language_model import DocScores, doc_scores

#: Vermilion of the palette of Okabe and Ito (2008). One hue from nothing to full differs in
#: lightness alone, which every kind of colour vision sees; laid over the page's own background
#: with at most this opacity, the page's own text stays legible on it, dark on light or light on
#: dark.
COLOUR = (213, 94, 0)
MAX_OPACITY = 0.65
#: Surprisal at full colour: that of one word among 65,536. Fixed, so that pictures compare.
MAX_BITS = 16.0

_FIGURE = (
    '<figure class="spacy-elmo-surprisal" style="margin: 0 0 2rem 0; '
    'font-family: -apple-system, BlinkMacSystemFont, Segoe UI, Helvetica, Arial, sans-serif">'
    "{text}{legend}</figure>"
)
_TEXT = (
    '<div dir="{direction}" lang="{language}" style="line-height: {height}; '
    'white-space: pre-wrap; overflow-wrap: anywhere">{words}</div>'
)
_WORD = (
    '<span title="{title}" style="background: rgba({colour}, {opacity:.3f}); padding: 0.15em 0; '
    "border-radius: 0.2em; -webkit-box-decoration-break: clone; box-decoration-break: clone"
    '{unknown}">{word}</span>'
)
_UNKNOWN = "; text-decoration: underline dotted; text-underline-offset: 0.2em"
# A box of its own, or the numbers of short words would run into each other.
_NUMBERED = (
    '<span style="display: inline-block; min-width: 2.2em; margin: 0 1px 0.4em; '
    'text-align: center; vertical-align: top; line-height: 1.3">{word}<br>'
    '<span style="font-size: 0.7em">{bits:.1f}</span></span>'
)
_LEGEND = (
    '<figcaption dir="ltr" style="margin-top: 0.75em; font-size: 0.8em; line-height: 1.5">'
    '<div style="width: 16em; max-width: 100%">'
    '<div style="height: 0.9em; border: 1px solid rgba(127, 127, 127, 0.6); '
    'background: linear-gradient(to right, rgba({colour}, 0), rgba({colour}, {opacity}))"></div>'
    '<div style="display: grid; grid-template-columns: 1fr 1fr 1fr"><span>0</span>'
    '<span style="text-align: center">{half:g}</span>'
    '<span style="text-align: right">&ge; {full:g}</span></div></div>'
    "<div>Surprisal in bits, &minus;log<sub>2</sub> p(word | words before it).{mean}{unknown}</div>"
    "</figcaption>"
)
_PAGE = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n<title>Surprisal</title>\n</head>\n'
    '<body style="font-size: 16px; max-width: 48rem; margin: 0 auto; padding: 2rem 1rem">\n'
    "{figures}\n</body>\n</html>\n"
)


@overload
def render(
    docs: Union[Doc, Iterable[Doc]],
    *,
    page: bool = ...,
    jupyter: Literal[False],
    numbers: bool = ...,
    max_bits: float = ...,
) -> str: ...


@overload
def render(
    docs: Union[Doc, Iterable[Doc]],
    *,
    page: bool = ...,
    jupyter: Optional[bool] = ...,
    numbers: bool = ...,
    max_bits: float = ...,
) -> Optional[str]: ...


def render(
    docs: Union[Doc, Iterable[Doc]],
    *,
    page: bool = False,
    jupyter: Optional[bool] = None,
    numbers: bool = False,
    max_bits: float = MAX_BITS,
) -> Optional[str]:
    """Draw the surprisal of every word as the colour behind it, with a legend.

    Each word tells its numbers when pointed at. Words that the vocabulary lacks are underlined
    with dots: their colour is that of the unknown word.

    docs (Union[Doc, Iterable[Doc]]): Docs that `spacy_elmo.score` has been on.
    page (bool): Give a whole HTML page, for a file, rather than a part of one.
    jupyter (Optional[bool]): Show it in the notebook, rather than give the HTML; whether there is
        a notebook is found out if it is not said.
    numbers (bool): Print the bits below each word, for paper and for touch screens.
    max_bits (float): Surprisal that gets the full colour; more gets no more.
    RETURNS (Optional[str]): The HTML; None if it was shown in a notebook, as in displaCy.

    Raises E143 if a doc was not scored, E144 if `max_bits` is not above zero.
    """
    if not (math.isfinite(max_bits) and max_bits > 0):
        raise ElmoError(Errors.E144.format(name="max_bits", found=max_bits, expected="above 0"))
    figures = [
        _figure(doc, doc_scores(doc), numbers, max_bits)
        for doc in ([docs] if isinstance(docs, Doc) else docs)
    ]
    markup = "\n".join(figures)
    if page:
        markup = _PAGE.format(figures=markup)
    if jupyter or (jupyter is None and is_in_jupyter()):
        from IPython.display import HTML, display

        # Or what stands between two dollar signs would be set as a formula.
        display(HTML(f'<div class="tex2jax_ignore">{markup}</div>'))
        # A value would be printed below the picture.
        return None
    return markup


def _figure(doc: Doc, scores: DocScores, numbers: bool, max_bits: float) -> str:
    colour = ", ".join(map(str, COLOUR))
    bits = scores.surprisal
    parts: List[str] = []
    for token in doc:
        space = html.escape(token.whitespace_)
        if np.isnan(bits[token.i]):
            parts.append(html.escape(token.text) + space)
            continue
        unknown = bool(scores.unknown[token.i])
        title = (
            f"surprisal {bits[token.i]:.2f} bits; ln p forward {scores.forward[token.i]:.2f}, "
            f"backward {scores.backward[token.i]:.2f} nats"
        )
        if unknown:
            title += "; not in the vocabulary, scored as <UNK>"
        share = min(1.0, max(0.0, float(bits[token.i]) / max_bits))
        word = _WORD.format(
            title=html.escape(title),
            colour=colour,
            opacity=MAX_OPACITY * share,
            unknown=_UNKNOWN if unknown else "",
            word=html.escape(token.text),
        )
        if numbers:
            word = _NUMBERED.format(word=word, bits=bits[token.i])
        parts.append(word + space)
    text = _TEXT.format(
        direction=doc.vocab.writing_system.get("direction", "ltr"),
        language=html.escape(doc.lang_),
        height="2.8" if numbers else "1.9",
        words="".join(parts),
    )
    n_words = int((~np.isnan(bits)).sum())
    mean = f" Mean: {np.nanmean(bits):.2f} over {n_words:,} words." if n_words else ""
    note = (
        " Dotted underline: not in the vocabulary; the colour is that of any unknown word "
        "(&lt;UNK&gt;)."
    )
    legend = _LEGEND.format(
        colour=colour,
        opacity=MAX_OPACITY,
        half=max_bits / 2,
        full=max_bits,
        mean=mean,
        unknown=note if scores.unknown.any() else "",
    )
    return _FIGURE.format(text=text, legend=legend)
