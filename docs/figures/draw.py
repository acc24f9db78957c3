"""Draw the figures of docs/how-it-works.md.

    python docs/figures/draw.py [FOLDER]

All text stands in filled boxes, and lines are of a middle grey, so that the figures can be read on
a light page and on a dark one.
"""

import sys
from pathlib import Path
from typing import Tuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).parent
#: The palette of Okabe and Ito (2008), lightened; told apart by every kind of colour vision.
BLUE, ORANGE, GREEN, PINK, YELLOW, GREY = (
    "#a9d3ee",
    "#f5c98a",
    "#9fdcc4",
    "#e6bdd6",
    "#f4ee9e",
    "#d6d6d6",
)
TEXT, LINE = "#1a1a1a", "#808080"
SETTINGS = {"svg.hashsalt": "spacy-elmo", "svg.fonttype": "path", "font.family": "DejaVu Sans"}


class Drawing:
    """A figure in units of a tenth of an inch, without axes.

    :param width: Width.
    :param height: Height.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width / 10, height / 10))
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(0, height)
        self.axes.set_axis_off()

    def box(
        self,
        centre: Tuple[float, float],
        size: Tuple[float, float],
        text: str,
        colour: str,
        font_size: float = 9.5,
    ) -> None:
        """A box with text in it."""
        (x, y), (width, height) = centre, size
        self.axes.add_patch(
            FancyBboxPatch(
                (x - width / 2, y - height / 2),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.8",
                facecolor=colour,
                edgecolor=LINE,
                linewidth=0.8,
            )
        )
        self.axes.text(
            x, y, text, ha="center", va="center", fontsize=font_size, color=TEXT, linespacing=1.25
        )

    def arrow(
        self, start: Tuple[float, float], end: Tuple[float, float], colour: str = LINE
    ) -> None:
        """An arrow."""
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=9,
                color=colour,
                linewidth=1.3,
                shrinkA=0,
                shrinkB=0,
            )
        )

    def line(self, start: Tuple[float, float], end: Tuple[float, float]) -> None:
        """A line."""
        self.axes.plot(*zip(start, end), color=LINE, linewidth=1.3, solid_capstyle="round")

    def frame(self, corner: Tuple[float, float], size: Tuple[float, float]) -> None:
        """A dashed line around what belongs together."""
        self.axes.add_patch(
            FancyBboxPatch(
                corner,
                *size,
                boxstyle="round,pad=0,rounding_size=1",
                facecolor="none",
                edgecolor=LINE,
                linewidth=1.0,
                linestyle=(0, (4, 3)),
            )
        )

    def save(self, path: Path) -> None:
        """Write as SVG, the same file every time."""
        with matplotlib.rc_context(SETTINGS):
            self.figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def architecture() -> Drawing:
    """The biLM over a sentence of three words, and the mixes that two tasks make of its layers.

    Layers 1 and 2 are the outputs of both directions side by side; the directions themselves never
    meet below the mixes.
    """
    d = Drawing(50, 76)
    words = ("the", "river", "bank")
    columns = {"forward": 12.0, "backward": 35.0}
    bus = 48.6
    # Word by word: characters to the token layer.
    for i, word in enumerate(words):
        x = 12.0 + 11.5 * i
        d.box((x, 3), (10, 4), word, GREY, 10)
        d.arrow((x, 5), (x, 8.2))
        d.arrow((x, 14), (x, 17.2))
        d.box((x, 19), (10, 3.6), "vector", YELLOW, 9)
    d.box(
        (23.5, 11.1),
        (35, 5.8),
        "characters → CNN → highway → projection,\nevery word by itself",
        YELLOW,
        9,
    )
    rows = {0: (16.2, 25.0), 1: (29.0, 41.0), 2: (45.0, 57.0)}
    for layer, (bottom, top) in rows.items():
        d.frame((0.6, bottom), (46.4, top - bottom))
        d.box((23.5, top), (12, 2.8), f"layer {layer}", GREEN, 9.5)
        if layer:
            below = rows[layer - 1][0] + 8.9 if layer > 1 else 20.8
            for direction, x in columns.items():
                _lstm(d, (x, bottom + 5.1), direction, layer)
                d.arrow((x, below), (x, bottom + 1.3))
        # To all mixes, by one line.
        d.line((47.0, (bottom + top) / 2), (bus, (bottom + top) / 2))
    for x, text in zip(
        columns.values(), ("softmax:\nnext word", "the same softmax:\nprevious word")
    ):
        d.arrow((x, rows[2][0] + 8.9), (x, 61.0))
        d.box((x, 63.5), (21, 5), text, GREY, 8.5)
        d.line((x, 68.6), (bus, 68.6))
        d.arrow((x, 68.6), (x, 71.0))
    d.line((bus, 20.6), (bus, 68.6))
    d.box((12.0, 73.2), (21, 4.4), "mix of the recogniser", PINK, 8.5)
    d.box((35.0, 73.2), (21, 4.4), "mix of the tagger", PINK, 8.5)
    return d


def _lstm(d: Drawing, centre: Tuple[float, float], direction: str, layer: int) -> None:
    """One layer of one direction over the three words."""
    x, y = centre
    colour = BLUE if direction == "forward" else ORANGE
    d.box((x, y), (21, 7.6), "", colour)
    title = f"{direction} LSTM {layer}"
    d.axes.text(x, y + 2.1, title, ha="center", va="center", fontsize=9, color=TEXT)
    places = [x - 6.6, x, x + 6.6]
    for place in places:
        d.box((place, y - 1.2), (3.6, 3.0), "h", "#ffffff", 8.5)
    for left, right in zip(places, places[1:]):
        ends = ((left + 1.8, y - 1.2), (right - 1.8, y - 1.2))
        d.arrow(*(ends if direction == "forward" else ends[::-1]), colour=TEXT)


def pipeline() -> Drawing:
    """What happens to docs in a spaCy pipeline."""
    d = Drawing(50, 62.4)
    d.frame((0.6, 22.6), (48.6, 33.8))
    d.box((25, 56.4), (22, 2.8), "component elmo", GREY, 8.5)
    d.box((25, 60.6), (12, 2.4), "docs", GREY, 9)
    d.arrow((25, 59.4), (25, 57.8))
    d.box((25, 50.6), (44, 4.4), "segmenter: sentences, without whitespace tokens", YELLOW, 8.5)
    d.arrow((25, 55.0), (25, 52.8))
    d.box((25, 42.4), (24, 5.2), "cache of sentences\n(frozen biLM only)", YELLOW, 8.5)
    d.arrow((25, 48.4), (25, 45.0))
    d.box((39.4, 33.6), (16, 5.2), "biLM, where\nthe cache has none", BLUE, 8)
    d.arrow((34, 39.8), (38, 36.2))
    d.box((16.5, 26.4), (27, 5.2), "all layers of all tokens:\n(L + 1, tokens, width)", GREEN, 8.5)
    d.arrow((16.5, 39.8), (16.5, 29.0))
    d.arrow((35, 31.0), (29.4, 27.6))
    d.box((8.6, 14.6), (15.6, 6), "doc._.elmo:\nthe component's\nown mix", PINK, 8)
    d.box((25, 14.6), (14.6, 6), "listener and\nmix of the tagger", PINK, 8)
    d.box((41.2, 14.6), (15.6, 6), "listener and mix\nof the recogniser", PINK, 8)
    d.arrow((8.6, 23.8), (8.6, 17.6))
    d.arrow((20, 23.8), (24, 17.6))
    d.arrow((26, 23.8), (39, 17.6))
    d.box((25, 4), (14.6, 4.4), "tagger", GREY, 9)
    d.box((41.2, 4), (15.6, 4.4), "recogniser", GREY, 9)
    d.arrow((25, 11.6), (25, 6.2))
    d.arrow((41.2, 11.6), (41.2, 6.2))
    return d


FIGURES = {"architecture.svg": architecture, "pipeline.svg": pipeline}


def main(folder: str = str(HERE)) -> None:
    for name, draw in FIGURES.items():
        draw().save(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
