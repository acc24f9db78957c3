"""``python -m spacy elmo probe``"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Optional

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors
from .senses import percent, print_markdown, title, top_over_first

if TYPE_CHECKING:
    from ..analysis.probe import ProbeEvaluation


@elmo_cli.command("probe")
@reports_errors
def probe_cli(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="spaCy pipeline with elmo, or weights")
    ],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Folder with train, dev and test files in CoNLL-U (also .xz, .gz), or the "
            "training file",
        ),
    ],
    dev: Annotated[
        Optional[Path], typer.Option("--dev", "-d", help="File that the penalty is chosen on")
    ] = None,
    test: Annotated[
        Optional[Path], typer.Option("--test", "-t", help="File that accuracies are of")
    ] = None,
    column: Annotated[
        str, typer.Option("--column", "-c", help="What is probed for: upos, xpos or deprel")
    ] = "upos",
    layer: Annotated[
        Optional[List[str]],
        typer.Option("--layer", "-y", help="As for neighbors (may be repeated; all)"),
    ] = None,
    max_train: Annotated[
        int,
        typer.Option("--max-train", help="Training tokens, random sentences; 0 for all (memory!)"),
    ] = 50_000,
    max_dev: Annotated[
        int, typer.Option("--max-dev", help="Tokens to choose the penalty on; 0 for all")
    ] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of that choice of sentences")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table")] = False,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Probe each layer for parts of speech: what a linear classifier reads off the vectors.

    A logistic regression is fitted for every layer on the training file (its penalty chosen on
    dev), and measured on test. The baseline gives every word its most frequent tag in training,
    and unknown words the most frequent of all: what a layer has beyond it is not in the word
    alone. Layer 0 knows spelling but no context, so the layers above it show what context adds.
    """
    from ..analysis.encoders import load_encoder
    from ..analysis.probe import evaluate_probe, take_tokens
    from ..analysis.tagged_text import find_parts, read_conllu
    from ..errors import ElmoError, Errors

    encoder = load_encoder(model)
    views = encoder.check_views(layer or [])
    paths: Dict[str, Optional[Path]] = {"train": data, "dev": dev, "test": test}
    if data.is_dir():
        found = find_parts(data, ".conllu", ("train", "dev", "test"))
        paths = {"train": found["train"], "dev": dev or found["dev"], "test": test or found["test"]}
    for name, path in paths.items():
        if path is None:
            expected = f"{name}.conllu or …-{name}.conllu, also with .xz or .gz, or --{name}"
            raise ElmoError(Errors.E150.format(path=data, part=name, expected=expected))
    train, heldout, asked = (read_conllu(path, column) for path in paths.values() if path)
    evaluation = evaluate_probe(
        encoder,
        take_tokens(train, max_train, seed),
        take_tokens(heldout, max_dev, seed),
        asked,
        views=views,
        progress=True,
    )
    if as_json:
        print(json.dumps(_as_json(evaluation)))
        return
    header = [
        f"{column}, accuracy, %",
        f"all ({evaluation.n_test:,})",
        f"several labels ({evaluation.n_seen_ambiguous:,})",
        f"unseen words ({evaluation.n_unseen:,})",
    ]
    rows = [
        [title(r.name), percent(r.accuracy), percent(r.seen_ambiguous), percent(r.unseen)]
        for r in evaluation.results
    ]
    note = f"{evaluation.n_labels} labels; fitted on {evaluation.n_train:,} tokens."
    note += top_over_first({r.name: r.correct for r in evaluation.results})
    if markdown:
        print_markdown(header, rows)
        print(f"\n{note}")
    else:
        msg.table(rows, header=header, divider=True, aligns=("l", "r", "r", "r"))
        print(note)


def _as_json(evaluation: "ProbeEvaluation") -> Dict[str, Any]:
    def number(value: float) -> Optional[float]:
        # NaN is no JSON.
        return None if value != value else value

    data: Dict[str, Any] = {k: v for k, v in evaluation._asdict().items() if k != "results"}
    data["results"] = {
        r.name: {k: number(v) for k, v in r._asdict().items() if k not in ("name", "correct")}
        for r in evaluation.results
    }
    return data
