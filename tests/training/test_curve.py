"""The picture of a run: what is drawn of which lines of the log."""

import json
import math
from pathlib import Path
from typing import Any, Dict, List

import pytest

from spacy_elmo.training.curve import draw_curve

pytest.importorskip("matplotlib")

TRAIN = "training, sampled softmax"
HELD = "held-out, full softmax, "


def train(tokens: int, perplexity: Any) -> Dict[str, Any]:
    return {"event": "train", "tokens": tokens, "sampled_perplexity": perplexity}


def held(tokens: int, forward: Any, backward: Any, average: Any) -> Dict[str, Any]:
    values = {"forward": forward, "backward": backward, "average": average}
    return {"event": "heldout", "tokens": tokens, **values}


LOG = [
    train(500_000, None),  # every step before it was skipped
    train(1_000_000, 900.5),
    {"event": "skipped", "step": 7, "loss": None, "norm": 3.0},
    held(1_000_000, 410.0, 390.0, 400.0),
    train(2_000_000, 300.0),
    held(2_000_000, None, 150.0, None),
    held(3_000_000, 121.0, 119.0, 120.0),
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """The figures that are saved."""
    from matplotlib.figure import Figure

    saved: List[Any] = []
    save = Figure.savefig

    def keep(self: Any, *args: Any, **options: Any) -> None:
        saved.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved


def write(path: Path, lines: List[Dict[str, Any]], end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end, encoding="utf-8")
    return path


def curves(axes: Any) -> Dict[str, List[Any]]:
    """Points of each line by its label, None where there is a gap."""
    return {
        line.get_label(): [
            (float(x), None if math.isnan(y) else float(y))
            for x, y in zip(line.get_xdata(), line.get_ydata())
        ]
        for line in axes.get_lines()
    }


def test_lines_of_the_log_are_drawn(tmp_path: Path, figures: List[Any]) -> None:
    # The last line is one that a kill cut off.
    log = write(tmp_path / "log.jsonl", LOG, '{"event": "train", "tok')
    draw_curve(log, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    (axes,) = figure.axes
    assert curves(axes) == {
        TRAIN: [(0.5, None), (1.0, 900.5), (2.0, 300.0)],
        f"{HELD}forward": [(1.0, 410.0), (2.0, None), (3.0, 121.0)],
        f"{HELD}backward": [(1.0, 390.0), (2.0, 150.0), (3.0, 119.0)],
        f"{HELD}average": [(1.0, 400.0), (2.0, None), (3.0, 120.0)],
    }
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(curves(axes))
    assert axes.get_yscale() == "log" and axes.get_xlabel() == "tokens seen (millions)"
    # All that is measured is in sight, and numbers that people know stand beside it.
    assert axes.get_ylim() == pytest.approx((120 * 0.9, 900.5 * 1.1))
    assert axes.get_yticks().tolist() == [150, 200, 300, 500]


@pytest.mark.parametrize("lines", [[], [train(10, None)], [train(10, None), held(10, *[None] * 3)]])
def test_a_run_without_any_finite_number(
    lines: List[Dict[str, Any]], tmp_path: Path, figures: List[Any]
) -> None:
    draw_curve(write(tmp_path / "log.jsonl", lines), tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text(encoding="utf-8")
    points = [y for line in curves(figures[0].axes[0]).values() for _, y in line]
    assert len(points) == sum(3 if line["event"] == "heldout" else 1 for line in lines)
    assert set(points) <= {None}
