"""Formulas as MathML: what stands between dollars becomes markup that browsers draw by themselves.

So the pages need neither a script nor the network. The extension arithmatex has found the formulas
(and has left code alone) before this is called.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert


def _inline(match: "re.Match[str]") -> str:
    formula = convert(html.unescape(match[1]), display="inline")
    # Browsers may break a line between a formula and the punctuation behind it.
    return f'<span class="inline-formula">{formula}{match[2]}</span>' if match[2] else formula


def _display(match: "re.Match[str]") -> str:
    formula = convert(html.unescape(match[1]), display="block")
    return f'<div class="formula" tabindex="0">{formula}</div>'


def on_page_content(content: str, **_: Any) -> str:
    """Called by MkDocs with the HTML of every page."""
    inline = r'<span class="arithmatex">\\\((.*?)\\\)</span>([.,;:)]*)'
    content = re.sub(inline, _inline, content, flags=re.S)
    content = re.sub(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', _display, content, flags=re.S)
    if 'class="arithmatex"' in content:
        raise ValueError("a formula was not converted")
    return content
