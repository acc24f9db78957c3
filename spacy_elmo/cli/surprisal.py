"""``python -m spacy elmo surprisal``"""

from pathlib import Path
from typing import Annotated, Optional

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors


@elmo_cli.command("surprisal")
@reports_errors
def surprisal_cli(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model with a softmax")],
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="UTF-8 text ('-': standard input)")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="HTML file to write")],
    lang: Annotated[
        Optional[str],
        typer.Option("--lang", "-l", help="Language whose tokenizer cuts the text (the model's)"),
    ] = None,
    numbers: Annotated[
        bool, typer.Option("--numbers", "-n", help="Print the bits below each word")
    ] = False,
    max_bits: Annotated[
        float, typer.Option("--max-bits", help="Surprisal that gets the full colour")
    ] = 16.0,
) -> None:
    """
    Draw how surprising every word of a text is to a biLM, as an HTML page.

    Surprisal is the negative logarithm to base 2 of a word's probability given the words
    before it in its sentence: 1 bit for a word of probability one half. The stronger the colour,
    the less the word was expected. Blank lines of the text separate documents, each drawn apart.
    For numbers to compute with, see `perplexity --per-token`.
    """
    import sys

    import spacy
    from tqdm import tqdm

    from ..analysis.heat_map import render
    from ..bilm.io.atomic import replace_file
    from ..bilm.predict import LanguageModel
    from ..errors import ElmoError, Errors
    from ..pipeline.language_model import score_docs

    lm = LanguageModel.load(model)
    code = lang or lm.bilm.config.meta.get("language") or "xx"
    try:
        nlp = spacy.blank(code)
    except ImportError as err:
        raise ElmoError(Errors.E070.format(name=f"language {code!r}", reason=err)) from err
    try:
        data = sys.stdin.buffer.read() if str(text) == "-" else text.read_bytes()
        content = data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as err:
        raise ElmoError(Errors.E073.format(path=text, reason=err)) from err
    blocks = [block.strip("\n") for block in content.split("\n\n") if block.strip()]
    if not blocks:
        raise ElmoError(Errors.E059)
    docs = list(nlp.pipe(blocks))
    n_words = sum(not token.is_space for doc in docs for token in doc)
    # Off where standard error is no terminal.
    with tqdm(
        desc="Scoring", total=n_words, unit=" words", unit_scale=True, leave=False, disable=None
    ) as bar:
        docs = list(score_docs(docs, lm, progress=bar.update))
    page = render(docs, page=True, jupyter=False, numbers=numbers, max_bits=max_bits)
    with replace_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    msg.good(f"Surprisal of {sum(map(len, docs)):,} tokens: {output}")
