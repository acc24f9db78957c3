"""``python -m spacy elmo neighbors``"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Optional, Sequence

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from ..analysis.neighbors import Neighbor, Query
    from ..analysis.occurrences import AverageCost, WordVectors

#: Occurrences whose neighbours are compared with those of the average.
_COMPARED = 50


@elmo_cli.command("neighbors")
@reports_errors
def neighbors_cli(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="spaCy pipeline with elmo, or weights")
    ],
    corpus: Annotated[
        List[str], typer.Argument(metavar="CORPUS...", help="Files or patterns, as for pretrain")
    ],
    word: Annotated[str, typer.Option("--word", "-w", help="The word, as the text spells it")],
    context: Annotated[
        Optional[List[str]],
        typer.Option(
            "--context",
            "-c",
            help="Sentence of your own with the word, tokens between spaces, to search for; "
            "else some occurrences that are far from each other are taken (may be repeated)",
        ),
    ] = None,
    layer: Annotated[
        Optional[List[str]],
        typer.Option(
            "--layer",
            "-y",
            help="0, 1, ... for a layer, mix for the component's own mix (mean, for weights), "
            "or the name of a listening component for its learned mix (may be repeated; all)",
        ),
    ] = None,
    n: Annotated[int, typer.Option("--number", "-n", help="Neighbours for each query")] = 10,
    occurrences: Annotated[
        int, typer.Option("--occurrences", "-k", help="Occurrences that are shown")
    ] = 3,
    keep: Annotated[
        int,
        typer.Option("--keep", help="Occurrences to keep in memory, sampled if there are more"),
    ] = 1000,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Count other capitalisation as the word")
    ] = False,
    max_sentences: Annotated[
        int, typer.Option("--max-sentences", help="Sentences of the text to read; 0 for all")
    ] = 0,
    lang: Annotated[
        Optional[str], typer.Option("--lang", "-l", help="Language whose tokenizer cuts raw text")
    ] = None,
    pipeline: Annotated[
        Optional[str], typer.Option("--model", "-m", help="spaCy pipeline that cuts raw text")
    ] = None,
    plot: Annotated[
        Optional[Path],
        typer.Option("--plot", help="Draw the occurrences on two axes (.png, .svg, .pdf)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Nearest neighbours of a word's occurrences in context, by layer and by mix.

    Occurrences of one word have different vectors. Some that lie far from each other are taken,
    and the nearest tokens of the whole text (of any word) are shown in their contexts with the
    cosine; beside them those of the word's average over all its occurrences, which is what a
    static vector can be at best. A table says what this average costs: how near the occurrences
    are to each other and to the average, which share of their squared length the average does
    not hold ("lost"), and which share of an occurrence's neighbours are the average's too.

    The text is read twice and streamed; memory does not grow with it. All of it is embedded
    (--max-sentences limits that).
    """
    from ..analysis.encoders import load_encoder
    from ..analysis.neighbors import Query, nearest, shared_neighbors
    from ..analysis.occurrences import Occurrence, average_cost, collect, spread_out
    from ..errors import ElmoError, Errors
    from ..training.readers import expand_inputs, read_documents

    if occurrences < 1:
        raise ElmoError(
            Errors.E144.format(name="occurrences", found=occurrences, expected="at least 1")
        )
    encoder = load_encoder(model)
    views = encoder.check_views(layer or [])
    paths = expand_inputs(corpus)

    def read(what: str) -> Iterator[List[str]]:
        from itertools import islice

        from tqdm import tqdm

        sentences = (s.tokens for s in read_documents(paths, lang=lang, model=pipeline))
        limited = islice(sentences, max_sentences) if max_sentences > 0 else sentences
        return iter(tqdm(limited, desc=what, unit=" sentences", disable=None, leave=False))

    known = collect(
        encoder, read("Looking for the word"), word, views, ignore_case=ignore_case, limit=keep
    )
    if known.total > len(known.kept):
        import warnings

        from ..errors import ElmoWarning, Warnings

        text = Warnings.W141.format(n=len(known.kept), total=known.total, word=word)
        warnings.warn(text, ElmoWarning, stacklevel=2)
    queries: List[Query] = []
    for sentence in context or []:
        tokens = tuple(sentence.split())
        places = [
            i
            for i, t in enumerate(tokens)
            if t == word or (ignore_case and t.casefold() == word.casefold())
        ]
        if not places:
            raise ElmoError(Errors.E145.format(word=word, n=1))
        layers = encoder.bilm.embed([tokens])[0][:, places[:1]]
        vectors = {view: encoder.view(layers, view)[0] for view in views}
        queries.append(Query(vectors, Occurrence(tokens, places[0])))
    shown = len(queries)
    order = list(range(min(_COMPARED, len(known.kept))))
    if not queries:
        chosen = spread_out(known.vectors[views[-1]], occurrences)
        shown = len(chosen)
        order = chosen + [i for i in order if i not in chosen]
    for i in order:
        queries.append(Query({v: known.vectors[v][i] for v in views}, known.kept[i]))
    queries.append(Query(known.average))
    found = nearest(encoder, read("Comparing all tokens"), queries, views, n)
    # Contexts of the user's own are none of the text's occurrences.
    compared = slice(shown if context else 0, -1)
    costs = {view: average_cost(known.vectors[view]) for view in views}
    shared = {v: shared_neighbors(found[v][compared], found[v][-1]) for v in views}
    if plot is not None:
        _draw(word, known, queries[:shown], views, plot)
    if as_json:
        print(json.dumps(_as_json(word, known, queries[:shown], found, costs, shared)))
        return
    _show(word, known, queries[:shown], found, costs, shared)
    if plot is not None:
        msg.good(f"Occurrences on two axes: {plot}")


def _show(
    word: str,
    known: "WordVectors",
    queries: "Sequence[Query]",
    found: "Dict[str, List[List[Neighbor]]]",
    costs: "Dict[str, AverageCost]",
    shared: Dict[str, float],
) -> None:
    for view, lists in found.items():
        msg.divider(_title(view))
        for number, query in enumerate(queries, 1):
            assert query.occurrence is not None
            left, middle, right = query.occurrence.in_context()
            _line(f"\n{number:>7}  {left:>40} [{middle}] {right}")
            _print_neighbors(lists[number - 1])
        _line(f"\naverage of {known.total:,} occurrences of {word!r}")
        _print_neighbors(lists[-1])
        _line("")
    msg.divider(f"What the average costs ({len(known.kept):,} occurrences)")
    rows = [
        (
            _title(view),
            f"{cost.self_similarity:.3f}",
            f"{cost.mean_cosine:.3f}",
            f"{cost.min_cosine:.3f}",
            f"{100 * cost.lost:.1f} %",
            f"{100 * shared[view]:.1f} %",
        )
        for view, cost in costs.items()
    ]
    header = (
        "",
        "cosine to each other",
        "cosine to average",
        "least",
        "lost",
        "neighbours shared",
    )
    msg.table(rows, header=header, divider=True, aligns=("l", "r", "r", "r", "r", "r"))


def _print_neighbors(neighbors: "List[Neighbor]") -> None:
    for neighbor in neighbors:
        left, middle, right = neighbor.occurrence.in_context()
        _line(f"{neighbor.cosine:>7.3f}  {left:>40} [{middle}] {right}")


def _line(text: str) -> None:
    # UTF-8 whatever the locale.
    typer.echo(text.encode("utf-8"))


def _title(view: str) -> str:
    if view.isdigit():
        return f"layer {view}"
    return "mix" if view == "mix" else f"mix of {view}"


def _as_json(
    word: str,
    known: "WordVectors",
    queries: "Sequence[Query]",
    found: "Dict[str, List[List[Neighbor]]]",
    costs: "Dict[str, AverageCost]",
    shared: Dict[str, float],
) -> Dict[str, Any]:
    def listed(neighbors: "List[Neighbor]") -> List[Dict[str, Any]]:
        return [{"cosine": cosine, **occurrence._asdict()} for cosine, occurrence in neighbors]

    return {
        "word": word,
        "occurrences": known.total,
        "sentences": known.n_sentences,
        "views": {
            view: {
                "queries": [
                    {**q.occurrence._asdict(), "neighbors": listed(lists[i])}
                    for i, q in enumerate(queries)
                    if q.occurrence is not None
                ],
                "average": listed(lists[-1]),
                "cost": {
                    # NaN is no JSON.
                    **{k: None if v != v else v for k, v in costs[view]._asdict().items()},
                    "shared_neighbors": shared[view],
                },
            }
            for view, lists in found.items()
        },
    }


def _draw(
    word: str,
    known: "WordVectors",
    queries: "Sequence[Query]",
    views: Sequence[str],
    output: Path,
) -> None:
    from ..analysis.projection import Panel, draw_panels

    panels = []
    for view in views:
        marks = {str(i): query.vectors[view] for i, query in enumerate(queries, 1)}
        marks["average"] = known.average[view]
        panels.append(Panel(_title(view), known.vectors[view], None, marks))
    draw_panels(panels, output, f"{len(known.kept):,} occurrences of {word!r}")
