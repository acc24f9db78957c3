"""Principal axes against a known answer, and pictures that are files of their kind."""

import re
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from spacy_elmo.analysis.projection import Panel, draw_panels, principal_axes, project
from spacy_elmo.errors import ElmoError


def test_axes_of_a_stretched_cloud() -> None:
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    cloud = rng.normal(size=(400, 5)) * (4.0, 2.0, 0.5, 0.1, 0.1) @ basis.T + 7.0
    mean, axes, shares = principal_axes(cloud)
    assert np.allclose(mean, cloud.mean(axis=0))
    assert abs(axes[0] @ basis[:, 0]) > 0.99 and abs(axes[1] @ basis[:, 1]) > 0.99
    assert shares == pytest.approx([16 / 20.27, 4 / 20.27], abs=0.04)
    points = project(cloud, mean, axes)
    assert points.shape == (400, 2)
    variances = points.var(axis=0) / cloud.var(axis=0).sum()
    assert variances == pytest.approx(shares)
    # The same picture for the same cloud, in whatever order.
    again = principal_axes(cloud[::-1])[1]
    assert np.allclose(again, axes, atol=1e-6)


def test_vectors_without_axes() -> None:
    same = np.full((6, 4), 0.3, np.float32) + np.float32(1e-7) * np.eye(6, 4, dtype=np.float32)
    assert not principal_axes(same)[2].any()
    mean, axes, shares = principal_axes(np.array([[1.0, 2.0, 3.0]]))
    assert axes.shape == (2, 3) and not shares.any()
    two = principal_axes(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))[2]
    assert two == pytest.approx([1.0, 0.0])


MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("name", list(MAGIC))
def test_pictures_are_written(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    panels = [
        Panel("one", rng.normal(size=(9, 4)), list("aabbccddd"), {"mean": np.zeros(4)}),
        Panel("two", np.ones((3, 4)), None, {"mean": np.ones(4)}),
    ]
    path = tmp_path / f"out.{name}"
    draw_panels(panels, path, "Title")
    assert path.read_bytes().startswith(MAGIC[name])
    assert list(tmp_path.iterdir()) == [path]
    if name == "svg":
        assert "all vectors are the same" in path.read_text("utf-8")


def test_groups_are_told_by_colour(tmp_path: Path) -> None:
    """Each point has its group's colour, which the legend names."""
    senses = ["money", "river", "money", "money", "river", "money", "river", "money"]
    # The axis that is drawn from left to right tells the senses apart.
    vectors = np.array([[9.0 if s == "river" else -9.0, i, 0.0] for i, s in enumerate(senses)])
    draw_panels([Panel("bank", vectors, senses)], tmp_path / "out.svg")
    picture, legend = (tmp_path / "out.svg").read_text("utf-8").split('id="legend_1"')
    places: Dict[str, List[float]] = {}
    for x, colour in re.findall(r'<use [^>]*x="([\d.]+)"[^>]* style="fill: (#\w+)', picture):
        places.setdefault(colour, []).append(float(x))
    money, river = places["#0072b2"], places["#d55e00"]
    assert (len(money), len(river)) == (5, 3) == (senses.count("money"), senses.count("river"))
    assert max(money) < min(river) and len(places) == 2
    entries = re.findall(r"fill: (#\w+)|<!-- (\w+)", legend)
    assert ["".join(entry) for entry in entries] == ["#0072b2", "money", "#d55e00", "river"]


def test_mistakes_are_coded(tmp_path: Path, monkeypatch: Any) -> None:
    panel = Panel("one", np.eye(3))
    (tmp_path / "no").write_text("a file where a folder should be")
    for path, code in ((tmp_path / "out.gif", "E144"), (tmp_path / "no" / "out.png", "E039")):
        with pytest.raises(ElmoError) as caught:
            draw_panels([panel], path)
        assert caught.value.code == f"ELMO-{code}"
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ElmoError) as caught:
        draw_panels([panel], tmp_path / "out.png")
    assert caught.value.code == "ELMO-E149" and "viz" in str(caught.value)
