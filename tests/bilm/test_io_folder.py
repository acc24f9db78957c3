"""Native folders are replaced as a whole, and nobody loses files by that."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from spacy_elmo.bilm.config import BiLMConfig
from spacy_elmo.bilm.io import read_native, write_native
from spacy_elmo.errors import ElmoError

from .models import SMALL, make


def test_model_card_has_the_facts_and_own_text_is_kept(tmp_path: Path) -> None:
    config = BiLMConfig(SMALL.char_cnn, SMALL.lstm, "zero", {"name": "tiny", "licence": "MIT"})
    write_native(make(config, softmax=True), tmp_path / "m")
    card = tmp_path / "m" / "README.md"
    text = card.read_text(encoding="utf-8")
    for fact in ("# tiny", "| Licence | MIT |", "| Softmax | 6 words |", "3 layers, 8 wide"):
        assert fact in text
    # A generated card follows the model, a written one stays.
    write_native(make(), tmp_path / "m")
    assert "| Softmax | none |" in card.read_text(encoding="utf-8")
    card.write_text("Meine Notizen: größer", encoding="utf-8")
    write_native(make(seed=1), tmp_path / "m")
    assert card.read_text(encoding="utf-8") == "Meine Notizen: größer"


def test_model_card_says_what_a_model_was_begun_from(tmp_path: Path) -> None:
    source = {"name": "news | web", "licence": "MIT", "begun_from": {"name": "web"}}
    meta = {"language": "en", "begun_from": source}
    write_native(make(BiLMConfig(SMALL.char_cnn, SMALL.lstm, "zero", meta)), tmp_path / "m")
    text = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert "# biLM\n" in text and "| Language | en |" in text
    assert "| Begun from | news \\| web, begun from web |" in text
    assert "| Licence | not stated" in text and "MIT" not in text


def test_overwriting_leaves_nothing_of_the_old_model(tmp_path: Path) -> None:
    write_native(make(softmax=True), tmp_path / "m")
    write_native(make(seed=1), tmp_path / "m")
    assert not (tmp_path / "m" / "vocabulary.txt").exists()
    assert torch.equal(
        read_native(tmp_path / "m").tensors["forward_lstm.0.bias"],
        make(seed=1).tensors["forward_lstm.0.bias"],
    )
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_model_can_be_written_over_itself(tmp_path: Path) -> None:
    files = make()
    write_native(files, tmp_path / "m")
    write_native(read_native(tmp_path / "m"), tmp_path / "m")
    read = read_native(tmp_path / "m").tensors
    assert all(torch.equal(read[name], tensor) for name, tensor in files.tensors.items())


@pytest.mark.parametrize("existing", ["thesis.tex", "model.safetensors/"])
def test_folders_with_other_files_are_not_replaced(tmp_path: Path, existing: str) -> None:
    folder = tmp_path / "work"
    if existing.endswith("/"):
        (folder / existing).mkdir(parents=True)
    else:
        folder.mkdir()
        (folder / existing).write_text("years of work")
    with pytest.raises(ElmoError, match=rf"E034.*{existing.strip('/')}"):
        write_native(make(), folder)
    assert (folder / existing).exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ElmoError, match="E034.*it is a file"):
        write_native(make(), tmp_path / "file")


def test_failure_while_writing_keeps_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_native(make(), tmp_path / "m")

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(ElmoError, match="E039.*No space left"):
        write_native(make(seed=1), tmp_path / "m")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    tensors = read_native(tmp_path / "m").tensors
    assert torch.equal(tensors["forward_lstm.0.bias"], make().tensors["forward_lstm.0.bias"])


def without_exchange(*args: Any, **kwargs: Any) -> None:
    raise OSError("no such function here")


def test_folders_are_replaced_where_the_system_cannot_swap_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", without_exchange)
    write_native(make(), tmp_path / "m")
    write_native(make(seed=1), tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    rename = Path.rename

    def fails_for_the_new_folder(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_folder)
    with pytest.raises(ElmoError, match="E039.*Permission denied"):
        write_native(make(seed=2), tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    name = "forward_lstm.0.bias"
    bias = read_native(tmp_path / "m").tensors[name]
    assert torch.equal(bias, make(seed=1).tensors[name])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="swaps folders in one step")
def test_killed_writer_leaves_a_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "m"
    models = [make(seed=seed) for seed in range(2)]
    write_native(models[0], path)
    for trial in range(8):
        child = os.fork()
        if child == 0:
            while True:
                for files in models:
                    write_native(files, path)
        time.sleep(0.01 + 0.007 * trial)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        bias = read_native(path).tensors
        assert any(
            all(torch.equal(bias[name], tensor) for name, tensor in files.tensors.items())
            for files in models
        )
