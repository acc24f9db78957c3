"""Picture of a run: held-out perplexity and sampled perplexity over the tokens seen."""

import json
import math
from pathlib import Path
from typing import Any, Dict, List


def read_log(path: Path) -> List[Dict[str, Any]]:
    """Lines of a run's ``log.jsonl``; a line that a kill cut off is left out."""
    lines: List[Dict[str, Any]] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
    return lines


def _number(value: Any) -> float:
    """A value of the log, where null stands for one that is not finite: a gap in the curve."""
    return math.nan if value is None else value


def draw_curve(log: Path, output: Path) -> None:
    """Draw the log of a run as PNG or SVG, by the name of `output`.

    :raises ImportError: if matplotlib is not installed (extra ``viz``).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    lines = read_log(log)
    train = [line for line in lines if line["event"] == "train"]
    held = [line for line in lines if line["event"] == "heldout"]
    sampled = [_number(line["sampled_perplexity"]) for line in train]
    figure = Figure(figsize=(7.0, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        [line["tokens"] / 1e6 for line in train],
        sampled,
        color="0.7",
        linewidth=0.8,
        label="training, sampled softmax",
    )
    for name, style in (("forward", "--"), ("backward", ":"), ("average", "o-")):
        axes.plot(
            [line["tokens"] / 1e6 for line in held],
            [_number(line[name]) for line in held],
            style,
            color="C0" if name == "average" else "C1",
            markersize=3,
            linewidth=1.5,
            label=f"held-out, full softmax, {name}",
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    ticks = [50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10000]
    values = [_number(line["average"]) for line in held] + sampled
    finite = [value for value in values if value < 1e6]
    if finite:
        low, high = min(finite) * 0.9, max(finite) * 1.1
        axes.set_ylim(low, high)
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) >= 2:
            axes.set_yticks(shown)
    axes.set_xlabel("tokens seen (millions)")
    axes.set_ylabel("perplexity")
    axes.grid(color="0.9")
    axes.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(output)
