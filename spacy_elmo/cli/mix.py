"""``python -m spacy elmo mix``"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, List, Optional, Tuple

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from ..pipeline.mixes import Mix


@elmo_cli.command("mix")
@reports_errors
def mix_cli(
    pipelines: Annotated[
        Optional[List[str]],
        typer.Argument(metavar="PIPELINE...", help="Trained pipelines: folders or packages"),
    ] = None,
    history: Annotated[
        Optional[Path],
        typer.Option(
            "--history",
            "-H",
            help="Show how mixes moved in a training, from what spacy-elmo.MixLogger.v1 wrote",
        ),
    ] = None,
    plot: Annotated[
        Optional[Path],
        typer.Option("--plot", "-p", help="Draw a figure too: .png, .svg or .pdf"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Show what each task takes from which layer of the biLM.

    Every component that listens to ELMo, or has an ELMo of its own, learns a weighted sum of the
    layers. The table has the weights after the softmax, which sum to one, and the scale gamma.
    As a rule of thumb from the literature, lower layers serve syntax and upper ones meaning.
    Equal weights and a gamma of 1 are where training begins: "initial" says that a mix is still
    there. "output" is the mix at the output of the task's encoder (output_mix = true).

    For --history, have the training write them:

    [training.logger]
    @loggers = "spacy-elmo.MixLogger.v1"
    path = "mixes.jsonl"
    """
    from ..errors import ElmoError, Errors

    if bool(pipelines) == bool(history):
        raise ElmoError(Errors.E123)
    if plot is not None:
        from ..pipeline.mix_plots import check_plot_path

        # Before anything is loaded.
        check_plot_path(plot)
    if history is not None:
        _show_history(history, plot, as_json)
        return
    found = [(name, mix) for name in pipelines or () for mix in _load_mixes(name)]
    if as_json:
        typer.echo(json.dumps([{"pipeline": name, **mix.to_dict()} for name, mix in found]))
    else:
        several = len(pipelines or ()) > 1
        print_mixes([(name if several else "", mix) for name, mix in found])
    if plot is not None:
        from ..pipeline.mix_plots import mix_title, plot_mixes

        components = [(mix.component, mix.position) for _, mix in found]
        panels = []
        for name, mix in found:
            title = mix_title(mix.component, mix.position)
            if components.count((mix.component, mix.position)) > 1:
                title = f"{name.rstrip('/')}\n{title}"
            panels.append((title, mix))
        plot_mixes(panels, plot)
        _say_written(plot, as_json)


def _load_mixes(name: str) -> "List[Mix]":
    import spacy

    from ..errors import ElmoError, Errors
    from ..pipeline.mixes import pipeline_mixes

    try:
        nlp = spacy.load(name)
    except ElmoError:
        raise
    except (OSError, ImportError, ValueError) as err:
        raise ElmoError(Errors.E129.format(name=name, problem=err)) from err
    mixes = pipeline_mixes(nlp)
    if not mixes:
        found = ", ".join(nlp.component_names) or "none"
        raise ElmoError(Errors.E124.format(name=name, found=found))
    return mixes


def print_mixes(mixes: "List[Tuple[str, Mix]]") -> None:
    """Print the table.

    mixes (List[Tuple[str, Mix]]): Name of the pipeline ("": not shown), and mix.
    """
    from ..pipeline.mix_plots import layer_name

    n_layers = max(len(mix.weights) for _, mix in mixes)
    header = ["component", "at", *map(layer_name, range(n_layers)), "gamma", ""]
    rows: List[List[Any]] = []
    for name, mix in mixes:
        shares = [f"{share:.3f}" for share in mix.weights]
        shares += [""] * (n_layers - len(shares))
        state = "trained" if not mix.initial else "initial" if mix.trainable else "fixed"
        row = [mix.component, mix.position, *shares, f"{mix.gamma:.3f}", state]
        rows.append([name, *row] if name else row)
    names = any(name for name, _ in mixes)
    header = ["pipeline", *header] if names else header
    aligns = ["l"] * (3 if names else 2) + ["r"] * (n_layers + 1) + ["l"]
    msg.table(rows, header=header, divider=True, aligns=aligns)


def _show_history(history: Path, plot: Optional[Path], as_json: bool) -> None:
    from ..pipeline.logger import read_history
    from ..pipeline.mix_plots import plot_history

    records = read_history(history)
    if as_json:
        rows = [
            {**record._asdict(), "mixes": [mix.to_dict() for mix in record.mixes]}
            for record in records
        ]
        typer.echo(json.dumps(rows))
    else:
        for record in (records[0], records[-1]):
            print(f"\nStep {record.step}, epoch {record.epoch}, score {record.score:.3f}")
            print_mixes([("", mix) for mix in record.mixes])
    if plot is not None:
        plot_history(records, plot)
        _say_written(plot, as_json)


def _say_written(path: Path, as_json: bool) -> None:
    if not as_json:
        msg.good(f"Figure: {path}")
