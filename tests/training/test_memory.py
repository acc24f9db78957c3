"""Memory of a run up to its first step, in a process of its own: the peak is of a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..util import ROOT
from . import tiny

SCRIPT = """
import json, sys
from pathlib import Path
from spacy_elmo.training.pretrain import pretrain
from tests.training import tiny

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))

class Enough(Exception):
    pass

def stop(progress):
    raise Enough

folder, peaks = Path(sys.argv[1]), []
for name in ("small", "large"):
    try:
        # The text is read, counted and planned, and there is one step.
        source, held = folder / f"{name}.txt", [folder / "held.txt"]
        pretrain([source], folder / name, tiny.config(), heldout=held, threads=1, report=stop)
    except Enough:
        peaks.append(peak())
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    # Long sentences: what is planned at a time is bounded, but by a number of sentences.
    sentences = tiny.sentences(5000)
    joined = [sum(sentences[i : i + 6], []) for i in range(0, len(sentences), 6)]
    text = tiny.write_text(tmp_path / "small.txt", joined).read_bytes()
    # The same types, so that the vocabulary does not grow.
    (tmp_path / "large.txt").write_bytes(20 * text)
    tiny.write_text(tmp_path / "held.txt", tiny.sentences(20, seed=7))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)
    # Of 3.5 MiB of text more. Its tokens would be 50 MiB, its lines alone 9; blocks that files are
    # read and hashed in are 4.
    assert large - small < 7
