"""Figures of scalar mixes; after figure 2 of Peters et al. (2018), which has a row for a layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple, Union

from ..bilm.io.atomic import replace_file
from ..errors import ElmoError, Errors
from .logger import MixRecord
from .mixes import Mix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
#: Okabe and Ito's colours, which people with any colour vision tell apart; each layer has a line
#: style and a marker of its own as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_GREY = "#555555"


def layer_name(layer: int) -> str:
    """How a layer is called in tables and figures."""
    return "token layer" if layer == 0 else f"LSTM {layer}"


def plot_mixes(mixes: Sequence[Tuple[str, Mix]], path: Union[str, Path]) -> None:
    """Draw the profile of each mix, side by side: a bar for each layer's share.

    mixes (Sequence[Tuple[str, Mix]]): Title and mix of each panel.
    path (Union[str, Path]): The file to write, .png, .svg or .pdf.
    :raises ElmoError: E128 if matplotlib is missing or the format is not known, E039 if the file
        cannot be written.
    """
    width = 1.4 + 2.1 * len(mixes)
    n_layers = max(len(mix.weights) for _, mix in mixes)
    figure = _figure(path, (max(width, 3.6), 1.5 + 0.45 * n_layers))
    panels = figure.subplots(1, len(mixes), squeeze=False, sharex=True, sharey=True)[0]
    for panel, (title, mix) in zip(panels, mixes):
        layers = range(len(mix.weights))
        equal = 1.0 / len(mix.weights)
        panel.barh(layers, mix.weights, height=0.62, color=_COLOURS[0], zorder=2)
        panel.axvline(equal, color=_GREY, linewidth=1.0, linestyle="--", zorder=3)
        for layer, share in zip(layers, mix.weights):
            # Beside the bar and the line of equal shares, or in a bar that leaves no room.
            inside = share > 0.75
            place = share - 0.03 if inside else max(share, equal) + 0.03
            panel.text(
                place,
                layer,
                f"{share:.3f}",
                va="center",
                ha="right" if inside else "left",
                color="white" if inside else "black",
                fontsize=9,
                zorder=4,
            )
        # Escaped: a name may hold signs that matplotlib takes for mathematics.
        title = title.replace("$", r"\$")
        state = ", not trained" if mix.initial else ""
        panel.set_title(f"{title}\n$\\gamma$ = {mix.gamma:.2f}{state}", fontsize=10)
        panel.set_xlim(0.0, 1.0)
        panel.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        panel.set_yticks(range(n_layers), [layer_name(layer) for layer in range(n_layers)])
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("share of the layer, softmax(w); dashed: equal shares", fontsize=9)
    engine: Any = figure.get_layout_engine()
    # So that the end of one axis and the beginning of the next stay apart.
    engine.set(wspace=0.08)
    _save(figure, path)


def plot_history(records: Sequence[MixRecord], path: Union[str, Path]) -> None:
    """Draw how shares and gamma moved with the steps of a training, a column for each mix.

    records (Sequence[MixRecord]): What `spacy-elmo.MixLogger.v1` wrote.
    path (Union[str, Path]): The file to write, .png, .svg or .pdf.
    :raises ElmoError: As `plot_mixes`.
    """
    columns: Dict[Tuple[str, str], List[Tuple[int, Mix]]] = {}
    for record in records:
        for mix in record.mixes:
            columns.setdefault((mix.component, mix.position), []).append((record.step, mix))
    figure = _figure(path, (1.2 + 3.2 * len(columns), 4.6))
    grid: Any = figure.subplots(
        2,
        len(columns),
        squeeze=False,
        sharex=True,
        sharey="row",
        gridspec_kw={"height_ratios": [3, 1]},
    )
    for above, below, (key, points) in zip(*grid, columns.items()):
        steps = [step for step, _ in points]
        n_layers = max(len(mix.weights) for _, mix in points)
        marks = max(1, len(steps) // 8)
        for layer in range(n_layers):
            above.plot(
                steps,
                [mix.weights[layer] for _, mix in points],
                color=_COLOURS[layer % len(_COLOURS)],
                linestyle=_STYLES[layer % len(_STYLES)],
                marker=_MARKERS[layer % len(_MARKERS)],
                markevery=marks,
                markersize=4,
                label=layer_name(layer),
            )
        below.plot(steps, [mix.gamma for _, mix in points], color="black")
        above.set_title(mix_title(*key).replace("$", r"\$"), fontsize=10)
        below.set_xlabel("training step", fontsize=9)
        for panel in (above, below):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(axis="y", color="#dddddd", linewidth=0.6)
            panel.margins(x=0.02)
    for row in grid:
        _widen(row[0])
    grid[0][0].set_ylabel("share of the layer, softmax(w)", fontsize=9)
    grid[1][0].set_ylabel("$\\gamma$", fontsize=10)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    _save(figure, path)


def _widen(panel: Any) -> None:
    """Have an axis cover a tenth at least, so that small moves look small."""
    low, high = panel.get_ylim()
    missing = max(0.0, 0.1 - (high - low)) / 2
    panel.set_ylim(low - missing, high + missing)


def mix_title(component: str, position: str) -> str:
    """Title of a mix: the component, and where in it the mix stands if not at its input."""
    return component if position == "input" else f"{component} ({position})"


def check_plot_path(path: Union[str, Path]) -> str:
    """The format that a figure's name asks for.

    :raises ElmoError: E128 if matplotlib is missing or the format is not known.
    """
    suffix = Path(path).suffix.lower().lstrip(".")
    if suffix not in FORMATS:
        expected = ", ".join(f".{name}" for name in FORMATS)
        problem = f"its name ends in {Path(path).suffix!r}, expected one of {expected}"
        raise ElmoError(Errors.E128.format(path=path, problem=problem))
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as err:
        problem = 'matplotlib is not installed; install it: pip install "spacy-elmo[viz]"'
        raise ElmoError(Errors.E128.format(path=path, problem=problem)) from err
    return suffix


def _figure(path: Union[str, Path], size: Tuple[float, float]) -> "Figure":
    check_plot_path(path)
    # Without pyplot, which keeps figures and wants a display.
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained", facecolor="white")


def _save(figure: "Figure", path: Union[str, Path]) -> None:
    with replace_file(path) as temporary:
        figure.savefig(temporary, format=check_plot_path(path), dpi=160)
