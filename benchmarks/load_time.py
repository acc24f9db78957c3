"""Time and peak memory of loading a model, each in a fresh interpreter.

    python benchmarks/load_time.py [--shape original] [--rounds 5]

Random weights in one of the published shapes are written as native float32, native float16 and
options.json + hdf5; the built-in model comes on top. The first load of each warms the disk
cache and is left out. Memory is the growth of the process's peak over what it had before, as a
multiple of the weights in float32 (Linux only).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from spacy_elmo.bilm.config import PRESETS
from spacy_elmo.bilm.encoder import BiLM
from spacy_elmo.bilm.io import builtin_models
from spacy_elmo.bilm.lm import init_bilm

_CHILD = """
import json, sys, time
import spacy_elmo.bilm as bilm
from spacy_elmo.bilm.io import bilm_hdf5
import h5py, safetensors
def peak():  # of this program; the figure of getrusage is inherited from the parent
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
before = peak()
start = time.perf_counter()
model = bilm.BiLM.load(sys.argv[1])
loaded = time.perf_counter()
# Touch every page, so that mapped weights count.
total = sum(float(p.sum()) for p in model.parameters())
touched = time.perf_counter()
model.embed([["It", "works", "."]])
n = sum(p.numel() for p in model.parameters())
print(json.dumps([loaded - start, touched - loaded, (peak() - before) * 1024 / (4 * n), n]))
"""


def measure(path: str, rounds: int) -> None:
    """Print medians for one model."""
    results = []
    for _ in range(rounds + 1):
        out = subprocess.run(
            [sys.executable, "-c", _CHILD, path], check=True, capture_output=True, text=True
        ).stdout
        results.append(json.loads(out))
    load, touch, memory, n = (statistics.median(column) for column in zip(*results[1:]))
    print(
        f"{Path(path).name:24} {int(n):>12,} {1000 * load:>14,.0f} {1000 * touch:>14,.0f} "
        f"{memory:>13.2f}x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="original", choices=sorted(PRESETS))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    columns = ("load, ms", "touch all, ms", "peak memory")
    print(f"{'model':24} {'parameters':>12}", *(f"{title:>13}" for title in columns))
    for name in builtin_models():
        measure(name, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        model = BiLM(PRESETS[args.shape])
        init_bilm(model, model.config, torch.Generator().manual_seed(0))
        paths = {}
        for name, options in (
            ("native-float32", {"dtype": "float32"}),
            ("native-float16", {"dtype": "float16"}),
            ("hdf5", {"format": "bilm"}),
        ):
            paths[name] = Path(folder) / f"{args.shape}-{name}"
            model.save(paths[name], **options)
        del model
        for path in paths.values():
            measure(str(path), args.rounds)


if __name__ == "__main__":
    main()
