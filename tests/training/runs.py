"""Runs on the tiny text that can be stopped at a step, and whether two runs are equal."""

from pathlib import Path
from typing import Any, List, Optional

from spacy_elmo.training.checkpoint import CHECKPOINT_NAME, load_checkpoint
from spacy_elmo.training.config import PretrainConfig
from spacy_elmo.training.pretrain import pretrain

from . import tiny

TEXT = tiny.sentences(200)
HELD = tiny.sentences(25, seed=7)


class Interruption(Exception):
    """Stands for Ctrl-C."""


def files(folder: Path) -> List[Path]:
    """The input and the held-out text, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        tiny.write_text(folder / "in.txt", TEXT),
        tiny.write_text(folder / "held.txt", HELD),
    ]


def train(
    folder: Path,
    config: Optional[PretrainConfig],
    stop_at: int = 0,
    threads: int = 1,
    **options: Any,
) -> None:
    """Train in `folder`, up to a step if given."""

    def report(progress: Any) -> None:
        if progress.step == stop_at:
            raise Interruption

    source, held = files(folder)
    options = {"heldout": [held], "report": report, "threads": threads, **options}
    try:
        pretrain([source], folder / "run", config, **options)
    except Interruption:
        pass


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, optimiser and log are equal, but for times."""
    for name in ("model-best", "model-last", CHECKPOINT_NAME):
        tiny.assert_equal(tiny.tensors(a / "run" / name), tiny.tensors(b / "run" / name))
    logs = [tiny.without_times(tiny.read_log(path / "run")) for path in (a, b)]
    assert logs[0] == logs[1]
    facts = [load_checkpoint(path / "run").facts for path in (a, b)]
    for fact in facts:
        del fact["seconds"], fact["log_bytes"]
    differing = [name for name in facts[0] if facts[0][name] != facts[1].get(name)]
    assert facts[0].keys() == facts[1].keys() and not differing, differing
