"""Pictures of vectors: projection to the plane, and points coloured by group."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from ..bilm.io.atomic import replace_file
from ..errors import ElmoError, Errors

#: Palette of Okabe and Ito (2008), told apart with every kind of colour vision; the markers
#: tell the groups apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "^", "s", "D", "v", "P")


class Panel(NamedTuple):
    """One picture of a figure.

    :param title: Above it.
    :param vectors: What is projected. *Shape:* ``(n, width)``
    :param groups: Group of each vector, such as its sense; None for no groups.
    :param marks: Further vectors to mark by a label: projected, but not part of the projection's
        making. *Shape:* ``(width,)`` each
    """

    title: str
    vectors: np.ndarray
    groups: Optional[Sequence[str]] = None
    marks: Optional[Dict[str, np.ndarray]] = None


def principal_axes(vectors: np.ndarray, n: int = 2) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Principal component analysis by singular value decomposition.

    :param vectors: *Shape:* ``(m, width)``
    :param n: Components.
    :returns: Mean ``(width,)``, axes ``(n, width)``, and the share of the variance on each axis
        ``(n,)``; axes that the data do not have are zero.
    """
    mean = vectors.mean(axis=0)
    _, sizes, axes = np.linalg.svd((vectors - mean).astype(np.float64), full_matrices=False)
    # An axis' sign is arbitrary; fixed, so that a picture looks the same on every machine.
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    axes = axes * np.where(signs == 0, 1.0, signs)[:, None]
    variance = sizes**2
    total = variance.sum()
    # Vectors that differ by rounding alone have no axes.
    if total <= 1e-9 * float((vectors.astype(np.float64) ** 2).sum()):
        axes, variance, total = np.zeros_like(axes), np.zeros_like(variance), 1.0
    shares = variance / total
    missing = max(0, n - len(axes))
    axes = np.concatenate([axes[:n], np.zeros((missing, vectors.shape[1]))])
    return mean, axes, np.concatenate([shares[:n], np.zeros(missing)])


def project(vectors: np.ndarray, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Coordinates of vectors on principal axes. *Shape:* ``(m, n)``"""
    points: np.ndarray = (vectors - mean) @ axes.T
    return points


def draw_panels(panels: Sequence[Panel], output: Union[str, Path], title: str = "") -> None:
    """Draw panels side by side as PNG or SVG, by the name of `output`.

    :raises ElmoError: E149 if matplotlib is not installed (extra ``viz``), E039 if the file
        cannot be written, E144 if its name asks for a format that there is not.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ElmoError(Errors.E149.format(problem=err)) from err
    output = Path(output)
    format = output.suffix[1:].lower()
    if format not in ("png", "svg", "pdf"):
        expected = "a name that ends in .png, .svg or .pdf"
        raise ElmoError(Errors.E144.format(name="output", found=str(output), expected=expected))
    n_columns = min(len(panels), 4)
    n_rows = -(-len(panels) // n_columns)
    size = (max(4.6, 3.3 * n_columns), 3.3 * n_rows + (0.9 if title else 0.5))
    figure = Figure(figsize=size, dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(n_rows, n_columns, number + 1)
        mean, directions, shares = principal_axes(panel.vectors)
        points = project(panel.vectors, mean, directions)
        groups: List[str] = list(panel.groups or [""] * len(points))
        for k, group in enumerate(dict.fromkeys(groups)):
            chosen = points[[g == group for g in groups]]
            axes.scatter(
                chosen[:, 0],
                chosen[:, 1],
                s=30,
                c=COLOURS[k % len(COLOURS)],
                marker=MARKERS[k % len(MARKERS)],
                alpha=0.75,
                linewidths=0,
                label=group,
            )
        same = not shares.any()
        if same:
            axes.annotate(
                "all vectors are the same",
                (0, 0),
                xytext=(0, 12),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        for label, vector in ({} if same else panel.marks or {}).items():
            x, y = project(vector[None], mean, directions)[0]
            axes.plot([x], [y], marker="*", markersize=11, color="black", markeredgecolor="white")
            axes.annotate(label, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(f"axis 1: {100 * shares[0]:.0f} % of the variance", fontsize=8)
        axes.set_ylabel(f"axis 2: {100 * shares[1]:.0f} %", fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.12)
        axes.set_aspect("equal", adjustable="datalim")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if panel.groups:
            axes.legend(
                loc="upper center",
                bbox_to_anchor=(0.5, -0.1),
                ncols=3,
                frameon=False,
                fontsize=9,
                handletextpad=0.2,
            )
    if title:
        figure.suptitle(title, fontsize=11)
    with replace_file(output) as temporary:
        figure.savefig(temporary, format=format)
