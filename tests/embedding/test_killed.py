"""Runs that are killed (SIGKILL) at steps that reach the disk, and go on to the same bytes."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, embed_corpus

from ..util import ROOT
from .corpus import OUTPUTS, contents, embed, lines, model, write_lines

PART_TOKENS = 40
N_LINES = 22


class Countdown:
    """Kills the process before or after the n-th call of what it was put around."""

    def __init__(self, n: int) -> None:
        self.n = n

    def around(self, function: Callable[..., Any], half: Any = None) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            self.n -= 1
            if self.n == 0:
                if half is not None:
                    half(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return counting


def half_written(descriptor: int) -> None:
    """What reached the disk of a file when the process died in the middle of writing."""
    size = os.fstat(descriptor).st_size
    try:
        os.ftruncate(descriptor, size - size // 3 - 1 if size else 0)
    except OSError:
        pass  # A folder, or a file that is only open for reading.


def in_child(folder: Path, output: str, bilm: BiLM, kill_at: int) -> bool:
    """Run in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
        countdown = Countdown(kill_at)
        os.fsync = countdown.around(os.fsync, half_written)
        os.replace = countdown.around(os.replace)
        shutil.rmtree = countdown.around(shutil.rmtree)
        try:
            options = EmbedOptions(part_tokens=PART_TOKENS)
            embed_corpus(bilm, folder / "in.txt", folder / output, options)
        except BaseException as err:
            print(type(err), err, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(1)
    return os.WIFSIGNALED(status)


def main(folder: str) -> None:
    """Kill at each step in turn; before the next one the run is killed once more and ended."""
    bilm = model()
    for name in OUTPUTS:
        step, n_killed = 1, 0
        while True:
            place = Path(folder, f"{name}-{step}")
            place.mkdir()
            write_lines(place / "in.txt", lines(N_LINES))
            killed = in_child(place, name, bilm, step)
            n_killed += killed
            if killed and not (place / name).exists():
                in_child(place, name, bilm, 4)
            if killed and in_child(place, name, bilm, 10**6):
                raise SystemExit("killed by somebody else")
            if not killed:
                break
            step += 2 if name == "out.hdf5" else 5
        print(name, n_killed, flush=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_runs_end_as_if_nothing_had_happened(bilm: BiLM, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; from {__name__} import main; main(sys.argv[1])"]
        + [str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    counts = dict(line.split() for line in result.stdout.splitlines())
    assert int(counts["out.hdf5"]) >= 6 and set(counts) == set(OUTPUTS)
    (tmp_path / "whole").mkdir()
    source = write_lines(tmp_path / "whole" / "in.txt", lines(N_LINES))
    for name in OUTPUTS:
        whole = tmp_path / "whole" / name
        assert len(embed(bilm, source, whole, part_tokens=PART_TOKENS)) == N_LINES
        folders: List[Path] = sorted(tmp_path.glob(f"{name}-*"))
        assert len(folders) == int(counts[name]) + 1
        for folder in folders:
            assert sorted(path.name for path in folder.iterdir()) == ["in.txt", name]
            assert contents(folder / name) == contents(whole), folder.name
