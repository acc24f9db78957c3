"""``python -m spacy elmo senses``"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Optional, Sequence, Tuple

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from ..analysis.senses import SenseEvaluation


@elmo_cli.command("senses")
@reports_errors
def senses_cli(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="spaCy pipeline with elmo, or weights")
    ],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Sense-tagged TSV (also .xz, .gz), or a folder with train.tsv and test.tsv",
        ),
    ],
    test: Annotated[
        Optional[Path],
        typer.Option("--test", "-t", help="TSV to disambiguate; without: leave one out of DATA"),
    ] = None,
    part: Annotated[
        str, typer.Option("--part", "-p", help="Part of a folder that is disambiguated: test, dev")
    ] = "test",
    layer: Annotated[
        Optional[List[str]],
        typer.Option("--layer", "-y", help="As for neighbors (may be repeated; all)"),
    ] = None,
    k: Annotated[int, typer.Option("--neighbors", "-k", help="Nearest occurrences that vote")] = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table")] = False,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Evaluate word senses by nearest neighbour, layer by layer.

    Every tagged token gets the sense of the nearest tagged occurrence of the same word (any
    capitalisation) in the training part, or, if there is one file alone, in its other
    sentences. The baseline takes the word's most frequent sense there. Accuracies are on tokens
    whose word is known with several senses; all others ask nothing of the vectors.

    The TSV has a token a line: number, token, tag, sense (_ for none); blank lines between
    sentences. The kinds n, v, p of senses such as n.FOOD are shown apart.
    """
    from ..analysis.encoders import load_encoder
    from ..analysis.senses import evaluate_senses
    from ..analysis.tagged_text import find_parts, read_senses
    from ..errors import ElmoError, Errors

    if k < 1:
        raise ElmoError(Errors.E144.format(name="neighbors", found=k, expected="at least 1"))
    encoder = load_encoder(model)
    views = encoder.check_views(layer or [])
    if data.is_dir():
        parts = find_parts(data, ".tsv", ("train", part))
        for name, path in parts.items():
            if path is None:
                expected = f"{name}.tsv, also with .xz or .gz"
                raise ElmoError(Errors.E150.format(path=data, part=name, expected=expected))
        train, test = parts["train"], test or parts[part]
    else:
        train = data
    assert train is not None
    reference = read_senses(train)
    asked = None if test is None else read_senses(test)
    evaluation = evaluate_senses(encoder, reference, asked, views=views, k=k, progress=True)
    if not evaluation.n_asked:
        what = "token whose word has several senses in the reference text"
        raise ElmoError(Errors.E147.format(path=test or train, what=what))
    if as_json:
        print(json.dumps(_as_json(evaluation)))
        return
    header, rows = _table(evaluation)
    note = _note(evaluation)
    if markdown:
        print_markdown(header, rows)
        print(f"\n{note}")
    else:
        msg.table(rows, header=header, divider=True, aligns=("l", *"r" * (len(header) - 1)))
        print(note)


def title(view: str) -> str:
    """A view's name in tables."""
    return f"layer {view}" if view.isdigit() else view


def percent(share: float) -> str:
    """A share as per cent, a dash for NaN."""
    return "–" if share != share else f"{100 * share:.1f}"


def print_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown, numbers right-aligned, in UTF-8 whatever the locale."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    for line in lines:
        typer.echo(("| " + " | ".join(line) + " |").encode("utf-8"))


def _table(evaluation: "SenseEvaluation") -> Tuple[List[str], List[List[str]]]:
    from ..analysis.bootstrap import difference

    baseline = evaluation.results[0]
    kinds = sorted(set(baseline.kinds) - {""})
    header = ["accuracy, %", *(f"{k} ({baseline.kinds.count(k):,})" for k in kinds)]
    header += [f"all ({evaluation.n_asked:,})", "over the baseline [95 %]"]
    rows = []
    for result in evaluation.results:
        row = [title(result.name), *(percent(result.accuracy(k)) for k in kinds)]
        row.append(percent(result.accuracy()))
        if result is baseline:
            row.append("")
        else:
            row.append(_interval(difference(result.correct, baseline.correct)))
        rows.append(row)
    return header, rows


def _interval(values: Tuple[float, float, float]) -> str:
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * v for v in values))


def _note(evaluation: "SenseEvaluation") -> str:
    text = (
        f"{evaluation.n_tagged:,} tagged tokens; the word of {evaluation.n_known:,} is known, of "
        f"{evaluation.n_asked:,} with several senses."
    )
    return text + top_over_first({r.name: r.correct for r in evaluation.results})


def top_over_first(correct: "Dict[str, Any]") -> str:
    """What the top layer has over the first of the LSTM, as a sentence; "" if they are one."""
    from ..analysis.bootstrap import difference

    top = max((name for name in correct if name.isdigit()), key=int, default="0")
    if int(top) < 2 or "1" not in correct:
        return ""
    return f" Layer {top} over layer 1: {_interval(difference(correct[top], correct['1']))}."


def _as_json(evaluation: "SenseEvaluation") -> Dict[str, Any]:
    from ..analysis.bootstrap import difference

    baseline = evaluation.results[0]
    kinds = sorted(set(baseline.kinds) - {""})
    return {
        "n_tagged": evaluation.n_tagged,
        "n_known": evaluation.n_known,
        "n_asked": evaluation.n_asked,
        "results": {
            result.name: {
                "accuracy": result.accuracy(),
                "kinds": {kind: result.accuracy(kind) for kind in kinds},
                "over_baseline": list(difference(result.correct, baseline.correct)),
            }
            for result in evaluation.results
        },
    }
