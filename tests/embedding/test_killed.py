"""Runs that are killed (SIGKILL) at steps that reach the disk, and go on to the same bytes."""

import multiprocessing
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
#: More steps than a run has.
MANY = 10**6


class Countdown:
    """Kills the process before or after the n-th call of what it was put around."""

    def __init__(self, n: int) -> None:
        # Children count in it, and their parent reads it.
        self._n = multiprocessing.RawValue("i", n)

    @property
    def n(self) -> int:
        """Calls that are left."""
        return int(self._n.value)

    def around(self, function: Callable[..., Any], half: Any = None) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            self._n.value -= 1
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


def in_child(folder: Path, output: str, bilm: BiLM, countdown: Countdown) -> bool:
    """Run in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
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


def check_output(path: Path, whole: Any) -> bool:
    """Whether the output is there; under its name it has to be whole at any time."""
    if path.exists() and contents(path) != whole:
        raise SystemExit(f"{path}: a part of the output under its final name")
    return path.exists()


def main(folder: str) -> None:
    """Kill at each step in turn; before the next one the run is killed once more and ended."""
    bilm = model()
    unharmed = Path(folder, "unharmed")
    unharmed.mkdir()
    write_lines(unharmed / "in.txt", lines(N_LINES))
    for name in OUTPUTS:
        never = Countdown(MANY)
        in_child(unharmed, name, bilm, never)
        whole, n_steps = contents(unharmed / name), MANY - never.n
        n_killed = n_placed = 0
        # The last step comes when the output is in its place, and one more does not come.
        for step in [*range(1, n_steps, 2 if name == "out.hdf5" else 5), n_steps, n_steps + 1]:
            place = Path(folder, f"{name}-{step}")
            place.mkdir()
            write_lines(place / "in.txt", lines(N_LINES))
            killed = in_child(place, name, bilm, Countdown(step))
            if killed != (step <= n_steps):
                raise SystemExit(f"{name}: {n_steps} steps, but killed at {step}: {killed}")
            n_killed += killed
            placed = check_output(place / name, whole)
            n_placed += killed and placed
            if killed and not placed:
                in_child(place, name, bilm, Countdown(4))
                check_output(place / name, whole)
            if killed and in_child(place, name, bilm, Countdown(MANY)):
                raise SystemExit("killed by somebody else")
        print(name, n_killed, n_placed, flush=True)


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
    counts, placed = {}, {}
    for line in result.stdout.splitlines():
        name, counts[name], placed[name] = line.split()
    assert int(counts["out.hdf5"]) >= 6 and set(counts) == set(OUTPUTS)
    # Some of the kills came when the output was in its place.
    assert all(int(placed[name]) >= 1 for name in OUTPUTS)
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
