"""Runs that are killed (SIGKILL) at every point, also during saves, and go on to the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from spacy_elmo.bilm.io import atomic
from spacy_elmo.training.checkpoint import CHECKPOINT_NAME
from spacy_elmo.training.loop import Trainer

from ..util import ROOT
from . import tiny
from .runs import assert_same_run, train


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(function: Any, when: Callable[..., bool]) -> Any:
    def killing(*args: Any, **options: Any) -> Any:
        if when(*args):
            kill()
        return function(*args, **options)

    return killing


def kill_after(function: Any, when: Callable[..., bool]) -> Any:
    def killing(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if when(*args):
            kill()
        return result

    return killing


def half_written(descriptor: int) -> None:
    """What reached the disk of a checkpoint when the process died in the middle of writing."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    kill()


def half_a_line(trainer: Trainer, line: Dict[str, Any]) -> None:
    _log(trainer, line)
    path = trainer.directory / "log.jsonl"
    os.truncate(path, path.stat().st_size - 9)
    kill()


_log = Trainer._log


def arm(point: str) -> None:
    """Let this process kill itself at a certain point."""

    def is_checkpoint(source: Any, target: Any) -> bool:
        return Path(target).name == CHECKPOINT_NAME

    always = lambda *_: True  # noqa: E731
    points: Dict[str, Any] = {
        "temporary": (os, "fsync", half_written),
        "before replace": (os, "replace", kill_before(os.replace, is_checkpoint)),
        "after replace": (os, "replace", kill_after(os.replace, is_checkpoint)),
        "before exchange": (atomic, "_put_in_place", kill_before(atomic._put_in_place, always)),
        "after exchange": (atomic, "_put_in_place", kill_after(atomic._put_in_place, always)),
        "log": (Trainer, "_log", half_a_line),
        "vocabulary": (
            os,
            "replace",
            kill_before(os.replace, lambda _, target: Path(target).name == "vocabulary.txt"),
        ),
    }
    module, name, function = points[point]
    setattr(module, name, function)


def main(folder: str, plan: str) -> None:
    """Run in a process of its own: for each unit start or resume until a child reaches the end.

    `plan` names points to be killed at, or gives seconds to be killed after; one for each try.
    """
    # What torch imports at the first step, so that not every child has to.
    import torch._dynamo  # noqa: F401

    for unit, settings in KILLED.items():
        path, killed = Path(folder, unit), 0
        for step in [*json.loads(plan), None]:
            child = os.fork()
            if child == 0:
                run_child(path, settings, step)
            if isinstance(step, float):
                time.sleep(step)
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                killed += 1
            elif os.WEXITSTATUS(status):
                raise SystemExit(1)
        print(killed)


def run_child(path: Path, settings: Dict[str, Any], point: Any) -> None:
    if isinstance(point, str):
        arm(point)
    try:
        resume = (path / "run" / CHECKPOINT_NAME).exists()
        train(path, None if resume else tiny.config(**settings), resume=resume)
    except BaseException as error:
        print(type(error), error, flush=True)
        os._exit(1)
    os._exit(0)


KILLED: Dict[str, Dict[str, Any]] = {
    unit: {"unit": unit, "dropout": 0.1, "checkpoint_every": 2, "eval_every": 3, "max_steps": 30}
    for unit in ("sentence", "stream")
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_that_is_killed_at_every_point_equals_one_that_was_not(tmp_path: Path) -> None:
    # In preparation, before the first checkpoint, at saves of all kinds, at any moment.
    points = ["vocabulary", "log", "temporary", 0.1, "before replace", "after replace", 0.05]
    points += ["before exchange", "after exchange", 0.1, "temporary", "after exchange", 0.15]
    points += ["log", "after replace", "before exchange"]
    code = f"from {__name__} import main; import sys; main(*sys.argv[1:])"
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), json.dumps(points)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for unit, killed in zip(KILLED, result.stdout.split()):
        # The last points may come after the end of a run.
        assert int(killed) >= 10
        whole = tmp_path / f"{unit}-whole"
        train(whole, tiny.config(**KILLED[unit]))
        assert_same_run(tmp_path / unit, whole)
