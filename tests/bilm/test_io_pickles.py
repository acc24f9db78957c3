"""Pickles of ELMoForManyLangs: tensors are read, everything else is refused and never run."""

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from spacy_elmo.bilm.io import read_model
from spacy_elmo.errors import ElmoError

from .writers import write_many_langs_folder


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["zip", "legacy", "raw"])
@pytest.mark.parametrize("name", ["token_embedder.pkl", "encoder.pkl", "classifier.pkl"])
def test_malicious_pickles_are_refused_and_not_run(tmp_path: Path, name: str, kind: str) -> None:
    folder, trace = write_many_langs_folder(tmp_path / "m"), tmp_path / "trace"
    content = {"projection.weight": torch.ones(4, 10), "x": Malicious(trace)}
    if kind == "raw":
        (folder / name).write_bytes(pickle.dumps(Malicious(trace), protocol=2))
    else:
        torch.save(content, folder / name, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(ElmoError, match=rf"E030.*{name} was refused.*mkdir.*Nothing"):
        read_model(folder, softmax=True)
    assert not trace.exists()
    # The file does what it says, if it is let (what comes of it does not matter).
    with contextlib.suppress(Exception):
        torch.load(folder / name, weights_only=False)
    assert trace.exists()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
def test_truncated_pickles(tmp_path: Path, legacy: bool, keep: float) -> None:
    path = write_many_langs_folder(tmp_path, legacy_pickle=legacy) / "encoder.pkl"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ElmoError, match=r"E023.*encoder\.pkl"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    "content, shown",
    [(b"<html>gone</html>", "HTML page"), (pickle.dumps([1, 2]), "pickle"), (b"\0" * 99, "starts")],
)
def test_foreign_pickles(tmp_path: Path, content: bytes, shown: str) -> None:
    (write_many_langs_folder(tmp_path) / "encoder.pkl").write_bytes(content)
    with pytest.raises(ElmoError, match=f"E023.*{shown}"):
        read_model(tmp_path)


@pytest.mark.parametrize("content", [[torch.ones(2)], {"a": 3}, {3: torch.ones(2)}])
def test_pickles_that_are_no_state_dict(tmp_path: Path, content: Any) -> None:
    torch.save(content, write_many_langs_folder(tmp_path) / "encoder.pkl")
    with pytest.raises(ElmoError, match="E023.*it holds a (list|dict)"):
        read_model(tmp_path)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    folder = write_many_langs_folder(tmp_path)
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    state["forward_layer_0.state_linearity.bias"] = torch.ones(24, dtype=torch.int64)
    torch.save(state, folder / "encoder.pkl")
    with pytest.raises(ElmoError, match="E023.*forward_layer_0.state_linearity.bias.*int64"):
        read_model(folder)
