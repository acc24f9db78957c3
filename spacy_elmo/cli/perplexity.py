"""``python -m spacy elmo perplexity``"""

import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Iterator, List, Optional, TextIO

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors


@elmo_cli.command("perplexity")
@reports_errors
def perplexity_cli(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model with a softmax")],
    text: Annotated[
        List[str], typer.Argument(metavar="TEXT...", help="Files or patterns, as for pretrain")
    ],
    lang: Annotated[
        Optional[str], typer.Option("--lang", "-l", help="Language whose tokenizer cuts raw text")
    ] = None,
    pipeline: Annotated[
        Optional[str], typer.Option("--model", "-m", help="spaCy pipeline that cuts raw text")
    ] = None,
    per_token: Annotated[
        Optional[Path],
        typer.Option(
            "--per-token", help="Write log-probabilities of each token as TSV ('-': print)"
        ),
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", help="Tokens at a time; bounds memory, not results")
    ] = 1024,
    initial_state: Annotated[
        Optional[str],
        typer.Option("--initial-state", help="How sentences begin: zero or primed (model's own)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Score text with a biLM: perplexity under the full softmax.

    Every word and each sentence's end (backward: its beginning) is scored, words outside of the
    vocabulary as <UNK>. So perplexities of models with different vocabularies do not compare;
    the share of unknown words stands beside them. Logarithms are natural.
    """
    import sys

    from ..bilm import BiLM
    from ..bilm.io.atomic import replace_file
    from ..bilm.scoring import check_scorable, perplexity, softmax_words
    from ..training.readers import expand_inputs, read_documents

    bilm = BiLM.load(model, softmax=True, initial_state=initial_state)
    words = softmax_words(bilm)
    check_scorable(bilm)
    paths = expand_inputs(text)
    sentences = (s.tokens for s in read_documents(paths, lang=lang, model=pipeline))
    if per_token is None:
        with _bar() as bar:
            result = perplexity(bilm, sentences, batch_tokens=batch_tokens, progress=bar.update)
        _show(result.to_dict(), as_json)
        return
    if str(per_token) == "-":
        # UTF-8 whatever the locale.
        stream = typer.get_text_stream("stdout", encoding="utf-8")
        # On a terminal the rows themselves show how far it is.
        with _bar(hidden=sys.stdout.isatty()) as bar:
            _write_tokens(stream, bilm, words, sentences, bar)
        return
    with replace_file(per_token) as temporary, _bar() as bar:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            n_tokens = _write_tokens(file, bilm, words, sentences, bar)
    msg.good(f"Log-probabilities of {n_tokens:,} tokens: {per_token}")


def _bar(hidden: bool = False) -> Any:
    """How many words are scored; not shown where standard error is no terminal."""
    from tqdm import tqdm

    return tqdm(desc="Scoring", unit=" words", unit_scale=True, leave=False, disable=hidden or None)


#: Sentences that are scored together for --per-token.
_TOGETHER = 32


def _write_tokens(
    file: TextIO, bilm: Any, words: Any, sentences: Iterator[List[str]], bar: Any
) -> int:
    """Write a row for each token and boundary; gives the number of tokens."""
    from ..bilm.scoring import score_sentences

    # Nothing is quoted or escaped: tokens have no tab and no line end in them.
    file.write("sentence\tposition\ttoken\tforward\tbackward\n")
    number = n_tokens = 0
    while piece := list(itertools.islice(sentences, _TOGETHER)):
        for sentence, score in zip(piece, score_sentences(bilm, words, piece)):
            # The first row is what the backward direction says of the sentence's beginning,
            # the last what the forward one says of its end.
            forward = ["", *(f"{x:.6f}" for x in score.forward)]
            backward = [*(f"{x:.6f}" for x in score.backward), ""]
            tokens = ["<S>", *sentence, "</S>"]
            for row in zip(range(len(tokens)), tokens, forward, backward):
                file.write("\t".join(map(str, (number, *row))) + "\n")
            number += 1
            n_tokens += len(sentence)
            bar.update(len(sentence))
    file.flush()
    return n_tokens


def _show(values: "dict[str, float]", as_json: bool) -> None:
    if as_json:
        print(json.dumps(values))
        return
    msg.table(
        [
            ("Perplexity, forward", f"{values['forward']:.2f}"),
            ("Perplexity, backward", f"{values['backward']:.2f}"),
            ("Perplexity, average", f"{values['average']:.2f}"),
            ("Tokens", f"{int(values['n_tokens']):,}"),
            ("Sentences", f"{int(values['n_sentences']):,}"),
            ("Out of vocabulary", f"{100 * values['oov_rate']:.2f} %"),
            ("Vocabulary", f"{int(values['n_words']):,}"),
        ]
    )
